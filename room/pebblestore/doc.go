// Package pebblestore keeps rooms in Pebble, in one process.
//
// # What is where
//
// Memory has everything, and answers everything: Pebble is read when the store is
// opened, and for events. A visitor who waits takes about 15 bytes of it, 28 more with
// a key, and 30 more with a draw:
//
//   - visitors.go: a slot of a byte for each number, in pages of 4,096; when each asked
//     last; keys and draws, if anybody on the page has one. A page that nobody is left
//     in keeps the slots, which say why, for room.KeepGone.
//   - line.go: the line. Numbers are two bits each (index.go), draws are in sorted
//     blocks (drawn.go), and Fenwick trees sum both (fenwick.go): to find a rank, or
//     the first who may be called, is O(log n).
//   - attendance.go: who has been silent is found in sheets of 128 visitors, ordered by
//     when the earliest of each may be due.
//   - active.go: who is called or inside, ordered by when that ends.
//   - keytable.go: the number of a key.
//
// # What is durable
//
// A move writes the records of the visitors that it changed, the room's counts if they
// changed, and its events, in one batch, and returns after an fsync; calls that arrive
// together share one. When somebody asked last is not written: opening counts as
// everybody's asking, by way of the first Expire. docs/formats/room-pebble.md
// describes every key.
//
// # Non-obvious
//
//   - A move changes memory and enters its batch into Pebble's log under the room's
//     lock, so that the log has the order of memory; it waits for the fsync outside
//     the lock.
//   - So another call may meet what is not durable yet. Of that it tells nothing: who
//     left the line still counts for the ranks of others until it is durable
//     (move.left), and whoever meets a claim or somebody gone that is not durable yet, or
//     enters with a key that has a place, waits for it (move.needs). Other questions wait
//     for nothing.
//   - The end of a sliding pass is written when it passes the one on disk, and then an
//     eighth of the pass's length ahead: after a crash a pass ends by so much later at
//     most, and never earlier than was told. Close writes the exact ends.
//   - If a write fails, memory is ahead of the disk: the store is broken, and every
//     call says so until it is opened again.
//   - The store's time does not go back when the machine's clock does (clock.go).
//   - Lock order: Store.admin, then Store.mu, then hall.mu. No move takes Store.mu
//     while it holds hall.mu.
//   - A room with anybody in it takes 40 KiB at least: a page.
//   - Expire, and calling in any move, do about 4,096 visitors at a time. Clear does all at
//     once, written in batches of about 1 MiB.
package pebblestore
