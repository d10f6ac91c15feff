package pebblestore

import (
	"context"
	"encoding/binary"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-project/sluice/internal/pebblekv"
	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/storetest"
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
	h := s.roomState("shop")
	s.running.Add(1)
	h.mu.Lock()
	m := &operation{s: s, rs: h, terms: terms, now: s.clock.now()}
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

// keysOf counts the room's keys of a kind on disk.
func keysOf(t *testing.T, s *Store, kind byte) (n int) {
	t.Helper()
	from, to := kindRange(s.roomState("shop").id, kind)
	if err := pebblekv.Scan(s.db, from, to, func(_, _ []byte) (bool, error) { n++; return true, nil }); err != nil {
		t.Fatal(err)
	}
	return n
}

// pagesCase is a store with a room, which is reopened repeatedly.
type pagesCase struct {
	t     *testing.T
	fs    vfs.FS
	s     *Store
	terms room.Terms
}

// reopen reopens the store and checks that the counts are unchanged.
func (c *pagesCase) reopen() {
	c.t.Helper()
	ctx := context.Background()
	before, err := c.s.Status(ctx, "shop")
	if err != nil {
		c.t.Fatal(err)
	}
	closeMem(c.t, c.s)
	c.s = openMem(c.t, c.fs)
	after, err := c.s.Status(ctx, "shop")
	before.Now = after.Now
	if err != nil || after != before {
		c.t.Fatalf("opened again, status is %+v, %v; want %+v", after, err, before)
	}
}

// gone checks the reasons why visitors are gone.
func (c *pagesCase) gone(numbers []int64, want ...room.Reason) {
	c.t.Helper()
	places, err := c.s.Ask(context.Background(), c.terms, storetest.Bearers(numbers...), false)
	if err != nil {
		c.t.Fatal(err)
	}
	for i, place := range places {
		if place.State != room.Gone || place.Reason != want[i] {
			c.t.Errorf("%d is %+v, want gone as %s", numbers[i], place, want[i])
		}
	}
}

// stored checks how many visitors and closed pages are on disk.
func (c *pagesCase) stored(visitors, pages int) {
	c.t.Helper()
	if v, g := keysOf(c.t, c.s, kindVisitor), keysOf(c.t, c.s, kindGone); v != visitors || g != pages {
		c.t.Errorf("%d visitors and %d closed pages on disk, want %d and %d", v, g, visitors, pages)
	}
}

func (c *pagesCase) leave(number int64, reason room.Reason) {
	c.t.Helper()
	if _, err := c.s.Leave(context.Background(), c.terms, room.Bearer{Number: number}, reason); err != nil {
		c.t.Fatal(err)
	}
}

// expireAfter lets time pass and calls Expire.
func (c *pagesCase) expireAfter(d time.Duration) {
	c.t.Helper()
	time.Sleep(d)
	if _, err := c.s.Expire(context.Background(), c.terms); err != nil {
		c.t.Fatal(err)
	}
}

// Pages without visitors become one record, are remembered for KeepGone, and then take no memory
// and no disk; numbers and counts continue, also when the store is reopened in between.
func TestPagesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &pagesCase{t: t, fs: vfs.NewMem()}
		c.s = openMem(t, c.fs)
		defer func() { closeMem(t, c.s) }()
		c.terms = memTerms(t, c.s)
		const visitors = 3*pageSize - 1 // the pages 0, 1 and 2 are full: no number is 0
		const stays = pageSize + 5
		arriveMany(t, c.s, c.terms, visitors)
		for number := int64(1); number <= visitors; number++ {
			switch {
			case number == stays:
			case number%2 == 0:
				c.leave(number, room.Ended)
			default:
				c.leave(number, room.Left)
			}
		}
		some := []int64{3, stays - 1, 3*pageSize - 2}
		for range 2 {
			c.stored(pageSize, 2)
			c.gone(some, room.Left, room.Ended, room.Ended)
			c.reopen()
		}
		c.expireAfter(room.KeepGone)
		c.gone(some, room.Left, room.Ended, room.Ended)
		c.expireAfter(time.Millisecond)
		c.gone(some, room.Forgotten, room.Ended, room.Forgotten)
		c.stored(pageSize, 0)
		c.leave(stays, room.Left)
		c.reopen()
		c.expireAfter(room.KeepGone + time.Millisecond)
		if pages := c.s.roomState("shop").visitors.pages; len(pages) != 0 {
			t.Errorf("%d pages are in memory when all are forgotten", len(pages))
		}
		c.reopen()
		c.stored(0, 0)
		if h := c.s.roomState("shop"); len(h.visitors.pages)+h.silence.buckets.Len() != 0 {
			t.Errorf("%d pages and %d buckets are in memory, want none", len(h.visitors.pages), h.silence.buckets.Len())
		}
		place, err := c.s.Enter(context.Background(), c.terms, room.Arrival{})
		if err != nil || place.Number != visitors+1 || place.Ahead != 0 {
			t.Errorf("the next visitor: %+v, %v; want number %d", place, err, visitors+1)
		}
	})
}

// A called visitor does not count as silent; after a no-show it does again, since its own last
// asking, although others in its bucket have asked since.
func TestWhoMissesHasBeenSilentBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		s := openMem(t, vfs.NewMem())
		defer closeMem(t, s)
		terms := memTerms(t, s)
		terms.Abandon, terms.Grace, terms.Claim = time.Minute, time.Minute, 3*time.Minute
		expire := func(capacity int64) {
			t.Helper()
			terms.Capacity = capacity
			if _, err := s.Expire(ctx, terms); err != nil {
				t.Fatal(err)
			}
		}
		expire(0)
		arriveMany(t, s, terms, 2)
		expire(1)
		time.Sleep(110 * time.Second)
		if _, err := s.Ask(ctx, terms, storetest.Bearers(2), false); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		expire(1) // checks the bucket
		time.Sleep(time.Minute)
		expire(0)
		status, err := s.Status(ctx, "shop")
		if err != nil || status.NoShows != 1 || status.Departed != 1 || status.Waiting != 1 {
			t.Errorf("status is %+v, %v; want 1 who missed and departed, and 1 who waits", status, err)
		}
	})
}

// The check for silent visitors passes over others, at most 65,536 at a time: after the service
// came back, all are due for it at once.
func TestLookingIsDoneInSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		s := openMem(t, vfs.NewMem())
		defer closeMem(t, s)
		terms := memTerms(t, s)
		arriveMany(t, s, terms, maxBuckets*bucketSize+pageSize)
		if _, err := s.Expire(ctx, terms); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Minute)
		for first := int64(1); first <= maxBuckets*bucketSize+pageSize; first += room.MaxAsk {
			numbers := make([]int64, room.MaxAsk)
			for i := range numbers {
				numbers[i] = first + int64(i)
			}
			if _, err := s.Ask(ctx, terms, storetest.Bearers(numbers...), false); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(30 * time.Minute)
		for _, more := range []bool{true, false} {
			due, err := s.Expire(ctx, terms)
			if err != nil || due.More != more || (!more && !due.Next.Equal(due.Now.Add(30*time.Minute))) {
				t.Errorf("Expire: %+v, %v; want more: %v", due, err, more)
			}
		}
		if status, err := s.Status(ctx, "shop"); err != nil || status.Departed != 0 {
			t.Errorf("status is %+v, %v; want nobody departed", status, err)
		}
	})
}

// An operation that would call, skip or end more than some thousand leaves the rest to the next
// Expire, and says so; a batch of a tick is called completely, and once.
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
		is(crowd-maxStep, maxStep) // all lost their slots, and maxStep were called
		terms.Capacity, terms.Tick, terms.Calls = million, s.clock.now(), crowd/2
		expire(2)
		is(crowd-maxStep-crowd/2, maxStep+crowd/2)
		expire(1)
		is(crowd-maxStep-crowd/2, maxStep+crowd/2)

		// The called visitors do not come, and all are silent.
		terms.Capacity, terms.Tick = 0, 0
		time.Sleep(2 * time.Minute)
		expire((maxStep+crowd/2)/maxStep + 1)
		is(crowd, 0)
		time.Sleep(2 * time.Hour)
		terms.Capacity = 1
		terms.Grace = 24 * time.Hour
		if _, err := s.Leave(ctx, terms, room.Bearer{Number: 2 * crowd}, room.Left); err != nil { // skips some silent visitors
			t.Fatal(err)
		}
		expire(1)
		is(crowd-1, 0)
		terms.Grace = 0
		expire(3)
		is(0, 0)
	})
}
