package engine_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
	"github.com/sluice-project/sluice/room/storetest"
)

// Publishing fails two times of three, in the middle of a batch. All events arrive nevertheless, in
// order, including those from before a restart.
func TestEventsArriveThoughPublishingFails(t *testing.T) {
	book := &recorder{fail: func(call int) bool { return call%3 > 0 }}
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, storetest.NewMemory(), engine.WithPublisher(book))
		r.put("shop", teller(1))
		a := r.enter("shop")
		for range 2500 {
			r.enter("shop")
		}
		r = r.restarted(engine.WithPublisher(book))
		if err := r.Leave(ctx, "shop", a.Ticket, nowhere); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Minute)
		r.stop()
	})
	words := map[room.EventType]int{}
	for _, n := range book.arrived(t) {
		words[n.Type]++
		if n.Room != "shop" || n.Generation == "" {
			t.Fatalf("notice %+v", n)
		}
	}
	// Some are called after the first left, and are no-shows; then all are skipped.
	if words[room.VisitorEntered] != 2501 || words[room.VisitorLeft] != 1 || words[room.VisitorAbandoned] != 2500 || words[room.VisitorAdmitted] != words[room.VisitorNoShow]+1 {
		t.Errorf("events %v", words)
	}
}

// A publisher that panics counts as failed.
func TestAPublisherMayPanic(t *testing.T) {
	book := new(recorder)
	panics := publisherFunc(func(ctx context.Context, notices []room.Notice) error {
		if book.count() == 0 {
			_ = book.Publish(ctx, notices[:0])
			if book.calls < 3 {
				panic("oh")
			}
		}
		return book.Publish(ctx, notices)
	})
	inVirtualTime(t, func(t *testing.T, r *rig) {
		r.put("shop", teller(1))
		r.enter("shop")
		time.Sleep(10 * time.Second)
		if got := len(book.arrived(t)); got != 2 {
			t.Errorf("%d events arrived, want 2", got)
		}
		if !strings.Contains(r.log.String(), "the publisher panicked") {
			t.Error("the panic was not logged")
		}
	}, engine.WithPublisher(panics))
}

type publisherFunc func(context.Context, []room.Notice) error

func (f publisherFunc) Publish(ctx context.Context, notices []room.Notice) error {
	return f(ctx, notices)
}

// Of several instances that use a room, one publishes its events. When it is stopped another takes
// over at once; when it crashes, after some seconds. No event comes twice.
func TestOneInstancePublishes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewMemory()
		books := [3]recorder{}
		var rigs [3]*rig
		for i := range rigs {
			rigs[i] = newRig(t, store, engine.WithPublisher(&books[i]))
		}
		rigs[0].put("shop", teller(100))
		time.Sleep(time.Second)
		enter := func(rigs ...*rig) {
			for range 10 {
				for _, r := range rigs {
					r.enter("shop")
				}
				time.Sleep(200 * time.Millisecond)
			}
			time.Sleep(4 * time.Second)
		}
		counts := func() [3]int { return [3]int{books[0].count(), books[1].count(), books[2].count()} }
		enter(rigs[1])
		enter(rigs[1], rigs[2])
		if got, want := counts(), [3]int{0, 60, 0}; got != want {
			t.Errorf("published %v, want %v", got, want)
		}
		rigs[1].stop()
		enter(rigs[2])
		first := counts()
		// The first instance may be the one that sweeps, and so use the room too.
		if first != [3]int{0, 60, 20} && first != [3]int{20, 60, 0} {
			t.Errorf("published %v, want 20 more by one of the others", first)
		}
		// Another instance owns publishing, and does not publish.
		if ok, err := store.Own(ctx, "publisher of shop", "a ghost", 10*time.Second); ok || err != nil {
			t.Errorf("the ownership is free: %v, %v", ok, err)
		}
		rigs[0].stop()
		rigs[2].stop()
		if ok, err := store.Own(ctx, "publisher of shop", "a ghost", 10*time.Second); !ok || err != nil {
			t.Errorf("the ownership was not given back: %v, %v", ok, err)
		}
		late := newRig(t, store, engine.WithPublisher(&books[0]))
		late.enter("shop")
		time.Sleep(9 * time.Second)
		if got := counts(); got != first {
			t.Errorf("published %v while somebody else was the owner, want %v", got, first)
		}
		time.Sleep(5 * time.Second)
		if got := books[0].count() - first[0]; got != 2 {
			t.Errorf("published %d more, want 2: the ownership has ended", got)
		}
		late.stop()
	})
}

// Events of an instance without a publisher are published by another on the store: while both run,
// and those of a time in which only the first did. They are kept for a day after that.
func TestOthersPublishTheEventsOfAGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, book := storetest.NewMemory(), new(recorder)
		server := newRig(t, store, engine.WithPublisher(book))
		server.put("shop", teller(100_000))
		gate := newRig(t, store)
		enter := func() {
			for range 10 {
				gate.enter("shop")
				time.Sleep(time.Second)
			}
		}
		// Each visitor enters, is admitted, and expires before the server has swept.
		check := func(when string, want int) {
			t.Helper()
			time.Sleep(5 * time.Minute)
			if got := len(book.arrived(t)); got != want {
				t.Errorf("%s: %d events arrived, want %d", when, got, want)
			}
		}
		enter()
		check("with both", 30)
		server.stop()
		enter()
		gate.stop()
		gate = newRig(t, store)
		enter()
		server = newRig(t, store, engine.WithPublisher(book))
		check("after only gates ran", 90)
		server.stop()
		time.Sleep(25 * time.Hour)
		before, err := store.Status(ctx, "shop")
		if err != nil {
			t.Fatal(err)
		}
		enter()
		after, err := store.Status(ctx, "shop")
		if err != nil || after.EventsWaiting != before.EventsWaiting {
			t.Errorf("a day after the last server, %d events wait, and then %d: %v", before.EventsWaiting, after.EventsWaiting, err)
		}
		gate.stop()
	})
}

// Without a publisher no events are stored.
func TestWithoutPublisherNoEventsAreKept(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		r.put("shop", teller(1))
		r.enter("shop")
		if events, err := r.store.Events(ctx, "shop", 0, 0, 10); err != nil || len(events) != 0 {
			t.Errorf("Events() = %v, %v; want none", events, err)
		}
	})
}

// An instance that has lost the ownership of publishing while its publisher failed does not publish
// that batch any more: another instance may have published it, and later events.
func TestWithoutTheLeaseNothingIsPublished(t *testing.T) {
	var fails atomic.Bool
	fails.Store(true)
	book := &recorder{fail: func(int) bool { return fails.Load() }}
	inVirtualTime(t, func(t *testing.T, r *rig) {
		r.put("shop", teller(1))
		for range 4 {
			r.enter("shop")
		}
		time.Sleep(time.Second)
		r.store.Fail(room.ErrUnavailable)
		time.Sleep(11 * time.Second)
		r.store.Fail(nil)
		if ok, err := r.store.Own(ctx, "publisher of shop", "a ghost", time.Hour); !ok || err != nil {
			t.Fatalf("Own() = %v, %v", ok, err)
		}
		before := book.count()
		fails.Store(false)
		time.Sleep(time.Minute)
		if after := book.count(); before == 0 || after != before {
			t.Errorf("%d events were handed over before another had the lease, and %d after", before, after-before)
		}
	}, engine.WithPublisher(book))
}

// While a batch is being published, another instance removes the room and creates one of the same
// name. All events of the new room are published as its own.
func TestEventsOfARoomThatIsMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		book, release := new(recorder), make(chan struct{})
		calls := 0
		here := newRig(t, storetest.NewMemory(), engine.WithPublisher(publisherFunc(func(ctx context.Context, notices []room.Notice) error {
			if calls++; calls == 1 { // events of the room before
				<-release
				return nil
			}
			return book.Publish(ctx, notices)
		})))
		defer here.stop()
		here.put("shop", teller(1))
		for range 10 {
			here.enter("shop")
		}
		time.Sleep(5 * time.Second) // until this instance owns publishing, and has begun
		there := newRig(t, here.store, engine.WithPublisher(book))
		defer there.stop()
		if err := there.DeleteRoom(ctx, "shop"); err != nil {
			t.Fatal(err)
		}
		made := there.put("shop", teller(1))
		for range 20 {
			there.enter("shop")
		}
		close(release)
		time.Sleep(5 * time.Second)
		events := book.arrived(t)
		if len(events) < 21 {
			t.Errorf("%d events arrived, want those of 20 who entered, one of whom was admitted", len(events))
		}
		for _, e := range events {
			if e.Generation != made.Room.Generation {
				t.Fatalf("event %d has the generation %s, want %s", e.Sequence, e.Generation, made.Room.Generation)
			}
		}
	})
}
