// Package lifecycle is the one contract that everything long-lived follows:
// start, report failure, drain, stop.
//
// A [Service] starts without blocking and stops within a deadline. A [Group]
// owns the goroutines of one service, so that each has an owner that ends it.
// [Run] starts services in order, waits for the end or a failure, and stops
// them in reverse order. [Sleep], [Signal] and [Broadcast] pause and wake loops.
package lifecycle
