// Package storetest is the one suite that every bulk.Store must pass. It is
// imported by tests only.
//
// [Run] takes a [Factory], which says how to open, reopen and crash a store, and
// runs
//
//   - the conformance cases: one rule of the contract each, told as a short
//     story of what a caller does and must see. They are in the files named for
//     what they are about;
//   - a concurrent case: many goroutines upload, lease and settle, and every job
//     is counted once;
//   - the model: a state machine of random operations, compared after every step
//     with a small model of maps and slices. Where the contract leaves a store
//     freedom, the model follows the store's answer and checks that it was
//     allowed.
//
// Every case runs in a bubble of testing/synctest, with a store of its own that
// was opened inside it: the clock stands still until the case moves it, so times
// and windows are exact.
//
// SLUICE_LONG=1 makes the model run up to ten times as long.
package storetest
