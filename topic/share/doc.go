// Package share keeps what a share group (KIP-932) knows of one partition: which records are
// delivered to whom, and which are done. It has no I/O, no lock and no clock.
//
// # Nouns
//
// A [Window] covers the offsets from its start, before which all records are settled, to its end,
// from which on none was delivered. Each record in it is in one state:
//
//	            Acquire: count + 1                accept
//	available ───────────────────────▶ acquired ───────────────▶ settled
//	   ▲  ▲                            │     │                      ▲
//	   │  └── release, its lock ends ◀─┤     └─ reject, or the ─┐   │ Bury
//	   └── after a backoff ── waiting ◀┘        count exhausted ▼   │
//	                                                          dead ─┘
//
// Records are dead until their dead letters are written; where there are none, they are settled at once.
// Offsets without a record to deliver are absent: markers, records of aborted transactions, and what
// compaction has removed. The start moves over settled and absent offsets.
//
// # Guarantees
//
//   - A record is acquired by one member at a time, and at most [Limits.Deliveries] times.
//   - Only the member that has acquired a record settles or releases it, while its lock lasts.
//   - A window has at most [Limits.Records] records, and about as many runs in memory.
package share
