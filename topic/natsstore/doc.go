// Package natsstore keeps topic's logs and metadata in NATS JetStream, embedded
// in this process: one node, one replica, no listener.
//
// # Nouns
//
// A log is a JetStream stream with one subject, an entry one of its messages:
// the data is the message's body, byte for byte, the mark a header. A key of the
// metadata is a subject of one more stream, which keeps the newest message of
// each. docs/formats/topic-jetstream.md describes both.
//
// # Guarantees
//
//   - With Options.SyncInterval 0, an append is reported after its fsync.
//     Otherwise after it was handed to the operating system: it survives the end
//     of the process, and a power cut only once the interval is over.
//   - An append carries the sequence that it follows, and the engine compares
//     the two while it writes: the fence holds whoever else appends.
//   - A directory is opened by one process at a time, and only in the mode in
//     which it was made.
//
// # Non-obvious
//
//   - The engine does not answer an append that failed in the file system, and a
//     stream on which a write failed takes no more until it is opened again. So
//     the store looks at the free space itself, and refuses before the disk is
//     full (Options.DiskReserve).
//   - Answers carry the number of their append in the reply subject: a late one
//     cannot be taken for that of another.
//   - After an append failed, one that was under way and is answered well
//     gets ErrUncertain: it must not pass as written, and it may be there.
//   - Direct gets are served in the read loop of their connection: reads have
//     connections of their own, or they would hold up appends.
//   - The engine's own limit of messages per subject is not used: it leaves no
//     trace on the disk of what it removed, so that after a kill a message would
//     be back whose successor was removed. What a key had before is removed
//     by a sweep, which the engine does write down.
//   - A key is deleted with a marker that follows the revision. The marker is
//     removed a minute later, when the removal of what was before it is on the
//     disk for sure; List keeps that away while it reads page by page, and so
//     sees the state at its end.
//   - Lock order: log.send, log.mu. Others are taken alone.
package natsstore
