// Package kafka is topic's edge: it speaks the Kafka protocol with any client.
//
// One file for each kind of request; each opens with the versions that are
// served and how the answer behaves. A connection has two goroutines: one reads
// requests in order and starts them, one waits for their answers and sends them
// in the same order. So appends of one connection are in the log in the order
// in which they came, while many of them wait for the same fsync.
//
// See https://kafka.apache.org/protocol.
package kafka
