//go:build redis

package e2e

import (
	"encoding/json"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/redistest"
	"github.com/sluice-project/sluice/internal/testkit/until"
	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
	"github.com/sluice-project/sluice/room/redisstore"
)

// openHistory opens the store before any server starts, so that it keeps every event: the test owns
// publishing the events of a room, so no server publishes them, and they stay in its outbox.
func openHistory(t *testing.T, redis *redistest.Server, name string) *redisstore.Store {
	t.Helper()
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	store, err := redisstore.Open(t.Context(), redisstore.Options{URL: redis.URL(), Logger: quiet, CallTimeout: time.Minute}) // on a busy machine
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	if held, err := store.Own(t.Context(), "publisher of "+name, "history", time.Hour); err != nil || !held {
		t.Fatalf("the lease: %v, %v", held, err)
	}
	return store
}

// readHistory returns all events of a room. None may be missing.
func readHistory(t *testing.T, store *redisstore.Store, name string) (events []room.Event) {
	t.Helper()
	for {
		var some []room.Event
		until.Succeeds(t, "events are read", func() (err error) {
			some, err = store.Events(t.Context(), name, 0, int64(len(events)), 10_000)
			return err
		})
		if len(some) == 0 {
			return events
		}
		for i, e := range some {
			if want := int64(len(events) + i + 1); e.Sequence != want {
				t.Fatalf("event %d follows event %d", e.Sequence, want-1)
			}
		}
		events = append(events, some...)
	}
}

// readOpening returns when a room was created, by the store's clock.
func readOpening(t *testing.T, store *redisstore.Store, name string) time.Time {
	t.Helper()
	var records []room.Record
	until.Succeeds(t, "rooms are read", func() (err error) {
		records, err = store.Rooms(t.Context())
		return err
	})
	for _, record := range records {
		var r engine.Room
		if err := json.Unmarshal(record.Data, &r); err != nil {
			t.Fatal(err)
		}
		if record.Name == name {
			return r.Opening()
		}
	}
	t.Fatalf("the store has no room %s", name)
	return time.Time{}
}

// capacities are the capacities of a room, each with the times of the request and of its answer: it
// came into force in between.
type capacities []capacityChange

type capacityChange struct {
	sent, answered time.Time
	capacity       int64
}

// at returns the lowest and the highest capacity that may have been in force at a time.
func (c capacities) at(t time.Time) (low, high int64) {
	for i, change := range c {
		begun := i == 0 || !change.sent.Truncate(time.Millisecond).After(t)
		over := i+1 < len(c) && c[i+1].answered.Before(t)
		if !begun || over {
			continue
		}
		if high == 0 {
			low = change.capacity
		}
		low, high = min(low, change.capacity), max(high, change.capacity)
	}
	return low, high
}

// visit is the history of one visitor.
type visit struct {
	guest             *guest // nil if the answer to the attempt to enter was lost
	entered, admitted time.Time
	missed            time.Time
	ever, inside      bool
	gone              room.EventType
}

// ledger replays the history of a room, and compares it with the records of a crowd's guests.
type ledger struct {
	*crowd
	visits map[int64]*visit
	inside int64
	kept   int
	// line has the numbers of guests who kept asking and were not called yet. Guests after the
	// first may have been called.
	line []int64
	// onEvent is called with each event before it changes the ledger.
	onEvent func(e room.Event, v *visit)
	slack   time.Duration
}

// newLedger returns a ledger for a crowd whose guests have all ended. Its slack is how late a
// server may tick: its interval, or until one that was killed is replaced, plus how late this
// process itself ran.
func newLedger(c *crowd) *ledger {
	l := &ledger{crowd: c, visits: map[int64]*visit{}, onEvent: func(room.Event, *visit) {}}
	l.slack = time.Second + 2*time.Duration(c.stall.Load())
	for _, g := range c.all {
		if l.visits[g.id] != nil {
			c.errorf("two guests are visitor %d", g.id)
		}
		l.visits[g.id] = &visit{guest: g}
		if g.kept {
			l.kept++
		}
	}
	return l
}

// replay checks that each event follows from the earlier ones, and calls onEvent.
func (l *ledger) replay(events []room.Event) {
	var last int64
	for _, e := range events {
		v := l.visits[e.Number]
		if e.Type == room.VisitorEntered {
			if v == nil {
				v = new(visit)
				l.visits[e.Number] = v
			}
			if last++; e.Number != last || !v.entered.IsZero() {
				l.errorf("%+v, and %d visitors have entered", e, last-1)
			}
		}
		if v == nil || e.Type != room.VisitorEntered && v.entered.IsZero() || v.gone != "" ||
			(e.Type == room.VisitorAdmitted) == v.inside && e.Type != room.VisitorEntered && (v.inside || e.Type == room.VisitorNoShow) ||
			e.Inside != v.inside {
			l.errorf("%+v does not follow from %+v", e, v)
			return
		}
		l.onEvent(e, v)
		l.apply(e, v)
	}
	l.checkOutcomes(last)
}

func (l *ledger) apply(e room.Event, v *visit) {
	switch e.Type {
	case room.VisitorEntered:
		v.entered = e.Time
		if v.keeps() {
			l.line = append(l.line, e.Number)
		}
	case room.VisitorAdmitted:
		l.inside++
		v.inside, v.ever, v.admitted = true, true, e.Time
	case room.VisitorNoShow:
		l.inside--
		v.inside, v.missed = false, e.Time
	default:
		if v.inside {
			l.inside--
		}
		v.inside, v.gone = false, e.Type
	}
	for len(l.line) > 0 && !l.waits(l.line[0]) {
		l.line = l.line[1:]
	}
}

// waits reports whether a visitor is in the queue and was never called.
func (l *ledger) waits(number int64) bool {
	v := l.visits[number]
	return !v.ever && v.gone == ""
}

// keeps reports whether the visitor is a guest who kept asking until it was let in.
func (v *visit) keeps() bool { return v.guest != nil && v.guest.kept }

// checkTurn checks that nobody is called before an earlier guest who kept asking, and that such
// guests are never no-shows.
func (l *ledger) checkTurn(e room.Event, v *visit) {
	switch e.Type {
	case room.VisitorAdmitted:
		if len(l.line) > 0 && l.line[0] < e.Number {
			l.errorf("visitor %d, who kept asking, was overtaken by %d: %+v", l.line[0], e.Number, e)
		}
	case room.VisitorNoShow:
		took := e.Time.Sub(v.admitted)
		most := l.plan.claim + l.slack
		if away := l.away(v.admitted, e.Time); away > 0 {
			most += away + l.plan.claim
		} else {
			most += l.restarted(l.plan.claim)
		}
		if took < l.plan.claim || took > most {
			l.errorf("visitor %d had its slot for %v without coming, with a claim window of %v and a slack of %v", e.Number, took, l.plan.claim, l.slack)
		}
		if v.keeps() {
			l.errorf("visitor %d kept asking and missed its turn: %+v, %+v", e.Number, e, *v.guest)
		}
	}
}

// restarted returns by how much a time may be longer because it restarts when the service was away.
// A machine so busy that no server ticked for 1.5 s counts as away too.
func (l *ledger) restarted(d time.Duration) time.Duration {
	if l.stall.Load() < int64(300*time.Millisecond) {
		return 0
	}
	return d
}

// checkEnd checks that a place or a pass expires no earlier than the guest's last answer allows,
// and not much later than its last request allows.
func (l *ledger) checkEnd(e room.Event, v *visit) {
	if v.guest == nil {
		return
	}
	sent, tried := v.guest.sent.Truncate(time.Millisecond), v.guest.tried
	var lasts time.Duration
	switch {
	case e.Type == room.VisitorAbandoned && v.keeps():
		l.errorf("visitor %d kept asking and lost its place: %+v", e.Number, *v.guest)
		return
	case e.Type == room.VisitorAbandoned:
		lasts = l.plan.abandon + l.plan.grace
		if v.missed.Add(-lasts).After(tried) {
			tried = v.missed.Add(-lasts)
		}
	case e.Type == room.VisitorExpired && l.plan.slides:
		lasts = l.plan.ttl
	default:
		return
	}
	if early := lasts - e.Time.Sub(sent); early > 0 {
		l.errorf("visitor %d is gone %v too early: %+v, %+v", e.Number, early, e, *v.guest)
	}
	if late := e.Time.Sub(tried) - lasts - l.restarted(lasts); late > l.slack && len(l.outages) == 0 {
		l.errorf("visitor %d is gone %v too late: %+v, %+v", e.Number, late, e, *v.guest)
	}
}

// checkOutcomes checks that every visitor is accounted for.
func (l *ledger) checkOutcomes(entered int64) {
	if unknown := entered - int64(len(l.all)); unknown < 0 || unknown > l.unknown.Load() {
		l.errorf("%d entered, and %d guests know of it, with %d attempts of which nobody knows", entered, len(l.all), l.unknown.Load())
	}
	for number, v := range l.visits {
		g := v.guest
		switch {
		case v.gone == "" || v.inside:
			l.errorf("visitor %d is not gone: %+v", number, v)
		case g == nil:
		case g.gone != "" && g.gone != string(v.gone):
			l.errorf("visitor %d is told %s, and has %s", number, g.gone, v.gone)
		case g.kept && !v.ever || !g.inside.IsZero() && !v.ever:
			l.errorf("visitor %d was never called: %+v", number, *g)
		case g.leaving && v.gone != room.VisitorLeft && v.gone != room.VisitorExpired: // the pass may end first
			l.errorf("visitor %d left, and has %s", number, v.gone)
		}
	}
	l.t.Logf("%d of %d guests kept asking; %d requests had no answer, %d were told that the store is away; the process was late by %v at most",
		l.kept, len(l.all), l.broken.Load(), l.unavailable.Load(), time.Duration(l.stall.Load()))
}
