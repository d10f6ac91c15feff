// Package pebblestore keeps rooms in Pebble, in one process.
//
// # What is where
//
// Memory holds everything, and serves every call: Pebble is read when the store is
// opened, and for events. A visitor who waits takes about 15 bytes, 28 more with a key,
// and 30 more with a draw:
//
//   - visitors.go: a slot of a byte for each number, in pages of 4,096; when each visitor
//     asked last; keys and draws, if anybody on the page has one. An empty page keeps the
//     slots, which hold the reasons, for room.KeepGone.
//   - line.go: the line. Numbers take two bits each (index.go), draws are in sorted blocks
//     (draws.go), and Fenwick trees sum both: finding a rank, or the first visitor who may
//     be called, is O(log n).
//   - silence.go: buckets of 128 visitors, ordered by when the earliest visitor of each may
//     have been silent for too long.
//   - active.go: called visitors and visitors inside, ordered by when that ends.
//   - keytable.go: the number of a key.
//
// # What is durable
//
// An operation writes the records of the visitors that it changed, the room's counts if
// they changed, and its events, in one batch, and returns after an fsync; concurrent calls
// share one. The times of last asks are not written: when the store is opened, everybody
// counts as having asked, by way of the first Expire. docs/formats/room-pebble.md
// describes every key.
//
// # Non-obvious
//
//   - An operation changes memory and enters its batch into Pebble's log under the room's
//     lock, so that the log has the order of memory; it waits for the fsync outside
//     the lock.
//   - So another call may see changes that are not durable yet. No answer shows them: a
//     visitor who left the line counts for the ranks of others until that is durable
//     (operation.left), and a call that sees a claim or a visitor gone that is not durable,
//     or enters with a key that has a place, waits for it (operation.needs). Other calls
//     wait for nothing.
//   - The end of a sliding pass is written when it passes the one on disk, and then an
//     eighth of the pass's length ahead: after a crash a pass ends at most that much
//     later, and never earlier than was answered. Close writes the exact ends.
//   - If a write fails, memory is ahead of the disk: the store is broken, and every call
//     fails until it is opened again.
//   - The store's time does not go back when the machine's clock does (clock.go).
//   - Lock order: Store.admin, then Store.mu, then roomState.mu. No operation takes
//     Store.mu while it holds roomState.mu.
//   - A room with anybody in it takes at least 40 KiB: a page.
//   - Expire, and calling in any operation, handle about 4,096 visitors at a time. Clear
//     handles all at once, written in batches of about 1 MiB.
package pebblestore
