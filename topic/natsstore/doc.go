// Package natsstore keeps topic's logs and metadata in NATS JetStream, embedded
// in this process: a single node without a listener, or one node of a cluster.
//
// # Nouns
//
// A log is a JetStream stream with one subject, an entry one of its messages:
// the data is the message's body, byte for byte, the mark a header. The metadata
// is one more log, of changes, and a map in memory with their result.
// docs/formats/topic-jetstream.md describes both.
//
// # Guarantees
//
//   - With Options.SyncInterval 0, an append is acknowledged after its fsync.
//     Otherwise it is acknowledged when the operating system has it: it survives the
//     end of the process, and a power cut only once the interval is over.
//   - An append carries the sequence that it follows, and the engine compares it with
//     the log's end as it writes. The fence holds against all other writers.
//   - One process at a time can open a directory, and only in the mode that made it.
//
// # On several nodes
//
// With Options.Cluster, the engines of all nodes form one cluster. Each log is a Raft
// group of the nodes that keep it. Appends reach its leader from every node, and an
// acknowledged entry is on a majority of its replicas. [Store.Cluster] returns who leads
// and keeps each log, and changes it. An append to a log without a leader fails with
// ErrUncertain; other calls wait for a leader up to Options.Timeout. A call returns
// ErrNoLog only if the engine's own metadata does not have the log. The nearest replica
// answers a read; if it lags, the read is repeated.
//
// # Not obvious
//
//   - The engine does not answer an append that failed in the file system, and after
//     a failed write a stream refuses appends until it is opened again. The store
//     therefore checks the free space itself and refuses appends before the disk is
//     full (Options.DiskReserve).
//   - The reply subject of an append has its number, so a late answer is never taken
//     for another append's.
//   - When an append fails, acknowledged appends in flight behind it get ErrUncertain:
//     the caller must not count them as written, although they may be.
//   - A connection's read loop serves direct gets, so reads have connections of their
//     own. Otherwise they would delay appends.
//   - A put is not one message: each would cost an fsync, and another one to remove the
//     value that it replaces. One goroutine decides on the puts that arrived together
//     and writes them as one entry. The fence ensures that it decided on the newest
//     state.
//   - In a cluster one node writes the metadata, in terms. docs/formats describes the
//     messages, docs/decisions/0033 gives the reasons. After a put without an answer,
//     reads on this node wait until a barrier has shown its outcome.
//   - Followers apply announced entries without reading them: only committed entries
//     are announced.
//   - Cleaning the metadata does not need removals to be durable: the last entry has
//     the sequence of the first entry that counts.
//   - In a cluster only a stream's leader answers for it. A missing answer has no
//     meaning, and "not found" may come from a node that is behind. Requests are
//     repeated, and "not found" is confirmed.
//   - The engine ignores an empty placement, and one equal to the current placement.
//     The exclusion of a node that cannot exist makes them differ.
//   - Interest in a log's subject takes a moment to reach all nodes. OpenLog sends an
//     append that must be refused and waits for the refusal.
//   - Lock order: log.send, log.mu. Other locks are taken alone. Only the goroutine of
//     the metadata changes meta.state, under meta.mu, and it reads meta.state without.
package natsstore
