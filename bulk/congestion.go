package bulk

import (
	"slices"
	"time"
)

// ThrottleDelay is how long a throttled job waits, by the seed's formula,
//
//	base + floor(non_ready / rate) · 1 s
//
// where nonReady counts the jobs of the same limiter that wait already, and rate
// is what the limiter lets through in a second. So each throttled job gets a
// slot of its own behind the others, instead of coming back with all of them.
// It is at least retryAfter. It has no cap, but the reach of the clock: jobs
// bunched at a cap would only be turned back again.
func ThrottleDelay(base time.Duration, nonReady int64, rate float64, retryAfter time.Duration) time.Duration {
	delay := base
	if rate > 0 {
		delay += time.Duration(min(float64(nonReady)/rate, lastSlot)) * time.Second
	}
	return max(delay, retryAfter)
}

const (
	// lastSlot is in seconds, a hundred years: added to the present, what is
	// beyond could not be told in nanoseconds.
	lastSlot = 100 * 365 * 24 * 3600
	// seenWindows is how many windows the rate is read from.
	seenWindows = 5
	// maxQuiet bounds how many windows without a throttle pass before more is
	// tried than was seen.
	maxQuiet = 16
	// maxProbe bounds the doublings of a probe.
	maxProbe = 20
)

// Congestion learns what a target lets through, of all tenants together or of one
// of them, where no rate is configured: what succeeds in a window is a rate that
// it bears, and once it throttles no more than that is asked of it. The zero value
// has seen nothing, and limits nothing. Window indexes never fall.
type Congestion struct {
	window    int64
	succeeded int64
	any       bool
	// known says that a throttle was ever seen; quietSince is the window after
	// the last one, and quiet how many windows later the next probe begins.
	known      bool
	quietSince int64
	quiet      int64
	// probed says that the present window was throttled in a probe.
	probed bool
	// seen holds what succeeded in the last windows with attempts that have ended.
	seen  [seenWindows]int64
	count int
}

// Observe adds outcomes of the window of that index.
func (c *Congestion) Observe(window, succeeded, throttled int64) {
	if window > c.window {
		c.close()
		c.window, c.succeeded, c.any, c.probed = window, 0, false, false
	}
	c.succeeded += succeeded
	c.any = c.any || succeeded+throttled > 0
	if throttled > 0 {
		c.probed = c.probed || c.probe(window) > 0
		c.known, c.quietSince = true, window+1
	}
}

// close ends a window. A probe that was throttled and brought no more than was
// seen before makes the time to the next one longer, one that did makes it short:
// a rate that stands is seldom tested, one that rises is soon followed.
func (c *Congestion) close() {
	more := c.succeeded > c.best()
	switch {
	case c.probed && more:
		c.quiet = 0
	case c.probed:
		c.quiet = min(2*c.quiet+1, maxQuiet)
	case c.known && more:
		// The next window doubles what this one has shown, not what was doubled.
		c.quietSince = max(c.quietSince, c.window-c.quiet)
	}
	if c.any {
		c.seen[c.count%seenWindows] = c.succeeded
		c.count++
	}
}

// best is the most that succeeded in one of the last windows that have ended.
func (c *Congestion) best() int64 {
	return slices.Max(c.seen[:])
}

// probe is how often what was seen is doubled in a window.
func (c *Congestion) probe(window int64) int64 {
	if !c.known {
		return 0
	}
	return max(0, window-c.quietSince-c.quiet)
}

// PerWindow is the rate seen: the most that succeeded in one of the last windows,
// or in the present one; at least 1. The most, because a window of ours lies
// across two of the target's: what one of them shows too low would take long to
// find, what it shows too high is corrected by the next throttles.
func (c *Congestion) PerWindow() float64 {
	return float64(max(1, c.succeeded, c.best()))
}

// Known tells whether a throttle was ever seen.
func (c *Congestion) Known() bool { return c.known }

// Saturated tells whether a target's own limit was reached in a window, which
// all tenants share, rather than limits that it has for each of them: whether
// most of the tenants that called it were throttled.
func Saturated(tenants, throttled int) bool { return 2*throttled > tenants }

// Allowance is how many attempts may be started in the window of that index:
// what was seen to pass, doubled with each window of a probe, so that a target
// that can take more is soon given more. NoLimit where nothing was ever
// throttled, or the doubling has run its course.
func (c *Congestion) Allowance(window int64) int64 {
	probe, seen := c.probe(window), int64(c.PerWindow())
	if !c.known || probe > maxProbe || seen > NoLimit>>probe {
		return NoLimit
	}
	return seen << probe
}
