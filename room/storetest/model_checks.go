package storetest

import (
	"github.com/sluice-project/sluice/room"
)

// same checks that two places are the same; a store may remember the reason of a gone place for
// longer.
func (m *machine) same(got, want room.Place) {
	m.t.Helper()
	m.check(got.Now.Equal(want.Now), "place is of %v, want of %v", got.Now, want.Now)
	if got.State == room.Gone && want.Reason == room.Forgotten && 0 < want.Number && want.Number <= m.room.last {
		got.Reason = room.Forgotten
	}
	m.samePlace(got, want)
}

// neverRises checks that a visitor's place has not become worse.
func (m *machine) neverRises(p room.Place) {
	m.t.Helper()
	if p.State != room.Waiting {
		return
	}
	before, known := m.room.ahead[p.Number]
	m.check(!known || p.Ahead <= before, "%d waits behind %d, and did behind %d", p.Number, p.Ahead, before)
	m.room.ahead[p.Number] = p.Ahead
}

// eventsOf returns all events of this step's room.
func (m *machine) eventsOf(s room.Store) []room.Event {
	m.t.Helper()
	events, err := s.Events(ctx, m.room.name, 0, 0, 1_000_000)
	m.must(err)
	return events
}

// checkCalls checks that the calls of this step were allowed.
func (m *machine) checkCalls(r *machineRoom, now room.Status) {
	m.t.Helper()
	called := now.Admitted - r.before.Admitted
	if r != m.room || called <= 0 {
		return
	}
	// A called visitor may have left in the same operation only after the call, so all are still
	// counted.
	m.check(now.Inside <= m.terms.Capacity, "%d are inside after %d were called, and the capacity is %d", now.Inside, called, m.terms.Capacity)
	if m.terms.Tick != 0 {
		m.check(called <= m.terms.Calls && now.Tick == m.terms.Tick && r.before.Tick < now.Tick,
			"%d were called at tick %d, at most %d may be, and the last was %d", called, m.terms.Tick, m.terms.Calls, r.before.Tick)
	}
}

// checkHistory checks that the events of a room, from its beginning on, match its status.
func (m *machine) checkHistory(r *machineRoom) {
	m.t.Helper()
	if r.partial {
		return
	}
	m.room = r
	h := newHistory()
	for _, e := range append(r.history, m.eventsOf(m.store)...) {
		if err := h.add(e); err != nil {
			m.t.Fatal(err)
		}
	}
	status, err := m.store.Status(ctx, r.name)
	m.must(err)
	if err := h.same(status); err != nil {
		m.t.Fatal(err)
	}
}
