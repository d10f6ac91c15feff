// Command topic-at-most-once sends and prints readings, of which some may be
// lost and none is printed twice: the producer does not wait for an answer, and
// the consumer commits what it has read before it works on it.
//
//	sluice serve &
//	go run ./examples/topic-at-most-once produce 1000
//	go run ./examples/topic-at-most-once consume
//
// Kill the consumer and start it again: it goes on after what it had read, and
// what it had not printed of that is lost.
package main
