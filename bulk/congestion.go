package bulk

import (
	"slices"
	"time"
)

// ThrottleDelay returns the delay of a throttled job:
//
//	base + floor(non_ready / rate) · 1 s
//
// where nonReady counts the waiting jobs of the same limiter, and rate is the number of jobs
// that the limiter allows per second. So each throttled job has its own slot behind the
// others, and they do not return together. The delay is at least retryAfter. It has no
// practical cap: jobs bunched at a cap would be throttled again.
func ThrottleDelay(base time.Duration, nonReady int64, rate float64, retryAfter time.Duration) time.Duration {
	delay := base
	if rate > 0 {
		delay += time.Duration(min(float64(nonReady)/rate, lastSlot)) * time.Second
	}
	return max(delay, retryAfter)
}

const (
	// lastSlot is a hundred years in seconds: later times overflow nanoseconds.
	lastSlot = 100 * 365 * 24 * 3600
	// seenWindows is the number of windows over which the rate is measured.
	seenWindows = 5
	// maxQuiet bounds the windows without a throttle before the next probe.
	maxQuiet = 16
	// maxProbe bounds the doublings of a probe.
	maxProbe = 20
)

// Congestion measures the rate of a target, over all tenants or for one, if no rate is
// configured. The attempts that succeed in a window are a rate that the target sustains. Once
// the target throttles, no more than that are started. The zero value limits nothing. Window
// indexes must not decrease.
type Congestion struct {
	window    int64
	succeeded int64
	any       bool
	// known reports whether there ever was a throttle; quietSince is the window after the
	// last one, and quiet the number of windows from there to the next probe.
	known      bool
	quietSince int64
	quiet      int64
	// probed reports whether the present window was throttled in a probe.
	probed bool
	// seen has the successes of the last windows in which attempts ended.
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

// close ends a window. A probe that was throttled without a higher rate increases the time to
// the next probe, and a probe that found a higher rate resets it: a constant rate is rarely
// probed, and a rising rate is followed quickly.
func (c *Congestion) close() {
	more := c.succeeded > c.best()
	switch {
	case c.probed && more:
		c.quiet = 0
	case c.probed:
		c.quiet = min(2*c.quiet+1, maxQuiet)
	case c.known && more:
		// The next window doubles the measured rate, not the doubled one.
		c.quietSince = max(c.quietSince, c.window-c.quiet)
	}
	if c.any {
		c.seen[c.count%seenWindows] = c.succeeded
		c.count++
	}
}

// best returns the maximum of the successes in the last windows that have ended.
func (c *Congestion) best() int64 {
	return slices.Max(c.seen[:])
}

// probe returns how often the measured rate is doubled in a window.
func (c *Congestion) probe(window int64) int64 {
	if !c.known {
		return 0
	}
	return max(0, window-c.quietSince-c.quiet)
}

// PerWindow returns the measured rate: the maximum of the successes in the last windows and
// the present one, at least 1. It is the maximum because a window here overlaps two of the
// target's. A rate that is too low would take long to correct; a rate that is too high is
// corrected by the next throttles.
func (c *Congestion) PerWindow() float64 {
	return float64(max(1, c.succeeded, c.best()))
}

// Known reports whether there ever was a throttle.
func (c *Congestion) Known() bool { return c.known }

// Saturated reports whether a target reached a limit that all tenants share in a window, and
// not one limit for each tenant: whether most of the tenants that called it were throttled.
func Saturated(tenants, throttled int) bool { return 2*throttled > tenants }

// Allowance returns how many attempts may start in the window with that index: the measured
// rate, doubled with each window of a probe. It is NoLimit if there never was a throttle, or
// after the last doubling.
func (c *Congestion) Allowance(window int64) int64 {
	probe, seen := c.probe(window), int64(c.PerWindow())
	if !c.known || probe > maxProbe || seen > NoLimit>>probe {
		return NoLimit
	}
	return seen << probe
}
