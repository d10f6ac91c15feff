package rapidtest

import (
	"flag"
	"os"
	"strconv"
)

// Checks has properties checked so many times, with SLUICE_LONG the latter, until
// undo is called; rapid's default is 100. -rapid.checks overrules both.
func Checks(short, long int) (undo func()) {
	option := flag.Lookup("rapid.checks")
	before := option.Value.String()
	if before != option.DefValue {
		return func() {}
	}
	set := func(to string) {
		if err := option.Value.Set(to); err != nil {
			panic(err) // it is a number
		}
	}
	checks := short
	if os.Getenv("SLUICE_LONG") != "" {
		checks = long
	}
	set(strconv.Itoa(checks))
	return func() { set(before) }
}
