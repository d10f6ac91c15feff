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

// codeError is an error that ends the program with a code of its own.
type codeError struct {
	error
	code int
}

func (e *codeError) Unwrap() error { return e.error }

// ExitCode is read where the program ends.
func (e *codeError) ExitCode() int { return e.code }

// wrongUsage is an error in what was asked for.
func wrongUsage(format string, args ...any) error {
	return &codeError{fmt.Errorf(format, args...), exitUsage}
}

// flagOf names the flag that fills a field of a spec.
var flagOf = map[string]string{
	"type": "--type", "target": "--url", "target.url": "--url", "class": "--class",
	"aggregate": "--aggregate", "max_attempts": "--max-attempts", "timeout_ms": "--timeout",
	"fail_above": "--fail-above", "id": "--id", "run_at": "--run-at",
}

// flagError says which flag made a field of a spec wrong.
func flagError(wrong *bulk.SpecError) error {
	name, ok := flagOf[wrong.Field]
	if !ok {
		name = wrong.Field
	}
	return wrongUsage("%s: %s", name, wrong.Why)
}
