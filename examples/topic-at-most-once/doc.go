// Command topic-at-most-once sends and prints readings. Some may be lost, and none is printed
// twice: the producer does not wait for an answer, and the consumer commits records before it works
// on them.
//
//	sluice serve &
//	go run ./examples/topic-at-most-once produce 1000
//	go run ./examples/topic-at-most-once consume
//
// Kill the consumer and start it again: it resumes after the last committed record. Records that it
// had committed and not printed are lost.
package main
