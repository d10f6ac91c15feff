// Command topic-transactions writes what happens in bulk and in rooms to one topic, a short line for each
// event, once, even if it is killed.
//
//	sluice serve &
//	sluice bulk enqueue '{"order": 17}' --tenant acme --type echo
//	go run ./examples/topic-transactions
//	sluice topic consume activity
//
// # How
//
// It is a member of a group that reads the events, and what it has read and what it writes are one transaction:
// both count, or neither. If it is killed, its transaction is aborted, and who goes on begins where the last one that
// counts has ended. Consumers that read what is committed see each line once.
//
// Several may run, each with an id of its own, and share the partitions. One that is started with the id of another
// fences that one and takes its place in the group, so that the others need not wait until it is missed.
package main
