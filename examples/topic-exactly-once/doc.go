// Command topic-exactly-once sends payments and adds them up, each once, whoever
// is killed meanwhile.
//
//	sluice serve &
//	go run ./examples/topic-exactly-once produce 1000
//	go run ./examples/topic-exactly-once consume
//
// # How
//
// The producer is idempotent: what its client sends again appears once. If the
// producer itself is started again, it looks at the last payment in the topic and
// goes on after it. What its predecessor had still on the way may then appear
// twice; but payments are numbered, and come in the order of their numbers, but
// for repeats.
//
// The consumer stores its sum, the number of the last payment and the offset to
// go on from together, in one file that is replaced as a whole. So the three
// agree, whenever it was killed, and a payment whose number is not higher than
// the last is a repeat. A group's committed offset would not do: it and the sum
// would be two writes, and a crash may come between them.
//
// One producer and one consumer run at a time, for one partition. With a database
// in place of the file, the three are changed in one transaction, on condition
// that they still are what the consumer has read: then there may be two consumers.
package main
