// Command embedded runs bulk inside a program of its own: no server, no HTTP. It
// opens a store in a temporary directory, registers a handler, runs one action
// of four jobs, and prints what became of it.
//
//	go run ./examples/embedded
//
// The test of this package runs it and compares what it prints.
package main
