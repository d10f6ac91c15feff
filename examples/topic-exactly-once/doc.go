// Command topic-exactly-once sends payments and adds them up, each once, even if the producer or
// the consumer is killed.
//
//	sluice serve &
//	go run ./examples/topic-exactly-once produce 1000
//	go run ./examples/topic-exactly-once consume
//
// # How
//
// The producer is idempotent: records that its client retries appear once. A restarted producer
// reads the last payment in the topic and continues after it. Records that its predecessor still
// had in flight may then appear twice; but payments are numbered, and arrive in the order of their
// numbers, apart from repeats.
//
// The consumer stores its sum, the number of the last payment and the next offset together, in one
// file that is replaced as a whole. So the three agree after any crash, and a payment whose number
// is not higher than the last is a repeat. A group's committed offset would not do: it and the sum
// would be two writes, and a crash could come between them.
//
// One producer and one consumer run at a time, for one partition. With a database in place of the
// file, the three are changed in one transaction, on condition that they are unchanged since the
// consumer read them: then there may be two consumers.
package main
