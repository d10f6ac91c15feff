package until

import (
	"errors"
	"testing"
	"time"
)

// Pauses between attempts.
const firstPause, lastPause = 5 * time.Millisecond, 50 * time.Millisecond

// Limit is how long Succeeds and True repeat. It is long because it is reached only in a failure: a
// busy machine is slow, not wrong.
const Limit = 5 * time.Minute

// Succeeds calls f until it returns nil. The test fails with f's last error after Limit.
func Succeeds(t testing.TB, what string, f func() error) {
	t.Helper()
	deadline := time.Now().Add(Limit)
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: still failing after %v: %v", what, Limit, err)
		}
		select {
		case <-t.Context().Done():
			t.Fatalf("%s: the test ended: %v", what, err)
		case <-time.After(pause):
		}
	}
}

// True calls f until it returns true. The test fails after Limit.
func True(t testing.TB, what string, f func() bool) {
	t.Helper()
	Succeeds(t, what, func() error {
		if !f() {
			return errNotYet
		}
		return nil
	})
}

var errNotYet = errors.New("not yet")
