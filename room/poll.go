package room

import "time"

// How often visitors ask.
const (
	// longestPoll is the longest time between two questions of a visitor, if not very
	// many wait, and shortestPoll the shortest far from the front.
	longestPoll  = 30 * time.Second
	shortestPoll = time.Second
	// maxPolls is about how many questions per second all who wait ask together.
	maxPolls = 20_000
)

// NextPoll returns when a visitor who waits should ask again. Wait is what EstimateWait
// said, and spread is random, from 0 to below 1, so that not all come at once.
//
//   - Near the front, where the visitor may be called before the next question, it is
//     at most half the claim window: who is called then comes in time.
//   - Else it is a quarter of the wait, from 1 s to 30 s, and at most a third of
//     AbandonAfter; longer if more than 600,000 wait, but never above half of
//     AbandonAfter, which is the answer to how many can ask.
//   - Before the opening all come back within half a claim window before it, and again
//     within half a claim window after that; or if they are too many for that, within
//     as long as they need.
func NextPoll(o Outlook, wait *Wait, spread float64) time.Duration {
	p := o.pace()
	next := p.open(wait, spread)
	if until := o.untilOpening(); until > 0 {
		next = p.beforeOpening(until, spread)
	}
	return max(next.Truncate(time.Millisecond), time.Millisecond)
}

// pace are the bounds of a visitor's polls.
type pace struct {
	near bool
	// window is half the claim window. Busy is how long all take to ask once.
	window, busy time.Duration
	// A poll is usually from least to longest, and always at most most.
	least, longest, most time.Duration
}

func (o *Outlook) pace() pace {
	settings := &o.Room.Settings
	p := pace{
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

// reach is how many may be called within a time.
func (o *Outlook) reach(within time.Duration) int64 {
	settings := &o.Room.Settings
	if settings.Mode == Park {
		ticks := (within + settings.Interval - 1) / max(settings.Interval, 1)
		return settings.Batch * max(int64(ticks), 1)
	}
	moving := 0.0
	if rate, known := o.Flow.PerSecond(); known {
		moving = (rate + float64(o.Flow.Departed)/o.Flow.Over.Seconds()) * within.Seconds()
	}
	return max(settings.Capacity, int64(min(moving, maxVisitors)))
}

// open is for a room that has opened.
func (p pace) open(wait *Wait, spread float64) time.Duration {
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

// beforeOpening brings everybody back shortly before the opening, and then once
// more after it.
func (p pace) beforeOpening(until time.Duration, spread float64) time.Duration {
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
