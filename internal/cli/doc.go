// Package cli is the tree of sluice's commands: Run executes one of them and returns its exit code.
//
// Each noun has a folder of its own: serve (the server, the gate and their settings), bulk, room,
// topic, group, cluster and demo. The other folders are shared: term prints, remote and brokers are
// the clients of a server's HTTP API and of Kafka brokers, input reads files, events publishes to
// topics, and exit has the errors that choose an exit code.
package cli
