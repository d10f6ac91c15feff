package bulk

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestPriority(t *testing.T) {
	at := time.UnixMilli
	for _, c := range []struct {
		name              string
		entered           time.Time
		base, total, done int64
		alpha             time.Duration
		want              float64
	}{
		{"at the start there is no boost", at(5000), 0, 100, 0, time.Second, -5000},
		{"the base priority is added", at(5000), 700, 100, 0, time.Second, -4300},
		{"a quarter done", at(5000), 0, 100, 25, 1500 * time.Millisecond, -4500},
		{"half done: alpha", at(5000), 0, 100, 50, time.Second, -4000},
		{"one job left: alpha for each of the others", at(5000), 0, 100, 99, time.Second, -5000 + 99_000},
		{"all done counts as one left", at(5000), 0, 100, 100, time.Second, -5000 + 99_000},
		{"more done than there are counts as one left", at(5000), 0, 100, 120, time.Second, -5000 + 99_000},
		{"a single job never has a boost", at(5000), 0, 1, 0, time.Second, -5000},
		{"no jobs: by the formula, alpha less", at(5000), 0, 0, 0, time.Second, -6000},
		{"a base below zero", at(0), -20, 4, 2, 100 * time.Millisecond, 80},
	} {
		if got := Priority(c.entered, c.base, c.total, c.done, c.alpha); got != c.want {
			t.Errorf("%s: %g, want %g", c.name, got, c.want)
		}
	}
}

func TestPriorityRisesWithAgeBaseAndProgress(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ms := rapid.Int64Range(0, 4_000_000_000_000).Draw(t, "entered_ms")
		base := rapid.Int64Range(-1_000_000, 1_000_000).Draw(t, "base")
		total := rapid.Int64Range(2, 5_000_000).Draw(t, "total")
		done := rapid.Int64Range(0, total-2).Draw(t, "done")
		alpha := time.Duration(rapid.Int64Range(1, 60_000).Draw(t, "alpha_ms")) * time.Millisecond
		now := Priority(time.UnixMilli(ms), base, total, done, alpha)
		if older := Priority(time.UnixMilli(ms-1), base, total, done, alpha); older <= now {
			t.Fatalf("a millisecond older: %g, not above %g", older, now)
		}
		if raised := Priority(time.UnixMilli(ms), base+1, total, done, alpha); raised <= now {
			t.Fatalf("base priority one higher: %g, not above %g", raised, now)
		}
		// With little progress in a long action the boost may be too small for a float64, but
		// it never falls.
		if further := Priority(time.UnixMilli(ms), base, total, done+1, alpha); further < now {
			t.Fatalf("one more job done: %g, below %g", further, now)
		}
		last := Priority(time.UnixMilli(ms), base, total, total-1, alpha)
		if done < total/2 && last <= now {
			t.Fatalf("one job left: %g, not above %g", last, now)
		}
	})
}
