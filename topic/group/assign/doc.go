// Package assign computes target assignments: which member of a group is to own which
// partition. It has no state and does no I/O.
//
// # Nouns
//
// A [Member] subscribes to topics, and has [Partitions] of its previous target. A
// [Policy] returns the next target of each member. There are two: [Uniform] and [Range].
//
// # Guarantees
//
//   - Each partition of a topic that a member subscribes to has one owner; no other
//     partition has any.
//   - A policy depends on its arguments only.
package assign
