// Package filestore keeps topic's logs in files and its metadata in Pebble: the store of a
// server without a cluster.
//
// # Nouns
//
// A log is a folder of segments, a segment a file of frames, a frame an entry with a header
// that describes and checks it. Only the last segment of a log grows. Points name the places
// of some frames, so that a frame is found without reading those before it; the points file
// of a segment keeps them over a restart. docs/formats/topic-files.md describes the files.
//
// # Guarantees
//
//   - With Options.SyncInterval 0, an append is acknowledged after its fsync. Otherwise it
//     is acknowledged when the operating system has it: it survives the end of the process,
//     and a power cut only once the interval is over.
//   - Entries that arrive while a log writes are written together, with one call and one
//     fsync, without being copied. Logs write independently of each other.
//   - Each read checks the frames. A frame that is not as it was written is a *DamageError,
//     never silence. Opening a log cuts off a tail that a power cut has torn, and nothing
//     that was durable: each frame says how far the file was durable when it was written.
//   - After a failed write or fsync the log takes no appends, and Store.Failed is closed: what
//     the disk has is known again when the store is opened.
//   - A checkpoint has what a kill at one moment would leave, and everything acknowledged before.
//   - One process at a time can open a directory.
//
// # Not obvious
//
//   - Each segment has a random number, which begins each of its frames. Records, which
//     clients choose, can therefore not be taken for frames.
//   - Points are written only for places that are durable. So opening a log reads what
//     follows its last point, at most a few MiB, and a file that ends before its last point is
//     damaged.
//   - Opening a log writes its newest frames again before it syncs them: after a failed fsync
//     the system's cache may hold them as if they were on the disk.
//   - A failed write may leave whole frames behind the log's end. They are overwritten with
//     zeros before the next append, since they would continue it.
//   - A log whose entries are all trimmed begins a new segment, so that the old one can go.
//   - Reads of the metadata wait for a commit in progress, because Pebble shows what it has
//     not synced yet.
//   - Lock order: Store.layout, a name, log.trimming, Store.frozen, log.writing, log.mu, segment.mu. The
//     lock of openFiles is taken before segment.mu.
package filestore
