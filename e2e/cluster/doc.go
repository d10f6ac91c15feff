// Package cluster tests topic as a cluster of real processes, each in a network namespace of its
// own, which are killed, hung, cut off, delayed and filled up under load. At the end the answers
// that clients got must hold: package history defines this, and package netlab provides the
// network.
//
// The tests need root, for the namespaces, and the build tag cluster; longer ones need the tag long
// too. SLUICE_LONG=1 makes the runs longer, and SLUICE_CHAOS=10m sets the time of TestChaos. With
// -report FILE a run's report is also written there as JSON. With -from REVISION an upgrade begins
// with another earlier version.
package cluster
