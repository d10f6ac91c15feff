//go:build !race

package storetest

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/sluice-project/sluice/room"
)

// always changes the terms of all operations.
func always(change func(*room.Terms)) fault {
	return fault{terms: func(_ *Memory, _ string, t *room.Terms) { change(t) }}
}

// in changes the terms of one operation.
func in(move string, change func(*room.Terms)) fault {
	return fault{terms: func(_ *Memory, m string, t *room.Terms) {
		if m == move {
			change(t)
		}
	}}
}

// answers changes the places in answers.
func answers(change func(*room.Place)) fault {
	return fault{place: func(_ string, p *room.Place) { change(p) }}
}

const ever = 1_000 * time.Hour

// mistake is a mistake that the suite must find, in each of several groups of cases.
type mistake struct {
	fault
	groups []string
}

func by(f fault, groups ...string) mistake { return mistake{f, groups} }

func noCalls(t *room.Terms) { t.Capacity = 0 }

// mistakes are mistakes that a store might make.
var mistakes = map[string]mistake{
	"one too many": by(always(func(t *room.Terms) {
		if t.Capacity > 0 {
			t.Capacity++
		}
	}), "call", "enter", "model", "concurrent"),
	"one too few":             by(always(func(t *room.Terms) { t.Capacity-- }), "call", "model", "concurrent"),
	"claims have no end":      by(always(func(t *room.Terms) { t.Claim = ever }), "call", "model", "concurrent"),
	"claims end early":        by(always(func(t *room.Terms) { t.Claim /= 4 }), "ask", "model", "concurrent"),
	"nobody is skipped":       by(always(func(t *room.Terms) { t.Grace, t.Abandon = t.Grace+t.Abandon-ever, ever }), "call", "model"),
	"no grace":                by(always(func(t *room.Terms) { t.Grace = 0 }), "expire", "call", "model"),
	"nobody abandons":         by(always(func(t *room.Terms) { t.Grace = ever }), "expire", "model", "concurrent"),
	"all passes slide":        by(always(func(t *room.Terms) { t.Sliding = true }), "passes", "model"),
	"no pass slides":          by(always(func(t *room.Terms) { t.Sliding = false }), "passes", "model"),
	"renewed once more":       by(always(func(t *room.Terms) { t.Renewals++ }), "passes", "model"),
	"never renewed":           by(always(func(t *room.Terms) { t.Renewals = 0 }), "passes", "model"),
	"passes are short":        by(always(func(t *room.Terms) { t.TTL -= time.Millisecond }), "passes", "ticks", "model"),
	"everybody tends":         by(in("Expire", func(t *room.Terms) { t.Tender = "" }), "rules", "model"),
	"nobody takes over":       by(in("Expire", func(t *room.Terms) { t.Tend = ever }), "rules", "model"),
	"all claim by entering":   by(fault{enter: func(a *room.Arrival) { a.Provisional = false }}, "enter", "model"),
	"ticks are ignored":       by(always(func(t *room.Terms) { t.Tick = 0 }), "ticks", "model", "concurrent"),
	"ticks come again":        by(fault{after: forgetTick}, "ticks", "concurrent"),
	"ticks come early":        by(fault{terms: early}, "ticks", "model"),
	"a batch is one more":     by(always(func(t *room.Terms) { t.Calls++ }), "ticks", "model", "concurrent"),
	"the batch is all":        by(always(func(t *room.Terms) { t.Calls = 1 << 40 }), "ticks", "model", "concurrent"),
	"no lottery":              by(always(func(t *room.Terms) { t.DrawUntil = time.Time{} }), "lottery", "model"),
	"all is lottery":          by(always(func(t *room.Terms) { t.DrawUntil = time.Now().Add(ever) }), "lottery", "enter", "model"),
	"draws lose a bit":        by(fault{enter: func(a *room.Arrival) { a.Draw &^= 1 }}, "lottery"),
	"last come, first served": by(fault{terms: func(_ *Memory, _ string, t *room.Terms) { t.DrawUntil = time.Now().Add(ever) }, enter: lastFirst()}, "enter", "call", "model", "concurrent"),
	"too early is no matter":  by(always(func(t *room.Terms) { t.EnterFrom = time.Time{} }), "enter", "model"),
	"too late is no matter":   by(always(func(t *room.Terms) { t.EnterUntil = time.Time{} }), "enter", "model"),
	"called too early":        by(always(func(t *room.Terms) { t.From = time.Time{} }), "call", "model"),
	"called too late":         by(always(func(t *room.Terms) { t.Until = time.Time{} }), "call", "model"),
	"the line has no end":     by(always(func(t *room.Terms) { t.MaxWaiting = 1 << 40 }), "enter", "model"),
	"the line ends early":     by(always(func(t *room.Terms) { t.MaxWaiting-- }), "enter", "model"),
	"keys are ignored":        by(fault{enter: func(a *room.Arrival) { a.Key = room.Key{} }}, "enter", "model"),
	"keys are cut":            by(fault{enter: func(a *room.Arrival) { clear(a.Key[8:]) }}, "enter"),
	"shares are ignored":      by(always(func(t *room.Terms) { t.Shares = [room.MaxLanes]int64{} }), "lanes", "model"),
	"lanes are ignored":       by(fault{enter: func(a *room.Arrival) { a.Lane = 0 }}, "lanes", "model"),
	"fingerprints are lost":   by(fault{enter: func(a *room.Arrival) { a.Fingerprint = 0 }}, "ask", "model"),
	"never away":              by(always(func(t *room.Terms) { t.Away = ever }), "away", "model"),
	"always away":             by(always(func(t *room.Terms) { t.Away = -time.Second }), "call", "expire", "model"),

	"Enter calls nobody":  by(in("Enter", noCalls), "enter", "model"),
	"Leave calls nobody":  by(in("Leave", noCalls), "leave", "model"),
	"Clear calls nobody":  by(in("Clear", noCalls), "clear", "model"),
	"Expire calls nobody": by(in("Expire", noCalls), "call", "model"),
	"Ask calls":           by(fault{after: expireAfter("Ask")}, "ask", "call", "model"),
	"Ask always claims":   by(fault{ask: func(bool) bool { return true }}, "ask", "call", "model"),
	"Ask never claims":    by(fault{ask: func(bool) bool { return false }}, "ask", "model", "concurrent"),
	"all moves expire":    by(fault{after: expireAfter("Leave")}, "ticks", "model"),

	"Ahead counts itself": by(answers(func(p *room.Place) { p.Ahead++ }), "enter", "ask", "model"),
	"reasons are lost": by(answers(func(p *room.Place) {
		if p.State == room.Gone {
			p.Reason = room.Left
		}
	}), "leave", "clear", "expire", "model"),
	"Since is the claim's": by(answers(func(p *room.Place) {
		if p.State == room.Inside {
			p.Since = p.Now
		}
	}), "ask", "model"),
	"New is lost":      by(answers(func(p *room.Place) { p.New = false }), "enter", "model"),
	"New stays":        by(answers(func(p *room.Place) { p.New = true }), "enter", "model"),
	"Drawn is lost":    by(answers(func(p *room.Place) { p.Drawn = p.Drawn && p.State == room.Waiting }), "lottery", "model"),
	"Next is late":     by(fault{due: func(d *room.Due) { d.Next = d.Next.Add(ever) }}, "expire", "model"),
	"Next is past":     by(fault{due: func(d *room.Due) { d.Next = d.Now }}, "expire", "model"),
	"always more":      by(fault{due: func(d *room.Due) { d.More = true }}, "expire", "model"),
	"NoShows is lost":  by(fault{status: func(s *room.Status) { s.NoShows = 0 }}, "status", "call", "model"),
	"Departed is lost": by(fault{status: func(s *room.Status) { s.Departed = 0 }}, "status", "leave", "model"),
	"Expired is lost":  by(fault{status: func(s *room.Status) { s.Expired = 0 }}, "expire", "passes", "model"),
	"Called is lost":   by(fault{status: func(s *room.Status) { s.Called = 0 }}, "status", "call", "model"),

	"no events":             by(always(func(t *room.Terms) { t.Events = 0 }), "events", "model", "concurrent"),
	"events without bound":  by(always(func(t *room.Terms) { t.Events = min(1, t.Events) << 40 }), "events", "model"),
	"unwanted events":       by(always(func(t *room.Terms) { t.Events = 1 << 40 }), "events", "model"),
	"events twice":          by(fault{unpublished: true}, "events", "model"),
	"events not in order":   by(fault{events: reversed[room.Event]}, "events", "model", "concurrent"),
	"events of others":      by(fault{events: func(e []room.Event) []room.Event { return append(e, e...) }}, "events", "model"),
	"nobody was inside":     by(fault{events: outside}, "events", "model", "concurrent"),
	"rooms not in order":    by(fault{rooms: func(r []room.Record) { slices.Reverse(r) }}, "rooms", "model"),
	"any revision will do":  by(fault{anyRevision: true}, "rooms", "concurrent", "model"),
	"any keys will do":      by(fault{anyKeys: true}, "keys", "concurrent"),
	"all hold the lease":    by(fault{lease: func(h *string, _ *time.Duration) { *h = "" }}, "ownership", "concurrent"),
	"leases do not end":     by(fault{lease: func(_ *string, d *time.Duration) { *d += ever }}, "ownership", "concurrent"),
	"none gives back":       by(fault{lease: func(_ *string, d *time.Duration) { *d = max(*d, time.Second) }}, "ownership"),
	"reopen loses all":      by(fault{reopen: func(m *Memory) { m.rooms = map[string]*memoryRoom{} }}, "reopen", "model", "concurrent"),
	"reopen loses keys":     by(fault{reopen: func(m *Memory) { m.keys = nil }}, "reopen"),
	"reopen is no absence":  by(fault{reopen: here}, "reopen", "model"),
	"reopen loses the gone": by(fault{reopen: forget}, "reopen", "model"),
	"revisions begin again": by(fault{reopen: func(m *Memory) { m.revision = 0 }}, "reopen", "model"),
	"numbers begin again":   by(fault{reopen: renumber}, "reopen", "model"),
}

// expireAfter runs Expire after an operation.
func expireAfter(move string) func(*Memory, string, room.Terms) {
	return func(m *Memory, done string, t room.Terms) {
		if done == move {
			_, _ = m.Expire(ctx, t)
		}
	}
}

// early treats a future tick as due.
func early(m *Memory, _ string, t *room.Terms) {
	if now, err := m.Now(ctx); err == nil {
		t.Tick = min(t.Tick, now.UnixMilli())
	}
}

// lastFirst puts each newcomer at the front of the queue.
func lastFirst() func(*room.Arrival) {
	var entered atomic.Int64
	return func(a *room.Arrival) { a.Draw = room.MaxDraw - entered.Add(1) }
}

func reversed[T any](all []T) []T {
	slices.Reverse(all)
	return all
}

func outside(events []room.Event) []room.Event {
	for i := range events {
		events[i].Inside = false
	}
	return events
}

// here lets a reopened store believe that the service was never away.
func here(m *Memory) {
	for _, r := range m.rooms {
		r.expired, _ = m.Now(ctx)
	}
}

func forget(m *Memory) {
	for _, r := range m.rooms {
		clear(r.gone)
	}
}

func forgetTick(m *Memory, _ string, t room.Terms) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rooms[t.Room].status.Tick = 0
}

func renumber(m *Memory) {
	for _, r := range m.rooms {
		r.last = int64(len(r.visitors))
	}
}
