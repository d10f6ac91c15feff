package engine

import (
	"time"

	"github.com/sluice-project/sluice/room"
)

// awayAfter is the time without an Expire after which the service counts as having been
// away: at least twice the longest interval between two, so that a slow machine does not
// count as away, and at most half a claim window where that is longer.
func awayAfter(claim time.Duration) time.Duration {
	return min(max(claim/2, 1500*time.Millisecond), 3*time.Second)
}

// tendTime is how long after its last Expire an instance is a room's tender: longer than a
// tender pauses, and shorter than any Terms.Away, so that a takeover is no absence.
const tendTime = time.Second

// tendLate is how late a tender may be with what is due. Another instance that takes over
// too early does no harm.
const tendLate = 200 * time.Millisecond

// roomTerms are the terms of a room that keeps so many events, from one time until another; zero: without end.
type roomTerms struct {
	of           *Room
	events       int64
	since, until time.Time
	terms        room.Terms
}

// terms returns the terms of a room, from memory if they are the same. They are not to be changed.
func (k *cachedRoom) terms(r *Room, now time.Time, events int64) *room.Terms {
	last := k.lastTerms.Load()
	if last == nil || last.of != r || last.events != events || now.Before(last.since) || !last.until.IsZero() && !now.Before(last.until) {
		last = &roomTerms{of: r, events: events, since: now, terms: terms(r, now, events)}
		if r.Settings.Mode == room.Park {
			last.until = NextTick(r.Opening(), r.Settings.Interval, now)
		}
		k.lastTerms.Store(last)
	}
	return &last.terms
}

// terms returns what an operation on a room may do now, by the store's clock; events is
// how many events may wait to be published.
func terms(r *Room, now time.Time, events int64) room.Terms {
	s := &r.Settings
	closing, _ := r.closing()
	t := room.Terms{
		Room:     r.Name,
		Revision: r.Revision,
		From:     s.OpensAt, Until: closing,
		EnterFrom: s.PrequeueFrom, EnterUntil: closing,
		MaxWaiting: s.MaxWaiting,
		Claim:      s.ClaimWindow,
		Abandon:    s.AbandonAfter,
		Grace:      max(0, s.Grace),
		Away:       awayAfter(s.ClaimWindow),
		Tend:       tendTime,
		Late:       tendLate,
		Events:     events,
	}
	if s.Method == room.Lottery {
		t.DrawUntil = s.OpensAt
	}
	for number, lane := range s.LanesByNumber() {
		t.Shares[number] = lane.Share
	}
	if s.Mode == room.Park {
		parkTerms(&t, r, now)
	} else {
		tellerTerms(&t, r)
	}
	if r.Paused {
		t.Capacity = 0
	}
	return t
}

// drawn reports whether the lottery of a room has been drawn.
func drawn(r *Room, now time.Time) bool { return !now.Before(r.Settings.OpensAt) }

// nextCall returns when the schedule next lets visitors be called, after an Expire with
// those terms at now; zero if calling is not bound to a time.
func nextCall(r *Room, t *room.Terms, now time.Time) time.Time {
	s := &r.Settings
	if now.Before(s.OpensAt) {
		return s.OpensAt
	}
	if s.Mode != room.Park {
		return time.Time{}
	}
	// The terms may be of just before a tick, and the Expire of just after it.
	tick := time.UnixMilli(t.Tick)
	if tick.After(now) {
		return tick
	}
	return tick.Add(s.Interval)
}
