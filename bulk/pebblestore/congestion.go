package pebblestore

import (
	"time"

	"github.com/sluice-project/sluice/bulk"
)

// target is the target of webhooks, or the handlers of one type. Its counter has the
// configured limits; if there is no rate, congestion has the measured one.
type target struct {
	name string
	counter
	congestion bulk.Congestion
	bookings   bookings
	tally      tally
	// seen are the limiters with attempts that ended in the tally's window.
	seen []*limiter
	// sharing counts the limiters with throttled jobs that wait.
	sharing int
	// auto finds the counter's rate; nil unless the target is set to auto.
	auto *auto
	// waiting counts the jobs that waited for it when the backlog was last read.
	waiting int64
}

// limiter is one tenant at one target.
type limiter struct {
	counter
	target     *target
	congestion bulk.Congestion
	bookings   bookings
	tally      tally
}

// tally counts the attempts that ended in one window.
type tally struct{ window, passed, throttled int64 }

// bookings are throttled jobs that wait for their slots.
type bookings struct {
	jobs int64
	// in counts them by the window in which they are due.
	in map[int64]int64
}

func (b *bookings) add(window, n int64) {
	if b.in == nil {
		b.in = map[int64]int64{}
	}
	b.jobs += n
	if b.in[window] += n; b.in[window] == 0 {
		delete(b.in, window)
	}
}

// observe counts attempts that passed or were throttled.
func (l *limiter) observe(window, passed, throttled int64) {
	t := l.target
	t.close(window)
	if l.tally.window != window {
		l.tally = tally{window: window}
		t.seen = append(t.seen, l)
	}
	l.tally.passed += passed
	l.tally.throttled += throttled
	t.tally.passed += passed
	t.tally.throttled += throttled
}

// close ends the tally when another window has begun, and observes it: if most tenants
// were throttled, the target's shared limit was reached; if few were, each has reached a
// limit of its own.
func (t *target) close(window int64) {
	if t.tally.window == window {
		return
	}
	shared := t.saturated()
	for _, l := range t.seen {
		throttled := l.tally.throttled
		if shared {
			throttled = 0
		}
		l.congestion.Observe(l.tally.window, l.tally.passed, throttled)
	}
	throttled := t.tally.throttled
	if !shared {
		throttled = 0
	}
	t.congestion.Observe(t.tally.window, t.tally.passed, throttled)
	clear(t.seen)
	t.seen, t.tally = t.seen[:0], tally{window: window}
}

func (t *target) saturated() bool {
	throttled := 0
	for _, l := range t.seen {
		if l.tally.throttled > 0 {
			throttled++
		}
	}
	return bulk.Saturated(len(t.seen), throttled)
}

// book adds or removes a job that waits for its slot.
func (l *limiter) book(window, n int64) {
	waited := l.bookings.jobs > 0
	l.bookings.add(window, n)
	l.target.bookings.add(window, n)
	if waits := l.bookings.jobs > 0; waits != waited {
		l.target.sharing += map[bool]int{true: 1, false: -1}[waits]
	}
}

// allowance returns how many more jobs of a tenant congestion control admits to a target
// in a window: the measured rate, less the jobs that have started, are ready, or have
// their slot in it. A tenant that was throttled in this window has none.
func (l *limiter) allowance(window int64) int64 {
	if l.target.limit.RequestsPerSecond > 0 {
		return bulk.NoLimit
	}
	l.target.close(window)
	if l.tally.window == window && l.tally.throttled > 0 {
		return 0
	}
	return remains(&l.congestion, &l.counter, &l.bookings, window)
}

// allowance returns how many more jobs of all tenants congestion control admits.
func (t *target) allowance(window int64) int64 {
	if t.limit.RequestsPerSecond > 0 {
		return bulk.NoLimit
	}
	t.close(window)
	if t.tally.throttled > 0 && t.saturated() {
		return 0
	}
	return remains(&t.congestion, &t.counter, &t.bookings, window)
}

func remains(congestion *bulk.Congestion, c *counter, b *bookings, window int64) int64 {
	allowed := congestion.Allowance(window)
	if allowed == bulk.NoLimit {
		return bulk.NoLimit
	}
	c.roll(window)
	return max(0, allowed-c.started-c.ready-b.in[window])
}

// ratePerSecond returns the rate of a limiter: its own measured limit if there is one,
// else its part of the target's configured or measured rate.
func (l *limiter) ratePerSecond(window time.Duration) float64 {
	t := l.target
	if rate := t.limit.Paced(); rate > 0 {
		return rate / float64(max(1, t.sharing))
	}
	if l.congestion.Known() {
		return max(l.congestion.PerWindow(), float64(l.tally.passed)) / window.Seconds()
	}
	part := max(t.congestion.PerWindow(), float64(t.tally.passed)) / float64(max(1, t.sharing))
	return max(part, float64(l.tally.passed), 1) / window.Seconds()
}
