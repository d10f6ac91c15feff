// Package migrate migrates the topics of a single server into a cluster: a [Migrator]
// copies from a [Source] to a [Target], each of which is in this process or reached over
// HTTP. [Export] reads the single server's store, and [Import] writes the cluster's.
//
// # How data flows
//
//	Export ◀── Source ◀── Migrator ──▶ Target ──▶ Import
//	     ▲              ▲                    ▲             ▲
//	     └── handler ◀──┴─ HTTP ──  Client ──┴▶ handler ───┘
//
// # The steps
//
//  1. Begin: the target plans the replicas, and counts the attempt.
//  2. Passes: each log is copied from the target's end to the source's end, while the
//     source serves. Each pass has less to copy.
//  3. Fence: the source accepts no more writes. The pause begins.
//  4. The last passes, until nothing is new; the snapshots of producers.
//  5. Commit: the target has all logs. This is the decision: before it the fence is
//     removed when something fails or takes too long, after it never.
//  6. Groups, offsets, ids of producers; then the topics are opened in the target.
//  7. Moved: the source redirects its clients. The pause is over.
//
// If any process is killed at any moment, the same command continues: before step 5
// from the target's state, after it with the remaining steps. An attempt that was
// overtaken by another can do nothing more: the target and the source refuse its number.
// So the two never both serve. Between 3 and 7 a killed command leaves neither serving
// until it is run again, or with [Migrator.Abort] up to step 5.
//
// docs/formats/topic-migrate.md describes the requests.
package migrate
