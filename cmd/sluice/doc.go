// Command sluice keeps a service standing when traffic surges: what cannot be
// served now waits in a durable line.
//
// It is the one place that names every part: each command reads its settings,
// chooses stores, wires the parts together and runs them. A command is a file
// named after it, with a constructor that newRoot calls; main turns what a
// command returns into an exit code:
//
//	0  it did what was asked
//	1  it failed
//	2  it was asked wrongly: an unknown command, flag or setting, or a bad value
//
// An error with a method ExitCode() int chooses its own.
package main
