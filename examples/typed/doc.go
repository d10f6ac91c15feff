// Command typed runs bulk inside a program of its own with typed workers: the
// payload of a job is a Go struct, and so is its result. It charges a few orders
// through a bank, which is a small HTTP server that answers 429 above its rate.
//
//	go run ./examples/typed
//
// The tests of this package show how to test such a program with package bulktest;
// docs/bulk/go.md explains both.
package main
