// Package storetest is the one suite that every room.Store must pass, and
// [Memory], a store in memory that is its model and serves the tests of what is
// above the stores. It is imported by tests only.
//
//   - [Run] runs the conformance cases: one rule of the contract each, in the files
//     named for what they are about.
//   - [RunModel] makes random moves on a store and on a Memory beside it, and compares
//     each answer, the counts and the events exactly.
//   - [RunConcurrent] makes moves from many goroutines at once, and then looks for
//     broken promises in the history that the events tell.
//
// A [Harness] says how a store is opened and how its time passes: in a bubble of
// testing/synctest, or by moving the clock of a server on. Cases leave seconds
// between what must be and what must not be yet, so that on a server, whose time
// cannot be stopped, they do not depend on how fast it is.
//
// SLUICE_LONG=1 makes the model take ten times as many steps, and the goroutines more
// rounds.
package storetest
