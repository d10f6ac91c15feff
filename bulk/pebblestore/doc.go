// Package pebblestore keeps bulk's actions and jobs in Pebble, in one process.
//
// # What is durable, and what is not
//
// Durable facts are few: a job exists, its attempts, its outcome, its action's
// record. They are written with an fsync before a method returns; calls that
// arrive together share one. What is ready, what is in flight and what a window
// has started live in memory and are rebuilt from the facts when the store is
// opened.
//
// Jobs do not have a key each. Payloads are stored in pages, as they were
// uploaded. What happened to jobs is a log of a few bytes for each page of 1,024
// jobs, in which a run of neighbours is one record: leasing a hundred jobs of
// one action, in order, writes about ten bytes. docs/formats/bulk-pebble.md
// describes every key.
//
// Events that wait to be published are entries of an outbox, written in the batch
// of what they tell of.
//
// # Non-obvious
//
//   - A move changes memory and enters its batch into Pebble's log under one
//     lock, so that the log has the order of memory; it waits for the fsync
//     outside the lock. Another call may thus see a move that is not yet
//     durable, but its own batch comes later in the log, so it cannot become
//     durable first.
//   - If a write fails, memory is ahead of the disk: the store is broken, and
//     every call says so until it is opened again.
//   - Lock order: action.upload, then Store.mu, then pages.mu.
//   - Events returns no event that is not known to be on disk.
//   - The window in which the store is opened may allow fewer attempts than its
//     limits: if any were started in it before, it allows none.
package pebblestore
