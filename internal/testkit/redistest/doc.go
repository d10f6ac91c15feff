// Package redistest runs real Redis servers for tests: on free ports of the loopback address, with
// their data in the test's own folder, until the test ends.
//
// A [Server] can be killed and restarted with its data, and be paused, so that tests see what a
// client sees of a crash and of a server that hangs. It may require a user and password, speak TLS,
// and listen on a unix socket. A [Cluster] is several servers that share the hash slots, which a
// [Move] moves between them; a [Sentinel] is a master with replicas, one of which takes its place
// when it dies. Both Redis and Valkey work.
package redistest
