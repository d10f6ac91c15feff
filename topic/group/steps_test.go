package group_test

import (
	"fmt"
	"testing/synctest"
)

// step is one event of a group.
type step struct {
	Kind  string
	Who   int // the client
	Value int
}

func (s step) String() string { return fmt.Sprintf("%s(%d, %d)", s.Kind, s.Who, s.Value) }

// play executes steps, logs each, and checks its results.
func play(steps []step, log *[]string, do func(step) error, look func() error) error {
	for _, s := range steps {
		*log = append(*log, s.String())
		if err := do(s); err != nil {
			return fmt.Errorf("%v: %w", s, err)
		}
		synctest.Wait()
		if err := look(); err != nil {
			return fmt.Errorf("after %v: %w", s, err)
		}
	}
	return nil
}
