// Package topic stores records: a durable, partitioned queue with Kafka's terms, over a
// log engine that is hidden behind an interface.
//
// # Nouns
//
// A topic is a name with partitions. A partition is a sequence of records;
// each has an offset. Producers send and consumers receive a [Batch] of records, byte
// for byte: the broker stamps only its first offset and its leader epoch. The high
// watermark is the offset after the last durable record; no record at or above it is
// ever shown. A view is a topic that shows a filtered part of another. A consumer group
// divides partitions among its members and stores how far it has read; its coordinator
// is in package group.
//
// # Where things are
//
//	kafka, api ─▶ broker ─▶ group, txn, delay, view ─▶ catalog ─▶ this package
//	migrate ──────────────▶ group, txn, delay ───────▶ catalog ─▶
//	natsstore, storetest implement Store ───────────────────────▶
//
// This package defines the types that all of them share: [Store] with its [Log], [Meta]
// and [Cluster]; records and batches; [Config] and the table of settings; the errors that
// callers branch on; and policies without I/O: which nodes keep a partition
// ([Places]), which records are delayed ([DelayConfig.Split]). The broker appends and
// reads, groups coordinate consumers, migrate copies a single server into a cluster.
//
// One append writes an [Entry]: the batches that arrived together, and a [Mark] that
// summarizes them. The fields of marks never fall from entry to entry, so that every
// lookup (offset, time, epoch, size) is one binary search, and the index in memory is a
// cache that may be dropped.
//
// # Guarantees
//
//   - An acknowledged record (acks=1 or acks=all) is in the log, in the order in
//     which its partition numbered it.
//   - A batch that an idempotent producer sends again appears once.
//   - A reader's high watermark does not fall, as long as the reader uses no leader of
//     a lower epoch than it has seen.
//   - A transaction counts in all of its partitions and groups, or in none.
//   - A delayed record appears once, not before it is due, even across restarts and
//     changes of the leader.
//
// A setting of the log decides whether an entry is fsynced before it is acknowledged, or
// within an interval.
package topic
