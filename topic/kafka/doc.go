// Package kafka is topic's edge: it speaks the Kafka protocol with any client.
//
// Each kind of request has a file, or shares one with its like, which opens with the supported versions and the behaviour
// of the answer. A connection has two goroutines: one reads and starts requests in order, the
// other waits for their answers and sends them in the same order. So the appends of a
// connection reach the log in order, while many of them wait for the same fsync.
//
// See https://kafka.apache.org/protocol.
package kafka
