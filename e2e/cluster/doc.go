// Package cluster tests topic as a cluster of real processes, each in a network
// namespace of its own, which are killed, hung, cut off, delayed and filled up under
// load. What clients were told meanwhile must hold at the end: package history says
// what that is, and netlab makes the network.
//
// It needs root, for the namespaces. SLUICE_LONG=1 makes its runs longer, and
// SLUICE_CHAOS=10m lets TestChaos go on for that time. With -report FILE a run's
// report is written there as JSON, beside the text that it logs.
package cluster
