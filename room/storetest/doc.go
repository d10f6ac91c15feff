// Package storetest is the one suite that every room.Store must pass, and [Memory], a store
// in memory that is its model and serves tests of the layers above. Only tests import it.
//
//   - [Run] runs the conformance cases: one rule of the contract each. The files have the
//     names of their subjects; rules.go has the tables that also test room/calling.go.
//   - [RunModel] runs random operations on a store and on a Memory, and compares each
//     answer, the counts and the events exactly.
//   - [RunConcurrent] runs operations from many goroutines, and then looks for broken
//     promises in the history of the events.
//
// A [Harness] opens a store and lets its time pass: in a bubble of testing/synctest, or by
// shifting the clock of a server. Cases leave seconds between what must hold and what must
// not hold yet, because the time of a server cannot be stopped.
//
// SLUICE_LONG=1 makes the model take ten times as many steps, and the goroutines more
// rounds.
package storetest
