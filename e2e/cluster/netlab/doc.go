// Package netlab gives processes of one test a network of their own, in which links
// can be cut.
//
// A Net has numbered nodes. Each is a network namespace with one address, joined by
// a veth pair to a bridge; the test itself is node 0, on the bridge, and reaches all
// of them. Block makes packets from one node to another get lost, in that direction
// only, as a broken link does: nobody is told, connections stay open. It works by
// neighbour entries that name a hardware address which nobody has, so it needs
// neither a packet filter nor a kernel module.
//
// A Proxy forwards connections between nodes and may hold up each direction: by a
// delay, or altogether, so that one side hears the other and is not heard, while all
// packets are acknowledged.
//
// All of it needs root and the command ip. A test that ends, or is killed, takes its
// processes with it; namespaces, bridges and mounts of a test that was killed are
// removed by the next one, which knows them by the process id in their names.
package netlab
