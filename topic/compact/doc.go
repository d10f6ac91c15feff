// Package compact removes the records of a log whose keys have newer values, as Kafka's log
// compaction does, over any [topic.Store].
//
// # Nouns
//
// A [Pass] reads the oldest entries of a log, and writes what stays of them into another log, the
// clean generation, under the sequences that end where the pass ends. A [Record] in the metadata
// names the generation that counts. A [Log] is both logs as one: the clean generation, and the log
// of records for what follows it.
//
// # Guarantees
//
//   - The last record of each key stays, under its offset. The first offset of the log stays too.
//   - A tombstone, a record without a value, and the marker of a transaction stay for the delete
//     retention after the pass that has removed what they end (KIP-534).
//   - A generation counts from one guarded change of the metadata on, as a whole. A process that is
//     killed at any moment leaves the generation before or the new one.
//   - The offsets before which a leader epoch ended, and the end of the log, stay: the batch there
//     stays without records if it has none left. So a consumer at a removed record goes on.
//   - A pass has at most the memory of MaxKeys keys and of one entry, whatever the log's size.
//
// Everything but [Log] is without clock; [Cleaner] is without I/O.
package compact
