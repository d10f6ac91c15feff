package pebblestore

import (
	"context"
	"encoding/binary"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-project/sluice/room"
)

func openMem(t *testing.T, fs vfs.FS) *Store {
	t.Helper()
	s, err := Open("data", Options{FS: fs, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func closeMem(t *testing.T, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func memTerms(t *testing.T, s *Store) room.Terms {
	t.Helper()
	revision, err := s.PutRoom(context.Background(), "shop", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	return room.Terms{
		Room: "shop", Revision: revision, MaxWaiting: million, TTL: time.Minute, Claim: time.Minute,
		Abandon: time.Hour, Grace: 0, Away: 24 * time.Hour, Events: million,
	}
}

// arriveMany lets visitors enter in one batch; every third has a key.
func arriveMany(t *testing.T, s *Store, terms room.Terms, visitors int) {
	t.Helper()
	h := s.hall("shop")
	s.running.Add(1)
	h.mu.Lock()
	m := &move{s: s, h: h, terms: &terms, now: s.clock.now()}
	for range visitors {
		var arrival room.Arrival
		if n := h.counts.number + 1; n%3 == 0 {
			binary.BigEndian.PutUint64(arrival.Key[:], uint64(n))
		}
		m.arrive(arrival)
	}
	if err := m.commit(); err != nil {
		t.Fatal(err)
	}
}

// keysOf counts the keys of a kind that the room has on disk.
func keysOf(t *testing.T, s *Store, kind byte) (n int) {
	t.Helper()
	from, to := kindRange(s.hall("shop").id, kind)
	if err := scan(s.db, from, to, func(_, _ []byte) (bool, error) { n++; return true, nil }); err != nil {
		t.Fatal(err)
	}
	return n
}

// Pages that nobody is left in become one record, are remembered for KeepGone, and
// then take no memory and no disk; numbers and counts go on, also when the store is
// opened in between.
func TestPagesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		fs := vfs.NewMem()
		s := openMem(t, fs)
		defer func() { closeMem(t, s) }()
		terms := memTerms(t, s)
		reopen := func() {
			t.Helper()
			before, err := s.Status(ctx, "shop")
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = openMem(t, fs)
			after, err := s.Status(ctx, "shop")
			before.Now = after.Now
			if err != nil || after != before {
				t.Fatalf("opened again, status is %+v, %v; want %+v", after, err, before)
			}
		}
		reason := func(number int64) room.Reason {
			t.Helper()
			places, err := s.Ask(ctx, terms, []int64{number}, false)
			if err != nil {
				t.Fatal(err)
			}
			return places[0].Reason
		}
		const visitors = 3*pageSize - 1 // the pages 0, 1 and 2 are full: no number is 0
		arriveMany(t, s, terms, visitors)
		for number := int64(1); number <= visitors; number++ {
			if number == pageSize+5 {
				continue // stays for now
			}
			why := room.Left
			if number%2 == 0 {
				why = room.Ended
			}
			if _, err := s.Leave(ctx, terms, number, why); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			if v, g := keysOf(t, s, kindVisitor), keysOf(t, s, kindGone); v != pageSize || g != 2 {
				t.Errorf("%d visitors and %d closed pages on disk, want those of one page, and 2", v, g)
			}
			if a, b, c := reason(3), reason(pageSize+4), reason(3*pageSize-2); a != room.Left || b != room.Ended || c != room.Ended {
				t.Errorf("they are gone as %s, %s and %s", a, b, c)
			}
			reopen()
		}
		time.Sleep(room.KeepGone)
		expire := func() {
			t.Helper()
			if _, err := s.Expire(ctx, terms); err != nil {
				t.Fatal(err)
			}
		}
		expire()
		if got := reason(3); got != room.Left {
			t.Errorf("gone for KeepGone, and the reason is %s", got)
		}
		time.Sleep(time.Millisecond)
		expire()
		if a, b, c := reason(3), reason(pageSize+4), reason(3*pageSize-2); a != room.Forgotten || b != room.Ended || c != room.Forgotten {
			t.Errorf("after KeepGone they are %s, %s and %s, want the first and the last forgotten", a, b, c)
		}
		if _, err := s.Leave(ctx, terms, pageSize+5, room.Left); err != nil {
			t.Fatal(err)
		}
		reopen()
		time.Sleep(room.KeepGone + time.Second)
		expire()
		reopen()
		h := s.hall("shop")
		if v, g := keysOf(t, s, kindVisitor), keysOf(t, s, kindGone); v+g != 0 || len(h.visitors.pages) != 0 || len(h.attendance.sheets) != 0 {
			t.Errorf("on disk are %d visitors and %d pages, in memory %d pages and %d sheets, want nothing", v, g, len(h.visitors.pages), len(h.attendance.sheets))
		}
		place, err := s.Enter(ctx, terms, room.Arrival{})
		if err != nil || place.Number != visitors+1 || place.Ahead != 0 {
			t.Errorf("the next visitor: %+v, %v; want number %d", place, err, visitors+1)
		}
	})
}

// A move that would call, skip or end more than some thousand leaves the rest to the
// next Expire, which says so; a batch of a tick is called to its end, and once.
func TestLargeMovesAreDoneInSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		s := openMem(t, vfs.NewMem())
		defer closeMem(t, s)
		terms := memTerms(t, s)
		const crowd = 3*maxStep + 100
		expire := func(steps int) {
			t.Helper()
			for i := range steps {
				due, err := s.Expire(ctx, terms)
				if err != nil || due.More != (i < steps-1) {
					t.Fatalf("Expire %d of %d: %+v, %v", i+1, steps, due, err)
				}
				if !due.More && !due.Next.IsZero() && !due.Next.After(due.Now) {
					t.Fatalf("next is %v, and now %v", due.Next, due.Now)
				}
			}
		}
		is := func(waiting, inside int64) {
			t.Helper()
			status, err := s.Status(ctx, "shop")
			if err != nil || status.Waiting != waiting || status.Inside != inside {
				t.Fatalf("%+v, %v; want %d waiting and %d inside", status, err, waiting, inside)
			}
		}
		expire(1)
		arriveMany(t, s, terms, 2*crowd)
		terms.Capacity = crowd
		expire(4)
		is(crowd, crowd)

		if err := s.Clear(ctx, terms); err != nil {
			t.Fatal(err)
		}
		is(crowd-maxStep, maxStep) // all had their slots taken; and as many as a move calls were called
		terms.Capacity, terms.Tick, terms.Calls = million, s.clock.now(), crowd/2
		expire(2)
		is(crowd-maxStep-crowd/2, maxStep+crowd/2)
		expire(1)
		is(crowd-maxStep-crowd/2, maxStep+crowd/2)

		// Those who were called do not come, and all are silent.
		terms.Capacity, terms.Tick = 0, 0
		time.Sleep(2 * time.Minute)
		expire((maxStep+crowd/2)/maxStep + 1)
		is(crowd, 0)
		time.Sleep(2 * time.Hour)
		terms.Capacity = 1
		terms.Grace = 24 * time.Hour
		if _, err := s.Leave(ctx, terms, 2*crowd, room.Left); err != nil { // skips some who are silent
			t.Fatal(err)
		}
		expire(1)
		is(crowd-1, 0)
		terms.Grace = 0
		expire(3)
		is(0, 0)
	})
}
