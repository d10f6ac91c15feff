// Package txn coordinates transactions: it decides whether the records and offsets that a
// producer has written to several partitions all count, or none.
//
// # Nouns
//
// A transactional id names a producer over its restarts. Its [Transaction] is a record of
// the metadata: the present producer id and epoch, the state, and what the transaction has
// changed. Each change of a state is one compare-and-set of that record, so any node can
// coordinate any transaction, and two that do so at once cannot disagree. Clients are sent
// to the node that owns the group slot of the id, which also ends what others have left.
//
// # States
//
//	         AddPartitions,      EndTxn                all markers written,
//	         AddOffsets          (the commit point)    all offsets committed
//	Empty ─────────────▶ Ongoing ─────────▶ PrepareCommit ─────────▶ CompleteCommit
//	  ▲                   │  ▲ │                                           │ │
//	  │ InitProducerId:   │  │ └──────────▶ PrepareAbort ──▶ CompleteAbort │ │
//	  │ epoch + 1         │  └─────────────────────────────────────┴───────┘ │
//	  └───────────────────┼────────────────────────────────────────┴─────────┘
//	                      └ timeout, InitProducerId: PrepareAbort with epoch + 1
//
// With EndTxn of version 2 (KIP-890) the change to a Prepare state also raises the epoch, and
// an abort of what has not begun goes to CompleteAbort, with epoch + 1.
//
// # Guarantees
//
//   - The change to a Prepare state decides the outcome. After it, whatever node or process
//     fails, the markers are written and the offsets committed, by some node, until all are;
//     each of these steps may be repeated.
//   - A producer with an epoch that is not the present one changes nothing.
//   - Offsets of a transaction are in its record until the outcome is decided.
package txn
