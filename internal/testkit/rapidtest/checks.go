package rapidtest

import (
	"flag"
	"os"
	"strconv"
)

// current is the last value that Checks set.
var current string

// Checks sets how often properties are checked, to long with SLUICE_LONG and otherwise to short,
// until undo is called; rapid's default is 100. -rapid.checks overrides both. Calls may be nested.
func Checks(short, long int) (undo func()) {
	option := flag.Lookup("rapid.checks")
	before := option.Value.String()
	if before != option.DefValue && before != current {
		return func() {}
	}
	set := func(to string) {
		if err := option.Value.Set(to); err != nil {
			panic(err) // it is a number
		}
		current = to
	}
	checks := short
	if os.Getenv("SLUICE_LONG") != "" {
		checks = long
	}
	set(strconv.Itoa(checks))
	return func() { set(before) }
}

// WithRace returns checks, and with the race detector a fifth of them: each then takes ten times as
// long. It is for packages that "make test-all" also runs without the race detector and with
// SLUICE_LONG.
func WithRace(checks int) int {
	if race {
		return checks / 5
	}
	return checks
}
