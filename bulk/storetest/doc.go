// Package storetest is the one suite that every bulk.Store must pass. It is
// imported by tests only.
//
// [Run] takes a [Factory], which opens, reopens and crashes stores, and runs
//
//   - the conformance cases: each is one rule of the contract, as a short story of the
//     calls of a caller and their required results, in files named for their subject;
//   - the policies: tables of the rules that a store's scripts must repeat, which also test
//     the policies of package bulk;
//   - a concurrent case: many goroutines upload, lease and settle, and every job is counted
//     once;
//   - the model: a state machine of random operations, compared after every step with a
//     small model of maps and slices. Where the contract leaves a choice, the model follows
//     the store's answer and checks that it was allowed.
//
// Every case runs in a bubble of testing/synctest, with a store of its own that
// was opened inside it: the clock stands still until the case moves it, so times
// and windows are exact.
//
// [Finds] tests the suite itself, against a store with a deliberate mistake.
//
// SLUICE_LONG=1 makes the model run up to ten times as long, and a crowd do twice the jobs; and finds a target's rate in
// windows of half a second too.
package storetest
