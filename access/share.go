package access

import (
	"slices"
	"time"
)

const (
	// headroom is how much of a rate those who want less than their part may have beyond what they want, all together: the sum of
	// all parts is at most 1 and this.
	headroom = 0.05
	// span is how long use is looked at, twice: the last whole span, and the one that runs.
	span = 500 * time.Millisecond
	// silent is how long nothing is used until an instance has no part in a rate any more.
	silent = 3 * time.Second
	// spare is how much of the time a bucket may have something left, while its users still count as wanting all of the rate.
	spare = 0.05
	// much is what clients do not want in one span and nothing in the next, unless they have gone.
	much = 0.1
)

// shares divides a rate among instances by what each wants of it, from 0 to 1, max-min fair: an instance that wants less than the
// level to which the others are filled gets what it wants and some of the rest, or of the headroom.
func shares(wants []float64) []float64 {
	level, used := fill(wants)
	less := 0
	for _, want := range wants {
		if want < level {
			less++
		}
	}
	more := max(headroom, 1-used) / float64(max(less, 1))
	parts := make([]float64, len(wants))
	for i, want := range wants {
		if parts[i] = level; want < level {
			parts[i] = min(want+more, 1)
		}
	}
	return parts
}

// fill returns the level up to which a rate of 1 fills what instances want, and how much of the rate that is.
func fill(wants []float64) (level, used float64) {
	left := 1.0
	for i, want := range slices.Sorted(slices.Values(wants)) {
		if level = left / float64(len(wants)-i); want >= level {
			return level, 1
		}
		left -= want
	}
	return 1, 1 - left
}

// use is what an instance did with a rate in a span of time.
type use struct {
	from time.Time
	// wanted is what was used and what was refused, in bytes or requests; free for how many seconds there was something left to use.
	wanted, free float64
	// held reports whether somebody was made to wait, or was refused, and woke whether the others were to know at once.
	held, woke bool
}

// want returns how much of its whole rate an instance wants, from 0 to 1, by what it did in the span and the one before.
func (b *bucket) want(now time.Time) float64 {
	b.settle(b.rate, now)
	last, before := b.use, b.before
	whole := now.Sub(last.from) >= span*9/10 // timers may be early
	if whole {
		b.before, b.use = last, use{from: now}
	}
	seconds := max(now.Sub(last.from)+last.from.Sub(before.from), span).Seconds()
	wants := min((last.wanted+before.wanted)/seconds/b.rate, 1)
	owes := b.debt > b.pace()*answering.Seconds()
	switch {
	case (last.held || before.held || owes) && last.free+before.free < spare*seconds:
		return 1
	case whole && last.wanted == 0 && !owes && wants > much: // its clients have gone
		return 0
	}
	return wants
}

// begin makes an instance that used nothing of a rate begin with a part of it.
func (b *bucket) begin(part float64, now time.Time) {
	b.active, b.told = true, 0
	b.before, b.use = use{from: now}, use{from: now}
	b.divide(part, part, now)
}

// divide gives an instance a part of a rate. Short bursts are bounded by an even part, if that is more.
func (b *bucket) divide(part, even float64, now time.Time) {
	b.settle(b.rate, now)
	b.part, b.least = part, max(part, even)
}

// pace is the rate by which bursts and waits are bounded, in bytes a second.
func (b *bucket) pace() float64 { return b.rate * b.least }
