package storetest

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/sluice-project/sluice/room"
)

// The times of most cases. They are far apart, so that the few seconds of a slow server make no
// difference.
const (
	claim   = time.Minute
	abandon = 4 * time.Minute
	grace   = 6 * time.Minute
	away    = 2 * time.Minute
	ttl     = 30 * time.Minute
)

var ctx = context.Background()

// kit has the tools of cases: a store with one room, and methods for the callers' actions. The
// methods fail the test when the store returns an error.
type kit struct {
	t      testing.TB
	opened Opened
	store  room.Store
	// terms are the terms of the next operations. Cases change them as policies would.
	terms room.Terms
}

// newKit opens a store, with a room that lets nobody in until a case changes its terms.
func newKit(t testing.TB, harness Harness) *kit {
	t.Helper()
	k := &kit{t: t, opened: harness.Open(t)}
	k.store = k.opened.Store
	if k.opened.Advance == nil {
		k.opened.Advance = sleep
	}
	t.Cleanup(func() {
		if err := k.store.Close(); err != nil && !errors.Is(err, room.ErrClosed) {
			t.Errorf("Close: %v", err)
		}
	})
	k.terms = room.Terms{
		Room: "shop", MaxWaiting: 1_000_000, TTL: ttl, Sliding: true, Claim: claim,
		Abandon: abandon, Grace: grace, Away: away, Events: 1_000_000,
	}
	k.terms.Revision = k.put("shop", 0)
	k.expire()
	return k
}

func (k *kit) must(err error) {
	k.t.Helper()
	if err != nil {
		k.t.Fatalf("the store answered: %v", err)
	}
}

// is checks the identity of an error.
func (k *kit) is(err, want error) {
	k.t.Helper()
	if !errors.Is(err, want) {
		k.t.Fatalf("error is %v, want %v", err, want)
	}
}

// check fails the case unless ok.
func (k *kit) check(ok bool, format string, args ...any) {
	k.t.Helper()
	if !ok {
		k.t.Fatalf(format, args...)
	}
}

// put stores a record of a room, and returns the new revision.
func (k *kit) put(name string, revision uint64) uint64 {
	k.t.Helper()
	revision, err := k.store.PutRoom(ctx, name, []byte(`{"of":"`+name+`"}`), revision)
	k.must(err)
	return revision
}

// reopen ends the store abruptly and opens it again.
func (k *kit) reopen() {
	k.t.Helper()
	k.store = k.opened.Reopen()
}

// advance lets time pass without calls to the store.
func (k *kit) advance(d time.Duration) { k.opened.Advance(d) }

// pass lets time pass while the service is alive, and calls nobody.
func (k *kit) pass(d time.Duration) {
	k.t.Helper()
	capacity := k.terms.Capacity
	k.terms.Capacity = 0
	for d > 0 {
		step := min(d, away/2)
		d -= step
		k.advance(step)
		k.expire()
	}
	k.terms.Capacity = capacity
}

// now returns the store's time.
func (k *kit) now() time.Time {
	k.t.Helper()
	now, err := k.store.Now(ctx)
	k.must(err)
	return now
}

// Bearers returns bearers who name their numbers alone.
func Bearers(numbers ...int64) []room.Bearer {
	bearers := make([]room.Bearer, len(numbers))
	for i, number := range numbers {
		bearers[i].Number = number
	}
	return bearers
}

func keyOf(n int) (key room.Key) {
	binary.BigEndian.PutUint64(key[:], uint64(n)+1)
	return key
}

func (k *kit) arrive(a room.Arrival) room.Place {
	k.t.Helper()
	p, err := k.store.Enter(ctx, k.terms, a)
	k.must(err)
	return p
}

// enter lets visitors enter, and returns the number of the last.
func (k *kit) enter(visitors int) (last int64) {
	k.t.Helper()
	const workers = 50
	if visitors > 10*workers { // concurrently, so that a server pipelines
		k.work(workers, func(worker int) error {
			for range (visitors - 1 + worker) / workers {
				if _, err := k.store.Enter(ctx, k.terms, room.Arrival{}); err != nil {
					return err
				}
			}
			return nil
		})
		visitors = 1
	}
	for range visitors {
		last = k.arrive(room.Arrival{}).Number
	}
	return last
}

// refused checks that nobody can enter.
func (k *kit) refused(want error) {
	k.t.Helper()
	_, err := k.store.Enter(ctx, k.terms, room.Arrival{Key: keyOf(999)})
	k.is(err, want)
}

// look asks without claim.
func (k *kit) look(number int64) room.Place {
	k.t.Helper()
	places, err := k.store.Ask(ctx, k.terms, Bearers(number), false)
	k.must(err)
	k.check(len(places) == 1 && places[0].Number == number, "Ask(%d): %+v", number, places)
	return places[0]
}

// claim asks with claim.
func (k *kit) claim(numbers ...int64) (last room.Place) {
	k.t.Helper()
	places, err := k.store.Ask(ctx, k.terms, Bearers(numbers...), true)
	k.must(err)
	k.check(len(places) == len(numbers), "Ask(%d): %+v", numbers, places)
	return places[len(places)-1]
}

func (k *kit) leave(number int64, reason room.Reason) room.Place {
	k.t.Helper()
	p, err := k.store.Leave(ctx, k.terms, room.Bearer{Number: number}, reason)
	k.must(err)
	return p
}

// expire calls Expire until nothing is left to do.
func (k *kit) expire() room.Due {
	k.t.Helper()
	for range 1_000 {
		due, err := k.store.Expire(ctx, k.terms)
		k.must(err)
		if !due.More {
			k.check(due.Next.IsZero() || due.Next.After(due.Now), "Expire: next is %v, and now %v: want it later, or More", due.Next, due.Now)
			return due
		}
	}
	k.t.Fatal("Expire: there is always more")
	return room.Due{}
}

// expireAt calls Expire with the capacity, which the next operations keep.
func (k *kit) expireAt(capacity int64) {
	k.t.Helper()
	k.terms.Capacity = capacity
	k.expire()
}

func (k *kit) status() room.Status {
	k.t.Helper()
	s, err := k.store.Status(ctx, k.terms.Room)
	k.must(err)
	k.check(s.Waiting == s.Entered+s.NoShows-s.Admitted-s.Departed, "the counts do not add up: %+v", s)
	k.check(s.Called <= s.Inside, "more are called than inside: %+v", s)
	return s
}

// counts checks how many are waiting, inside and called.
func (k *kit) counts(waiting, inside, called int64) {
	k.t.Helper()
	s := k.status()
	k.check(s.Waiting == waiting && s.Inside == inside && s.Called == called,
		"%d wait, %d are inside and %d of them called; want %d, %d and %d", s.Waiting, s.Inside, s.Called, waiting, inside, called)
}

func (k *kit) events() []room.Event {
	k.t.Helper()
	events, err := k.store.Events(ctx, k.terms.Room, 0, 0, 1_000_000)
	k.must(err)
	return events
}

// waits checks that a visitor waits behind the given number.
func (k *kit) waits(p room.Place, ahead int64) {
	k.t.Helper()
	k.check(p.State == room.Waiting && p.Ahead == ahead && p.Until.IsZero() && p.Since.IsZero() && p.Reason == "",
		"place is %+v, want to wait behind %d", p, ahead)
}

func (k *kit) isCalled(p room.Place) {
	k.t.Helper()
	k.check(p.State == room.Called && p.Ahead == 0 && p.Reason == "" && p.Until.Sub(p.Since) == k.terms.Claim,
		"place is %+v, want called, for %v", p, k.terms.Claim)
}

// isInside checks that a visitor is inside for the given time from now on.
func (k *kit) isInside(p room.Place, left time.Duration) {
	k.t.Helper()
	k.check(p.State == room.Inside && p.Ahead == 0 && p.Reason == "" && !p.Since.IsZero() && !p.Since.After(p.Now),
		"place is %+v, want inside", p)
	k.check(p.Until.Sub(p.Now) == left, "inside for %v, want %v: %+v", p.Until.Sub(p.Now), left, p)
}

func (k *kit) isGone(p room.Place, reason room.Reason) {
	k.t.Helper()
	k.check(p.State == room.Gone && p.Reason == reason && p.Ahead == 0 && p.Until.IsZero() && p.Since.IsZero() && !p.Drawn && !p.New,
		"place is %+v, want gone and %s", p, reason)
}

// near checks that two times are equal within the tolerance for a slow server.
func (k *kit) near(got, want time.Time) {
	k.t.Helper()
	d := got.Sub(want)
	k.check(-10*time.Second < d && d < 10*time.Second, "time is %v, want %v: %v apart", got, want, d)
}

// samePlace checks that two places are the same, except for their times.
func (k *kit) samePlace(got, want room.Place) {
	k.t.Helper()
	same := got.Until.Equal(want.Until) && got.Since.Equal(want.Since)
	shown, wanted := got, want
	for _, p := range []*room.Place{&got, &want} {
		p.Until, p.Since, p.Now = k.terms.From, k.terms.From, k.terms.From
	}
	k.check(same && got == want, "place is %+v\nwant     %+v", shown, wanted)
}

// sameEvents checks that events are the same, and in the same order.
func (k *kit) sameEvents(got, want []room.Event) {
	k.t.Helper()
	for i := range min(len(got), len(want)) {
		a, b := got[i], want[i]
		same := a.Time.Equal(b.Time)
		a.Time, b.Time = k.terms.From, k.terms.From
		k.check(same && a == b, "event %d is %+v\nwant        %+v", i, got[i], want[i])
	}
	k.check(len(got) == len(want), "%d events, want %d; beyond: %+v", len(got), len(want), beyond(got, want))
}

// beyond returns the excess of the longer list.
func beyond(a, b []room.Event) []room.Event {
	if len(a) < len(b) {
		a, b = b, a
	}
	return a[len(b):]
}
