// Package move moves the topics of a single node into a cluster: a [Mover] copies
// from a [Source] to a [Target], which may be here, or be reached over HTTP.
//
// # How data flows
//
//	topic.Export ◀── Source ◀── Mover ──▶ Target ──▶ topic.Import
//	     ▲              ▲                    ▲             ▲
//	     └── handler ◀──┴─ HTTP ──  Client ──┴▶ handler ───┘
//
// # The steps, and who decides
//
//  1. Begin: the target plans who keeps what, and counts the attempt.
//  2. Passes: each log is copied from where the target has it to where the source
//     ends, while the source serves. What a pass has to copy becomes less and less.
//  3. Fence: the source takes nothing more. Now the pause runs.
//  4. The last passes, until nothing is new; the snapshots of producers.
//  5. Commit: the target has all logs. This is the decision: before it the fence is
//     taken back when something fails or takes too long, after it never.
//  6. Groups, offsets, ids of producers; then the topics are opened in the target.
//  7. Moved: the source tells its clients where to go. The pause is over.
//
// Whatever is killed at whatever moment, the same command goes on: before step 5 from
// what the target has, after it with the steps that are left. An attempt that was
// overtaken by another can do nothing more: the target refuses its number, and so does
// the source. So the two never both serve. Between 3 and 7 a killed command leaves
// neither serving until it is run again, or with [Mover.Abort] up to step 5.
//
// docs/formats/topic-move.md describes the requests.
package move
