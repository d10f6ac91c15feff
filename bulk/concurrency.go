package bulk

import (
	"math"
	"time"
)

// concurrencyFinder finds how many attempts a target can take at a time, from their durations
// and failures, as Netflix's Gradient2 does (concurrency-limits, 2018): while attempts take no
// more than twice the time they take without a queue, the limit increases by its root, and
// else it decreases in proportion. Before the first decrease it doubles. A limit that was not
// needed stays, and none is far above what is held on average (Little's law): attempts
// that start together in a window need not all be in flight together.
type concurrencyFinder struct {
	limit  float64
	slowed bool // the limit was decreased before
	// least is the duration without a queue, in seconds: the least that was seen, which
	// drifts to what is seen now.
	least float64
	// since is when the present interval began; passed, failed and took are its attempts,
	// and held the most that were held at a time.
	since          time.Time
	passed, failed int64
	took           time.Duration
	held           int64
	// average is how many were held over about averageTime, until seen; then it was last.
	average float64
	seen    time.Time
	last    int64
}

const (
	// leastDrift is the part of the difference to the present duration by which least
	// drifts in an interval.
	leastDrift = 0.01
	// noQueue is a duration, in seconds, up to which no queue is assumed: short durations
	// vary with the scheduler.
	noQueue = 0.02
	// failing is the share of failures above which the limit decreases, and failingStep by
	// how much.
	failing     = 0.1
	failingStep = 0.8
	// averageTime is about as long as a window; headroom is the limit in times of what is
	// held on average.
	averageTime = time.Second
	headroom    = 4
)

// find returns the limit, given how many are held now.
func (f *concurrencyFinder) find(now time.Time, held int64) int64 {
	part := 1 - math.Exp(-now.Sub(f.seen).Seconds()/averageTime.Seconds())
	f.average += part * (float64(f.last) - f.average)
	f.seen, f.last, f.held = now, held, max(f.held, held)
	if now.Sub(f.since) >= loadInterval && f.passed+f.failed > 0 {
		f.adjust()
		f.since, f.passed, f.failed, f.took, f.held = now, 0, 0, 0, held
	}
	return int64(f.limit)
}

func (f *concurrencyFinder) adjust() {
	most := min(mostLoad, max(firstLoad, headroom*f.average))
	step, least := 1.0, float64(firstLoad)
	if f.passed > 0 {
		present := f.took.Seconds() / float64(f.passed)
		if f.least == 0 || present < f.least {
			f.least = present
		}
		f.least += (present - f.least) * leastDrift
		step = min(1, max(0.5, 2*max(f.least, noQueue/2)/present))
	}
	if float64(f.failed) > failing*float64(f.passed+f.failed) {
		step, least = min(step, failingStep), leastLoad
	}
	switch {
	case step < 1:
		f.slowed = true
		f.limit = max(min(least, f.limit), f.limit*step)
	case float64(f.held) < f.limit/2: // it was not needed
	case f.slowed:
		f.limit += math.Sqrt(f.limit)
	default:
		f.limit *= 2
	}
	f.limit = min(f.limit, most)
}
