package storetest

import (
	"fmt"
	"time"

	"github.com/sluice-project/sluice/room"
)

// history replays all events of a room from the first on.
type history struct {
	counts   room.Status
	last     int64 // sequence number
	time     time.Time
	active   map[int64]bool // visitors that are not gone, by number
	admitted []int64        // each visitor at its first time
	seen     map[int64]bool // admitted visitors
	missed   map[int64]bool
	most     int64 // inside at any moment
}

func newHistory() *history {
	return &history{active: map[int64]bool{}, seen: map[int64]bool{}, missed: map[int64]bool{}}
}

// add returns an error if an event cannot be the next.
func (h *history) add(e room.Event) error {
	if e.Sequence != h.last+1 || e.Time.Before(h.time) {
		return fmt.Errorf("event %+v comes after %d of %v", e, h.last, h.time)
	}
	h.last, h.time = e.Sequence, e.Time
	active, here := h.active[e.Number]
	wrong := fmt.Errorf("event %+v of a visitor who is here: %v, and active: %v", e, here, active)
	switch e.Type {
	case room.VisitorEntered:
		h.counts.Entered++
		if here || e.Inside || e.Number != h.counts.Entered {
			return fmt.Errorf("event %+v is the entry number %d", e, h.counts.Entered)
		}
		h.active[e.Number] = false
		h.counts.Waiting++
	case room.VisitorAdmitted:
		if !here || active || e.Inside {
			return wrong
		}
		h.admit(e.Number)
	case room.VisitorNoShow:
		if !active || !e.Inside {
			return wrong
		}
		h.active[e.Number], h.missed[e.Number] = false, true
		h.counts.NoShows++
		h.counts.Inside--
		h.counts.Waiting++
	default:
		if !here || active != e.Inside {
			return wrong
		}
		h.leave(e, active)
	}
	return nil
}

func (h *history) admit(number int64) {
	h.active[number] = true
	h.counts.Admitted++
	h.counts.Waiting--
	h.counts.Inside++
	h.most = max(h.most, h.counts.Inside)
	if !h.seen[number] {
		h.seen[number] = true
		h.admitted = append(h.admitted, number)
	}
}

func (h *history) leave(e room.Event, active bool) {
	delete(h.active, e.Number)
	if !active {
		h.counts.Waiting--
		h.counts.Departed++
		return
	}
	h.counts.Inside--
	if e.Type == room.VisitorExpired {
		h.counts.Expired++
	}
}

// same returns an error if a room's status differs from its history.
func (h *history) same(s room.Status) error {
	told := s
	told.Called, told.EventsWaiting, told.EventsDropped, told.Tick, told.Now = 0, 0, 0, 0, time.Time{}
	if told != h.counts {
		return fmt.Errorf("status is %+v, and the events tell %+v", s, h.counts)
	}
	return nil
}
