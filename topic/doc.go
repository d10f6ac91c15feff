// Package topic keeps records: a durable, partitioned queue in the words of
// Kafka, stored in a log engine that it does not know.
//
// # Nouns
//
// A [Topic] is a name with partitions. A [Partition] is a sequence of records;
// each has an offset, and a [Batch] of records is what producers send and
// consumers get, byte for byte: only its first offset and its leader epoch are
// stamped here. The high watermark is the offset after the last durable record;
// nothing at or above it is ever shown. A view is a topic that shows a filtered
// part of another. A consumer group divides partitions among its members and
// remembers how far it has read; its coordinator is [Groups].
//
// # How data flows
//
//	producer ─▶ kafka ─▶ Partition.Append ──▶ pending ──▶ Log.Append ─▶ fsync
//	                      check, number,      (group      one Entry of
//	                      stamp                commit)    whole batches
//	                                                          │
//	consumer ◀─ kafka ◀─ Partition.Read ◀── tail (memory) ◀───┤ high watermark
//	             ▲ wait        ▲ view        │ miss           ▼ moves on
//	             └─────────────┴──────────── Log.Read ◀──── index, search
//
// An [Entry] is what one append writes: the batches that arrived together, and a
// [Mark] that says what they hold. All fields of marks only grow from entry to
// entry, so that every lookup (offset, time, epoch, size) is one binary search,
// and the index in memory is a cache that may be thrown away.
//
// # Several nodes
//
//	 any node: change of a topic ─▶ record in Meta ─▶ Meta.Watch ─▶ follow: topics
//	                                    ▲                           in memory of
//	                                    │ claim: epoch + 1, leader  every node
//	engine elects a log's leader ─▶ Cluster.Leads ─▶ recovering ─▶ open
//	                                                 load, fence
//
// A partition is led by the broker of the node that leads its log; on the others it
// follows, and refuses appends and reads with [ErrNotLeader]. The file leadership.go
// has the states, follow.go the loop. The same code runs without a cluster: then the
// broker leads everything.
//
// # Guarantees
//
//   - A record that was acknowledged with acks=1 or acks=all is in the log, and
//     in the order in which its partition numbered it.
//   - A batch of an idempotent producer that is sent again appears once.
//   - Two brokers that believe to lead a partition cannot both append: each
//     append names the sequence it follows, and the log refuses all others.
//     In a cluster a leader has one entry under way at a time, so that it knows all
//     that comes before what it appends.
//   - Leader epochs only rise, and each has one leader. What a reader has seen stays,
//     and its high watermark does not fall, as long as it goes to no leader of a
//     lower epoch than it has seen.
//   - A delayed record appears once, not before it is due, also over restarts and
//     changes of the leader.
//
// What "in the log" means is the log's setting: after an fsync, or within an
// interval.
package topic
