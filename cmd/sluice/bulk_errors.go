package main

import (
	"fmt"

	"github.com/sluice-project/sluice/bulk"
)

// Exit codes besides 0 and 1.
const (
	// exitUsage: what was asked for cannot be done as it was asked: a flag or the
	// input is wrong. Nothing ran.
	exitUsage = 2
	// exitInterrupted: Ctrl-C or SIGTERM ended the command early.
	exitInterrupted = 130
)

// interruptedError ends the program as Ctrl-C does.
type interruptedError struct{ error }

func (e *interruptedError) Unwrap() error { return e.error }

// ExitCode is 130.
func (e *interruptedError) ExitCode() int { return exitInterrupted }

// wrongUsage is an error in what was asked for.
func wrongUsage(format string, args ...any) error {
	return &usageError{fmt.Errorf(format, args...)}
}

// flagOf names the flag that fills a field of a spec.
var flagOf = map[string]string{
	"type": "--type", "target": "--url", "target.url": "--url", "class": "--class",
	"aggregate": "--aggregate", "max_attempts": "--max-attempts", "timeout_ms": "--timeout",
	"fail_above": "--fail-above", "id": "--id", "run_at": "--run-at", "events": "--events",
}

// flagError says which flag made a field of a spec wrong.
func flagError(wrong *bulk.SpecError) error {
	name, ok := flagOf[wrong.Field]
	if !ok {
		name = wrong.Field
	}
	return wrongUsage("%s: %s", name, wrong.Why)
}
