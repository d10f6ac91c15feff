// Package natsstore keeps topic's logs and metadata in NATS JetStream, embedded
// in this process: one node, one replica, no listener.
//
// # Nouns
//
// A log is a JetStream stream with one subject, an entry one of its messages:
// the data is the message's body, byte for byte, the mark a header. The metadata
// is one more log, of changes, and a map in memory of what they come to.
// docs/formats/topic-jetstream.md describes both.
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
//   - Puts are not messages of their own: each would cost an fsync, and one more
//     to remove what it supersedes. One goroutine writes those that arrived
//     together, after it has decided which are made; the fence says whether the
//     state that it decided on was the newest.
//   - Cleaning the metadata relies on no removal being durable: the last entry
//     says where what counts begins.
//   - Lock order: log.send, log.mu. Others are taken alone. The state of meta is
//     changed under meta.mu by its writer alone, which reads it without.
package natsstore
