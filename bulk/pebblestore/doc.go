// Package pebblestore keeps bulk's actions and jobs in Pebble, in one process.
//
// # What is durable, and what is not
//
// Few facts are durable: jobs, their attempts and outcomes, and the records of actions.
// They are written with an fsync before a method returns; concurrent calls share one.
// Which jobs are ready or in flight, and what a window has started, is in memory, and is
// rebuilt from the facts when the store is opened.
//
// Jobs do not have a key each. Payloads are stored in pages, as they were uploaded. The
// history of jobs is a log of a few bytes for each page of 1,024 jobs, in which a run of
// consecutive jobs is one record: leasing a hundred jobs of one action, in order, writes
// about ten bytes. docs/formats/bulk-pebble.md describes every key.
//
// Events that wait to be published are entries of an outbox, written in the same batch
// as what they report.
//
// # Non-obvious
//
//   - An operation changes memory and enters its batch into Pebble's log under one lock,
//     so that the log has the order of memory. It waits for the fsync outside the lock.
//     Another call may see an operation that is not yet durable, but its own batch is
//     later in the log, so it cannot become durable first.
//   - If a write fails, memory is ahead of the disk: the store is broken, and every call
//     returns ErrBroken until it is opened again.
//   - Lock order: action.upload or backlog.mu, then Store.mu, then pages.mu. Store.mu is held for
//     holdMost jobs or actions at a time. Operations take turns for Store.mu; reads lock Store.reads,
//     which an operation holds in its turn, so that they wait for one operation at most.
//   - Events returns only events that are known to be on disk.
//   - The window in which the store is opened may allow fewer attempts than its
//     limits: if any were started in it before, it allows none.
package pebblestore
