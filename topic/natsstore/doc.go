// Package natsstore keeps topic's logs and metadata in NATS JetStream, embedded
// in this process: one node without a listener, or one of a cluster.
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
// # On several nodes
//
// With Options.Cluster, the engines of all nodes are one: each log is a Raft group
// of the nodes that keep it, appends reach its leader from everywhere, and what
// was reported is with a majority. [Store.Cluster] says who leads and who
// keeps what, and moves it. An append to a log without a leader gets
// ErrUncertain, other calls wait for one up to Options.Timeout; only
// a log that the engine's own metadata does not have is ErrNoLog. Reads are answered by the
// nearest replica: one that lags is asked again.
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
//   - Of several nodes one writes the metadata, in terms: docs/formats has the
//     messages, docs/decisions/0033 why. A put that was not answered makes this
//     node's reads wait until a barrier says what came of it.
//   - Followers apply announced entries without reading them: only what is
//     committed is announced.
//   - Cleaning the metadata relies on no removal being durable: the last entry
//     says where what counts begins.
//   - In a cluster the engine answers for a stream by its leader alone: no
//     answer says nothing, and "not found" may come from a node that is behind.
//     So requests are sent again, and the second is confirmed.
//   - An empty placement is none, and one that does not change moves nothing: a
//     tag of a node that cannot be makes the difference.
//   - Interest in a log's subject takes a moment to reach all nodes: OpenLog waits
//     until an append that must be refused is.
//   - Lock order: log.send, log.mu. Others are taken alone. The state of meta is
//     changed under meta.mu by its writer alone, which reads it without.
package natsstore
