// Package storetest is the one suite that every topic.Store must pass, and a
// store in memory for the tests of what is above the stores. It is imported by
// tests only.
//
// [Run] takes a [Factory], which says how to open, reopen and crash a store, and
// runs
//
//   - the conformance cases: one rule of the contract each, in the files named
//     for what they are about;
//   - two models, of a log and of the metadata: state machines of random
//     operations, compared after every step with a small model of slices and
//     maps. Where the contract leaves a store freedom, the model follows the
//     store's answer and checks that it was allowed.
//
// [RunMetaNodes] checks the views that several nodes have of one metadata, while
// something disturbs them: what each node may rely on, and that there is an order
// of all operations that explains every answer (porcupine).
//
// Time is real: a store may have an engine that no bubble of testing/synctest can
// hold. No case depends on how fast the store is.
//
// SLUICE_LONG=1 makes the models run ten times as long.
package storetest
