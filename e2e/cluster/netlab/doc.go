// Package netlab gives the processes of a test a network of their own, in which links can be cut.
//
// A Net has numbered nodes. Each is a network namespace with one address, joined by a veth pair to
// a bridge; the test itself is node 0, on the bridge, and reaches all of them. Block drops the
// packets from one node to another, in that direction only, as a broken link does: no side gets an
// error, and connections stay open. It sets neighbour entries to a hardware address that does not
// exist, so it needs neither a packet filter nor a kernel module.
//
// A Proxy forwards connections between nodes and can delay each direction, or hold it completely,
// so that one side hears the other and is not heard, while all packets are acknowledged.
//
// All of it needs root and the command ip. Processes end with their test, even if it is killed;
// namespaces, bridges and mounts of a killed test are removed by the next one, which recognizes
// them by the process id in their names.
package netlab
