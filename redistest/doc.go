// Package redistest runs real Redis servers for tests: on free ports of the
// loopback address, with their data in the test's own folder, and stopped when it ends.
//
// A [Server] can be killed and started again with its data, and be paused, so that
// tests see what a client sees of a crash and of a server that hangs. It may want a user
// and password, speak TLS, and listen to a unix socket. A [Cluster] is several of them
// that share the hash slots; a [Sentinel] is a master with replicas, one of which takes
// its place when it dies. Redis and Valkey are the same to them.
package redistest
