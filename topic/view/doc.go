// Package view decides which records a view shows. A view is a topic that shows the
// records of another topic, its source, that match an expression in CEL.
//
//	broker: read of a view ─▶ Scan ─▶ source batches ─▶ Filter ─▶ visible batches
//	                           ▲                                      │
//	                           └── ranges known to be hidden ◀────────┘
//
// [Compile] makes a [Filter] of an expression. A [scan] applies it to the batches of
// one partition, and keeps the offsets of the visible records: consumers skip the gaps.
// One scan reads a bounded number of bytes and offsets, for a bounded time, and
// [HiddenMarker] moves a consumer past hidden records. A record for which the
// expression cannot be evaluated is not shown, and counted.
//
// It is the only package that imports CEL.
package view
