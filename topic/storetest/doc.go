// Package storetest is the suite that every topic.Store must pass. It also has stores in
// memory, a single one and those of a cluster, for the tests of the layers above. Only tests
// import it.
//
// [Run] takes a [Factory], which says how to open, reopen and crash a store, and
// runs
//
//   - the conformance cases: one rule of the contract each, in files by subject;
//   - two models, of a log and of the metadata: state machines of random
//     operations, compared after every step with a small model of slices and
//     maps. Where the contract gives a store a choice, the model checks that the
//     store's answer is allowed, and follows it.
//
// [RunMetaNodes] checks the views that several nodes have of one metadata: what each node may
// rely on, and that histories of operations are linearizable (porcupine). [RunDisturbed]
// checks such histories while nodes are cut off or killed.
//
// Time is real, because not every store can run in a bubble of testing/synctest. No case
// depends on the speed of the store.
//
// SLUICE_LONG=1 makes the models run three times as long.
package storetest
