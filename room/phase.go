package room

import "time"

// PhaseOf is what a room does at present, from its settings and how many
// visitors it has.
func PhaseOf(r *Room, status *Status, now time.Time) Phase {
	s := &r.Settings
	switch {
	case now.Before(s.PrequeueFrom) || ended(r, now):
		return Closed
	case r.Paused:
		return Paused
	case now.Before(s.OpensAt):
		return Queueing
	case s.Mode == Park && status.Waiting >= s.Batch:
		return Queueing
	case s.Mode == Teller && status.Inside >= s.Capacity:
		return Queueing
	}
	return Open
}
