package bulk

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestThrottleDelay(t *testing.T) {
	for _, c := range []struct {
		name       string
		base       time.Duration
		nonReady   int64
		rate       float64
		retryAfter time.Duration
		want       time.Duration
	}{
		{"the first waits for base", time.Second, 0, 10, 0, time.Second},
		{"so does all that fits into the same second", time.Second, 9, 10, 0, time.Second},
		{"the next has the second after", time.Second, 10, 10, 0, 2 * time.Second},
		{"the seed's load test: the last of 5,000", time.Second, 4999, 10, 0, 500 * time.Second},
		{"a rate below one", time.Second, 3, 0.5, 0, 7 * time.Second},
		{"a fractional rate is floored as a whole", time.Second, 10, 3, 0, 4 * time.Second},
		{"another base", 200 * time.Millisecond, 25, 10, 0, 2200 * time.Millisecond},
		{"Retry-After is respected", time.Second, 0, 10, time.Minute, time.Minute},
		{"Retry-After below the slot changes nothing", time.Second, 100, 10, 5 * time.Second, 11 * time.Second},
		{"there is no cap", time.Second, 1_000_000, 1, 0, 1_000_001 * time.Second},
		{"no rate: base", time.Second, 100, 0, 0, time.Second},
		{"no rate, Retry-After", time.Second, 100, 0, 3 * time.Second, 3 * time.Second},
	} {
		if got := ThrottleDelay(c.base, c.nonReady, c.rate, c.retryAfter); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestThrottleDelayNeverOverflows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nonReady := rapid.Int64Range(0, math.MaxUint32).Draw(t, "non-ready")
		rate := rapid.Float64Range(1e-9, 1e9).Draw(t, "rate")
		retryAfter := time.Duration(rapid.Int64Range(0, int64(maxRetryAfter)).Draw(t, "retry after"))
		got := ThrottleDelay(time.Second, nonReady, rate, retryAfter)
		if got < time.Second || got < retryAfter {
			t.Fatalf("%s is less than base or %s", got, retryAfter)
		}
		if more := ThrottleDelay(time.Second, nonReady+1, rate, retryAfter); more < got {
			t.Fatalf("with one more in front %s, before %s", more, got)
		}
	})
}

// saturate observes one window in which this many attempts succeeded, and more were
// throttled.
func saturate(c *Congestion, window, succeeded int64) {
	c.Observe(window, succeeded, 0)
	c.Observe(window, 0, 1)
}

func TestCongestionLimitsNothingThatWasNeverThrottled(t *testing.T) {
	var c Congestion
	for window := range int64(100) {
		if got := c.Allowance(window); got != NoLimit {
			t.Fatalf("window %d: %d, want no limit", window, got)
		}
		c.Observe(window, 1000, 0)
	}
}

func TestCongestionReadsTheRate(t *testing.T) {
	var c Congestion
	c.Observe(1000, 4, 0)
	saturate(&c, 1000, 3)
	if got := c.Allowance(1000); got != 7 {
		t.Errorf("in the window of the first throttle: %d, want the 7 that passed", got)
	}
	if got := c.Allowance(1001); got != 7 {
		t.Errorf("in the next window: %d, want 7", got)
	}
	saturate(&c, 1001, 5)
	saturate(&c, 1002, 6)
	if got := c.Allowance(1003); got != 7 {
		t.Errorf("the best of three windows: %d, want 7", got)
	}
	for window := range int64(seenWindows) {
		saturate(&c, 1003+window, 5)
	}
	if got := c.Allowance(1003 + seenWindows); got != 6 {
		t.Errorf("the 7 is %d windows ago: %d, want the 6 after it", seenWindows+2, got)
	}
	saturate(&c, 1003+seenWindows, 5)
	if got := c.Allowance(1004 + seenWindows); got != 5 {
		t.Errorf("only windows of 5 are left: %d, want 5", got)
	}
}

func TestCongestionReadsWindowsWithoutThrottlesToo(t *testing.T) {
	var c Congestion
	c.Observe(1000, 9, 0)
	c.Observe(1001, 0, 0) // without attempts there is no evidence
	saturate(&c, 1002, 4)
	if got := c.Allowance(1003); got != 9 {
		t.Errorf("9 passed, then 4 with a throttle: %d, want 9", got)
	}
	if !c.Known() {
		t.Error("a throttle was seen, but is not known")
	}
}

func TestSaturated(t *testing.T) {
	for _, c := range []struct {
		tenants, throttled int
		want               bool
	}{{0, 0, false}, {1, 0, false}, {1, 1, true}, {2, 1, false}, {3, 1, false}, {3, 2, true}, {10, 5, false}, {10, 6, true}} {
		if got := Saturated(c.tenants, c.throttled); got != c.want {
			t.Errorf("%d of %d tenants throttled: %t, want %t", c.throttled, c.tenants, got, c.want)
		}
	}
}

func TestCongestionOfATargetThatIsDownLetsOneTryPass(t *testing.T) {
	var c Congestion
	for window := range int64(20) {
		c.Observe(1000+window, 0, 3)
		if got := c.Allowance(1001 + window); got != 1 {
			t.Fatalf("after %d windows without a success: %d, want 1", window+1, got)
		}
	}
}

func TestCongestionProbes(t *testing.T) {
	var c Congestion
	saturate(&c, 1000, 10)
	allows := func(want map[int64]int64) {
		t.Helper()
		for window, want := range want {
			if got := c.Allowance(window); got != want {
				t.Errorf("window %d: %d, want %d", window, got, want)
			}
		}
	}
	allows(map[int64]int64{1001: 10, 1002: 20, 1003: 40, 1001 + maxProbe: 10 << maxProbe, 1002 + maxProbe: NoLimit, math.MaxInt64: NoLimit})

	c.Observe(1002, 12, 8) // the probe was throttled, but increased the rate: the next one comes soon
	c.Observe(1003, 12, 0)
	allows(map[int64]int64{1003: 12, 1004: 24})

	c.Observe(1004, 12, 12) // this probe found no higher rate: the intervals grow
	c.Observe(1005, 12, 0)
	allows(map[int64]int64{1005: 12, 1006: 12, 1007: 24})
	c.Observe(1007, 12, 12)
	c.Observe(1008, 12, 0)
	allows(map[int64]int64{1008: 12, 1011: 12, 1012: 24})

	probe := int64(1012)
	for range 10 { // at most maxQuiet windows
		c.Observe(probe, 12, 12)
		for c.Observe(probe+1, 12, 0); c.Allowance(probe+1) == 12; probe++ {
		}
		probe++
	}
	c.Observe(probe, 12, 12)
	c.Observe(probe+1, 12, 0)
	allows(map[int64]int64{probe + 1 + maxQuiet: 12, probe + 2 + maxQuiet: 24})
}

func TestAllowanceIsNeverNegative(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c Congestion
		window := rapid.Int64Range(0, 1<<40).Draw(t, "window")
		for range rapid.IntRange(0, 40).Draw(t, "observations") {
			window += rapid.Int64Range(0, 8).Draw(t, "later")
			c.Observe(window, rapid.Int64Range(0, 1<<50).Draw(t, "succeeded"), rapid.Int64Range(0, 1<<50).Draw(t, "throttled"))
			at := window + rapid.Int64Range(0, 40).Draw(t, "asked at")
			got := c.Allowance(at)
			if got < 1 {
				t.Fatalf("window %d allows %d", at, got)
			}
			if seen := c.PerWindow(); got != NoLimit && float64(got) < math.Floor(seen) {
				t.Fatalf("window %d allows %d, but %g were seen to pass", at, got, seen)
			}
			if next := c.Allowance(at + 1); next < got {
				t.Fatalf("window %d allows %d, and the next, as quiet, %d", at, got, next)
			}
		}
	})
}

// fixedWindowTarget answers 429 above a rate per second, counted in its own windows, which
// begin at an offset to ours.
type fixedWindowTarget struct {
	rate, offsetMS int64
	window, served int64
}

func (f *fixedWindowTarget) ask(ms int64) (ok bool) {
	if window := (ms - f.offsetMS) / 1000; window != f.window {
		f.window, f.served = window, 0
	}
	f.served++
	return f.served <= f.rate
}

// congested runs jobs against a target one after another, as the store does; each takes the
// time of an answer. It starts what the allowance permits, less what has started and has a
// slot in the window; due jobs come first. It returns the total time, and how often jobs were
// throttled.
func congested(target fixedWindowTarget, jobs int, answerMS int64) (took time.Duration, throttles int) {
	var c Congestion
	var due []int64 // of the throttled jobs, sorted
	waiting, back, done := jobs, 0, 0
	window, started := int64(0), int64(0)
	begin := int64(1_000_000)
	ms := begin
	for ; done < jobs; ms += answerMS {
		if now := ms / 1000; now != window {
			window, started = now, 0
		}
		for len(due) > 0 && due[0] <= ms {
			due, back = due[1:], back+1
		}
		booked := int64(0)
		for _, at := range due {
			if at/1000 == window {
				booked++
			}
		}
		allowed := c.Allowance(window)
		if waiting+back == 0 || allowed != NoLimit && allowed-started-booked <= 0 {
			continue
		}
		if back > 0 {
			back--
		} else {
			waiting--
		}
		started++
		if target.ask(ms) {
			c.Observe(window, 1, 0)
			done++
			continue
		}
		throttles++
		delay := ThrottleDelay(time.Second, int64(len(due)), c.PerWindow(), 0)
		c.Observe(window, 0, 1)
		due = append(due, ms+delay.Milliseconds())
		slices.Sort(due)
	}
	return time.Duration(ms-begin) * time.Millisecond, throttles
}

// TestCongestionLearnsTheRateOfATarget checks the promise for targets that answer 429 at a
// fixed rate: at most 1.05 throttles for each job, and the target is kept busy.
func TestCongestionLearnsTheRateOfATarget(t *testing.T) {
	for _, offsetMS := range []int64{0, 1, 250, 500, 999} {
		for _, answerMS := range []int64{1, 7, 40} {
			for _, jobs := range []int{100, 1000, 5000} {
				const rate = 10
				took, throttles := congested(fixedWindowTarget{rate: rate, offsetMS: offsetMS}, jobs, answerMS)
				ideal := time.Duration(jobs/rate) * time.Second
				if perJob := float64(throttles) / float64(jobs); perJob > 1.05 {
					t.Errorf("offset %d ms, answers in %d ms, %d jobs: %.2f throttles per job, want at most 1.05", offsetMS, answerMS, jobs, perJob)
				}
				if took > ideal*11/10+5*time.Second {
					t.Errorf("offset %d ms, answers in %d ms, %d jobs: took %s, want about %s", offsetMS, answerMS, jobs, took, ideal)
				}
			}
		}
	}
}
