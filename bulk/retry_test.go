package bulk

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestRetryDelay(t *testing.T) {
	for _, c := range []struct {
		name        string
		base, limit time.Duration
		attempts    int
		jitter      float64
		want        time.Duration
	}{
		{"after the first attempt, without jitter: half of base", time.Second, time.Minute, 1, 0, 500 * time.Millisecond},
		{"half of the jitter is half of the upper half", time.Second, time.Minute, 1, 0.5, 750 * time.Millisecond},
		{"it doubles", time.Second, time.Minute, 2, 0, time.Second},
		{"it doubles again", time.Second, time.Minute, 3, 0, 2 * time.Second},
		{"the sixth is the last that is not capped", time.Second, time.Minute, 6, 0, 16 * time.Second},
		{"it is capped", time.Second, time.Minute, 7, 0, 30 * time.Second},
		{"it stays capped", time.Second, time.Minute, 100, 0, 30 * time.Second},
		{"a cap below base holds", time.Minute, time.Second, 1, 0, 500 * time.Millisecond},
		{"before any attempt it is as after the first", time.Second, time.Minute, 0, 0, 500 * time.Millisecond},
	} {
		if got := RetryDelay(c.base, c.limit, c.attempts, c.jitter); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestRetryDelayIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "base"))
		limit := time.Duration(rapid.Int64Range(int64(base), math.MaxInt64).Draw(t, "limit"))
		attempts := rapid.IntRange(1, 100).Draw(t, "attempts")
		jitter := rapid.Float64Range(0, 1-0x1p-53).Draw(t, "jitter")
		// In floating point nothing overflows.
		whole := min(float64(base)*math.Pow(2, float64(attempts-1)), float64(limit))
		got := RetryDelay(base, limit, attempts, jitter)
		if float64(got) < math.Floor(whole/2)*(1-1e-9)-1 || float64(got) > whole*(1+1e-9)+1 {
			t.Fatalf("%s is not in the upper half of %s", got, time.Duration(whole))
		}
		if got < base/2 || got > limit {
			t.Fatalf("%s is not from half of %s to %s", got, base, limit)
		}
		if later := RetryDelay(base, limit, attempts+1, jitter); later < got {
			t.Fatalf("after %d attempts %s, after one more %s", attempts, got, later)
		}
		if spread := RetryDelay(base, limit, attempts, 0); got < spread {
			t.Fatalf("jitter %g made %s of %s", jitter, got, spread)
		}
	})
}

func TestBoundRetryAfter(t *testing.T) {
	for _, c := range []struct{ asked, want time.Duration }{
		{0, 0}, {-time.Second, 0}, {math.MinInt64, 0}, {time.Second, time.Second},
		{24 * time.Hour, 24 * time.Hour}, {24*time.Hour + 1, 24 * time.Hour}, {math.MaxInt64, 24 * time.Hour},
	} {
		if got := BoundRetryAfter(c.asked); got != c.want {
			t.Errorf("asked for %s: %s, want %s", c.asked, got, c.want)
		}
	}
}
