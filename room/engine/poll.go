package engine

import (
	"time"

	"github.com/sluice-project/sluice/room"
)

// How often visitors ask.
const (
	// longestPoll is the longest time between two polls of a visitor, unless very many
	// wait, and shortestPoll the shortest far from the front.
	longestPoll  = 30 * time.Second
	shortestPoll = time.Second
	// maxPolls is about how many polls per second all waiting visitors make together.
	maxPolls = 20_000
)

// NextPoll returns after how long a waiting visitor should ask again. Wait is the result
// of EstimateWait, and spread is random, from 0 to below 1, so that not all ask at once.
//
//   - Near the front, where the visitor may be called before the next poll, it is at most
//     half the claim window, so that a called visitor claims in time.
//   - Otherwise it is a quarter of the wait, from 1 s to 30 s, and at most a third of
//     AbandonAfter; longer if more than 600,000 wait, but never above half of
//     AbandonAfter, which bounds how many can ask.
//   - Before the opening all ask within half a claim window before it, and again within
//     half a claim window after that, or for as long as so many need.
func NextPoll(o Outlook, wait *Wait, spread float64) time.Duration {
	p := o.pollBounds()
	next := p.open(wait, spread)
	if until := o.untilOpening(); until > 0 {
		next = p.beforeOpening(until, spread)
	}
	return max(next.Truncate(time.Millisecond), time.Millisecond)
}

// pollBounds bound the time until a visitor's next poll.
type pollBounds struct {
	near bool
	// window is half the claim window. Busy is how long all visitors take to ask once.
	window, busy time.Duration
	// The time is usually from least to longest, and never above most.
	least, longest, most time.Duration
}

func (o *Outlook) pollBounds() pollBounds {
	settings := &o.Room.Settings
	p := pollBounds{
		window:  settings.ClaimWindow / 2,
		busy:    time.Duration(o.Status.Waiting) * (time.Second / maxPolls),
		longest: min(longestPoll, settings.AbandonAfter/3),
		most:    settings.AbandonAfter / 2,
	}
	p.least = min(shortestPoll, p.window, p.longest)
	if o.Ahead < 0 {
		p.near = p.busy <= p.window
	} else {
		p.near = o.Ahead < o.reach(max(p.longest, min(p.busy, p.most)))
	}
	return p
}

// reach returns how many visitors may be called within a time.
func (o *Outlook) reach(within time.Duration) int64 {
	settings := &o.Room.Settings
	if settings.Mode == room.Park {
		ticks := (within + settings.Interval - 1) / max(settings.Interval, 1)
		return o.Room.Limit() * max(int64(ticks), 1)
	}
	moving := 0.0
	if rate, known := o.Flow.PerSecond(); known {
		moving = (rate + float64(o.Flow.Departed)/o.Flow.Over.Seconds()) * within.Seconds()
	}
	return max(o.Room.Limit(), int64(min(moving, room.MaxVisitors)))
}

// open returns the time for a room that has opened.
func (p pollBounds) open(wait *Wait, spread float64) time.Duration {
	next := p.longest / 3
	if wait != nil {
		next = (wait.Low + wait.High) / 8
	}
	next = max(min(next, p.longest), p.least)
	if p.near {
		next = min(next, p.window)
	} else {
		next = min(max(next, p.busy), p.most)
	}
	return max(next-time.Duration(spread*float64(next)/8), p.least)
}

// beforeOpening returns a time that lets everybody ask shortly before the opening, and
// again after it.
func (p pollBounds) beforeOpening(until time.Duration, spread float64) time.Duration {
	part := func(of time.Duration) time.Duration { return time.Duration(spread * float64(of)) }
	window := p.window
	if !p.near {
		window = max(window, p.busy)
	}
	patience := min(max(p.longest, p.busy), p.most)
	window = min(window, patience)
	var next time.Duration
	switch {
	case until > patience:
		next = patience - part(patience/8)
	case until > window:
		next = until - part(window)
	case p.near:
		next = until + part(window-until)
	default:
		next = min(until+part(window), p.most)
	}
	return max(next, p.least)
}
