// Command embedded runs bulk inside a program of its own: no server, no HTTP. It opens a store in a
// temporary directory, registers a handler, runs one action of four jobs, and prints the results.
//
//	go run ./examples/embedded
//
// The test of this package runs it and compares the output.
package main
