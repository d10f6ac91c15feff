package leaks

import (
	"fmt"
	"os"
	"time"

	"go.uber.org/goleak"
)

// limit is how long goroutines may go on after the tests. It is reached only in a failure; goleak
// itself waits for less than half a second.
const limit = time.Minute

// Main runs the tests of a program, such as a *testing.M, and ends the program. If all tests have
// passed and goroutines other than those of the options are left, it fails and prints them.
func Main(tests interface{ Run() int }, options ...goleak.Option) {
	code := tests.Run()
	if code == 0 {
		if err := none(func() error { return goleak.Find(options...) }); err != nil {
			fmt.Fprintf(os.Stderr, "after the tests, for %v: %v\n", limit, err)
			code = 1
		}
	}
	os.Exit(code)
}

// none repeats find, which waits by itself, until it returns nil, and returns its last error after
// limit.
func none(find func() error) error {
	deadline := time.Now().Add(limit)
	for {
		err := find()
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}
