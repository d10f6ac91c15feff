// Command topic-at-least-once sends and prints orders. None is lost, and some may be printed twice:
// the producer waits until they are durable, and the consumer commits after it has worked on them.
//
//	sluice serve &
//	go run ./examples/topic-at-least-once produce 1000
//	go run ./examples/topic-at-least-once consume
//
// Kill the consumer and start it again: it repeats the orders that it had printed and not yet
// committed. A producer that failed is started again from the beginning.
package main
