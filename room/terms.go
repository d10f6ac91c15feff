package room

import "time"

// away is the time without a look at a room after which the service counts as
// having been away: several times the longest interval between two.
const away = 3 * time.Second

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
		Away:       away,
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

// nextCall is when visitors may be called next by the schedule alone; zero if that
// is not bound to a time.
func nextCall(r *Room, now time.Time) time.Time {
	switch s := &r.Settings; {
	case now.Before(s.OpensAt):
		return s.OpensAt
	case s.Mode == Park:
		return NextTick(r.Opening(), s.Interval, now)
	}
	return time.Time{}
}
