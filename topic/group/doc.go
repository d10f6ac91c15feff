// Package group coordinates consumer groups: it divides partitions among the members
// of a group, and stores how far each group has read.
//
// # Nouns
//
// [Groups] holds all groups of one node. Each group belongs to one of 32 slots, by its
// name, and a node coordinates the groups of the slots that it owns. Ownership is a
// record in the metadata: every write of a group names its revision, so that a node
// that has lost a slot can write nothing more. A group has members, a generation, which
// every rebalance raises, and committed offsets.
//
// # How data flows
//
//	kafka ─▶ Groups ─▶ coordinator ─▶ group (no I/O) ─▶ write ─▶ metadata
//	            ▲           join.go, sync.go, rebalance.go          │
//	            └────────── Awaited: answered when durable ◀────────┘
//	metadata, nodes ─▶ follow.go ─▶ claim.go: slots to load, or to give up
//
// Groups have one of two protocols. In the classic one the members assign: join.go, sync.go,
// rebalance.go. In the consumer protocol (KIP-848) the coordinator does, by a policy of
// package assign: consumer.go and the other files of that name. Members of the classic one may be in such a
// group: migrate.go takes them over, and consumer_classic.go serves them.
//
// # Guarantees
//
//   - A commit is acknowledged when it is durable.
//   - Two nodes never both change a group: the store refuses one of them.
//   - No method waits for the store or for other members, unless its comment says so.
package group
