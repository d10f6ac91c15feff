//go:build redis

package redisstore_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/redistest"
	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/redisstore"
	"github.com/sluice-project/sluice/room/storetest"
)

// The server's clock is set, forward or back, or a failover brings another clock. No waiting or
// called visitor is skipped or loses the place, all are let in in order, and never are more inside
// than allowed. A jump forward ends the visits whose time it skips; a jump back prolongs them, and
// claim windows, until the clock is where it was.
func TestTheClockJumps(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	for i, jumps := range [][]time.Duration{
		{time.Second}, {time.Hour}, {30 * 24 * time.Hour}, {-time.Second}, {-time.Hour}, {-30 * 24 * time.Hour},
		{time.Hour, -time.Hour}, {-time.Hour, time.Hour},
	} {
		t.Run(fmt.Sprint(jumps), func(t *testing.T) {
			j := newJumper(t, server, fmt.Sprintf("jump%d:", i))
			for range 8 {
				if _, err := j.store.Enter(t.Context(), j.terms, room.Arrival{}); err != nil {
					t.Fatal(err)
				}
			}
			j.expire()
			j.leave(1)
			for i, by := range jumps {
				j.offset.Add(int64(by))
				if i == 0 { // a visitor leaves before anything else
					j.leave(2)
				}
				j.expire()
				j.look(3)
			}
			for range 6 {
				j.leaveFirst()
				j.expire()
			}
			j.checkHistory()
		})
	}
}

// jumper is a room for two in a store whose clock jumps.
type jumper struct {
	t      *testing.T
	store  *redisstore.Store
	offset atomic.Int64
	terms  room.Terms
}

func newJumper(t *testing.T, server *redistest.Server, prefix string) *jumper {
	t.Helper()
	j := &jumper{t: t}
	j.store = open(t, redisstore.Options{
		URL: server.URL(), Prefix: prefix, ClockOffset: func() time.Duration { return time.Duration(j.offset.Load()) },
	})
	revision, err := j.store.PutRoom(t.Context(), "shop", []byte("{}"), 0)
	if err != nil {
		t.Fatal(err)
	}
	j.terms = room.Terms{
		Room: "shop", Revision: revision, Capacity: 2, MaxWaiting: 100, TTL: 10 * time.Minute, Claim: 5 * time.Minute,
		Abandon: 10 * time.Minute, Grace: 10 * time.Minute, Away: time.Minute, Events: 1_000,
	}
	return j
}

func (j *jumper) expire() {
	j.t.Helper()
	if _, err := j.store.Expire(j.t.Context(), j.terms); err != nil {
		j.t.Fatal(err)
	}
}

// leave lets a visitor leave; its slot goes to the next one.
func (j *jumper) leave(number int64) {
	j.t.Helper()
	before, err := j.store.Status(j.t.Context(), "shop")
	if err != nil {
		j.t.Fatal(err)
	}
	if _, err := j.store.Leave(j.t.Context(), j.terms, room.Bearer{Number: number}, room.Left); err != nil {
		j.t.Fatal(err)
	}
	after, err := j.store.Status(j.t.Context(), "shop")
	if want := before.Admitted + min(1, before.Waiting); err != nil || after.Admitted != want {
		j.t.Errorf("after %d has left %d were called, want %d (%v)", number, after.Admitted, want, err)
	}
}

// look checks that all visitors from a number on are there, in order, and returns their places.
func (j *jumper) look(from int) []room.Place {
	j.t.Helper()
	places, err := everybody(j.t.Context(), j.store, j.terms, 8)
	if err != nil {
		j.t.Fatal(err)
	}
	active, waiting := 0, false
	last := int64(-1)
	for i, p := range places {
		switch {
		case p.State == room.Gone && i+1 >= from:
			j.t.Errorf("visitor %d is gone: %+v", i+1, p)
		case p.State == room.Gone:
		case p.State != room.Waiting && waiting:
			j.t.Errorf("visitor %d is let in, and one before it waits", i+1)
		case p.State != room.Waiting:
			active++
		case p.Ahead <= last:
			j.t.Errorf("visitor %d has %d before it, and one before it %d", i+1, p.Ahead, last)
		default:
			waiting, last = true, p.Ahead
		}
	}
	if active > 2 {
		j.t.Errorf("%d are inside, of at most 2", active)
	}
	return places
}

// leaveFirst lets the first called visitor enter and leave.
func (j *jumper) leaveFirst() {
	j.t.Helper()
	for i, p := range j.look(9) {
		if p.State != room.Called && p.State != room.Inside {
			continue
		}
		number := int64(i) + 1
		if places, err := j.store.Ask(j.t.Context(), j.terms, storetest.Bearers(number), true); err != nil || places[0].State != room.Inside {
			j.t.Errorf("visitor %d comes, and is %+v, %v", number, places, err)
		}
		j.leave(number)
		return
	}
}

// checkHistory checks that all were called once, in order.
func (j *jumper) checkHistory() {
	j.t.Helper()
	events, err := j.store.Events(j.t.Context(), "shop", 0, 0, 1_000)
	if err != nil {
		j.t.Fatal(err)
	}
	next := int64(1)
	for _, e := range events {
		if e.Type == room.VisitorAdmitted {
			if e.Number != next {
				j.t.Errorf("%+v, want visitor %d", e, next)
			}
			next++
		}
	}
	status, err := j.store.Status(j.t.Context(), "shop")
	if err != nil || next != 9 || status.Waiting+status.Inside+status.NoShows+status.Departed != 0 {
		j.t.Errorf("%+v, %v; want that all 8 had their visit", status, err)
	}
}
