package room

import "time"

// awayAfter is the time without a look at a room after which the service counts as
// having been away: at least twice the longest interval between two, so that a busy
// machine is not taken for one, and else so short that of a claim window during which it
// was away for less, half is left.
func awayAfter(claim time.Duration) time.Duration {
	return min(max(claim/2, 1500*time.Millisecond), 3*time.Second)
}

// terms are what a move of a room may do when it is now by the store's clock;
// events is how many may wait to be published.
func terms(r *Room, now time.Time, events int64) Terms {
	s := &r.Settings
	t := Terms{
		Room:     r.Name,
		Revision: r.Revision,
		From:     s.OpensAt, Until: s.EndsAt,
		EnterFrom: s.PrequeueFrom, EnterUntil: s.EndsAt,
		MaxWaiting: s.MaxWaiting,
		Claim:      s.ClaimWindow,
		Abandon:    s.AbandonAfter,
		Grace:      max(0, s.Grace),
		Away:       awayAfter(s.ClaimWindow),
		Events:     events,
	}
	if s.Method == Lottery {
		t.DrawUntil = s.OpensAt
	}
	if s.Mode == Park {
		parkTerms(&t, r, now)
	} else {
		tellerTerms(&t, s)
	}
	if r.Paused {
		t.Capacity = 0
	}
	return t
}

// ended tells whether the room has closed.
func ended(r *Room, now time.Time) bool {
	return !r.Settings.EndsAt.IsZero() && !now.Before(r.Settings.EndsAt)
}

// drawn tells whether the lottery of a room has been drawn.
func drawn(r *Room, now time.Time) bool { return !now.Before(r.Settings.OpensAt) }

// nextCall is when visitors may be called next by the schedule alone, after a look at a
// room with those terms when it was now; zero if that is not bound to a time.
func nextCall(r *Room, t *Terms, now time.Time) time.Time {
	s := &r.Settings
	if now.Before(s.OpensAt) {
		return s.OpensAt
	}
	if s.Mode != Park {
		return time.Time{}
	}
	// The terms may be of just before a tick, and the look of just after it.
	tick := time.UnixMilli(t.Tick)
	if tick.After(now) {
		return tick
	}
	return tick.Add(s.Interval)
}
