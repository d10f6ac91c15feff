// Package broker serves the topics of one node. A [Broker] has [Topic]s, these have
// [Partition]s, and the partitions append to and read from logs of a [topic.Store].
//
// # How data flows
//
//	producer ─▶ Topic.Append ─▶ append.go ─▶ pending ─▶ Log.Append ─▶ fsync
//	                            check, number,  (group     one entry of
//	                            stamp            commit)   whole batches
//	                                                          │
//	consumer ◀─ Topic.Read ◀─── read.go ◀─── tail (memory) ◀──┤ high watermark
//	              ▲ (view: filter)            │ miss          ▼ rises
//	              └─────────────────────── Log.Read ◀─── index.go
//
// # Leaders
//
//	any node: change of a topic ─▶ catalog ─▶ follow.go: topics in memory of
//	                                 ▲        every node
//	                                 │ claim: epoch + 1, leader
//	engine elects a log's leader ─▶ leadership.go ─▶ recover.go: load, fence ─▶ open
//
// A partition is led by the broker of the node that leads its log. On the other nodes
// it follows, and refuses appends and reads with [topic.ErrNotLeader].
//
// # Guarantees
//
//   - An acknowledged record is in the log, in the order in which its partition
//     numbered it.
//   - A batch that an idempotent producer sends again appears once.
//   - Two brokers that both believe they lead a partition cannot both append: each
//     append names the sequence it follows, and the log refuses all others. Where
//     another node may lead, a leader has one entry in flight, so it knows everything
//     before it.
//   - Leader epochs only rise, and each has one leader.
package broker
