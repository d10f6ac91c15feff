// Package delay holds the delayed records of a partition until they are due.
//
// A [Queue] keeps them in a log of their own, with their ids and times in memory. It
// releases them into a [Target], the partition.
//
//	producer ─▶ topic.DelayConfig.Split ─▶ Queue.Add ─▶ delay log ─▶ fsync
//	                  │ due now                              │ due
//	                  ▼                                      ▼
//	            Partition.append ─▶ Keep or Drop    Target.AppendReleased
//
// # Guarantees
//
//   - A delayed record is durable before its batch is acknowledged.
//   - It is released once, not before it is due, even across restarts and changes of
//     the leader: each release has a number, and the partition's log records the
//     number of the last release.
//   - Memory is bounded by [topic.DelayConfig], and the log is compacted.
//
// The file log.go has the format of the entries, state.go the state that they produce,
// queue.go and write.go the single writer, release.go and compact.go the loops.
package delay
