package engine_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/storetest"
)

// When a room is sold out, whoever waits or comes is told so at every instance, and nobody is called;
// those who are inside stay. Resuming gives those who wait their places back.
func TestSoldOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewMemory()
		r, other := newRig(t, store), newRig(t, store)
		defer r.stop()
		defer other.stop()
		settings := teller(1)
		settings.AbandonAfter, settings.Grace = 2*time.Minute, time.Minute
		r.put("shop", settings)
		inside, first := r.enter("shop"), r.enter("shop")
		second := other.enter("shop")
		for range 2 { // it is idempotent
			if view, err := r.SoldOut(ctx, "shop"); err != nil || view.Phase != room.AllSold {
				t.Fatalf("the room is %s, %v", view.Phase, err)
			}
			time.Sleep(time.Second)
		}
		for _, at := range []*rig{r, other} {
			for _, ticket := range []string{first.Ticket, second.Ticket} {
				_, err := at.Ask(ctx, "shop", ticket, nowhere)
				gone(t, err, room.SoldOut)
			}
			if _, err := at.Enter(ctx, "shop", room.Visit{}); !errors.Is(err, room.ErrSoldOut) || !errors.Is(err, room.ErrEnded) {
				t.Errorf("a newcomer gets %v", err)
			}
		}
		if a := r.ask("shop", inside.Ticket); a.State != room.Inside {
			t.Errorf("who was inside is %v", a.State)
		}
		if err := r.Leave(ctx, "shop", inside.Ticket, nowhere); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if view, err := other.Room(ctx, "shop"); err != nil || view.Status.Inside != 0 || view.Phase != room.AllSold {
			t.Errorf("%d inside, %s, %v", view.Status.Inside, view.Phase, err)
		}
		if view, err := other.Resume(ctx, "shop"); err != nil || view.Phase == room.AllSold {
			t.Fatalf("the room is %s, %v", view.Phase, err)
		}
		if a := r.ask("shop", first.Ticket); a.State != room.Inside {
			t.Errorf("the first in the queue is %v", a.State)
		}
		if a := other.ask("shop", second.Ticket); a.Position != 1 {
			t.Errorf("the second is at %d", a.Position)
		}
	})
}

// Why nobody may enter is known without asking the store.
func TestMayEnter(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		settings := teller(1)
		settings.PrequeueFrom, settings.OpensAt = time.Now().Add(10*time.Second), time.Now().Add(20*time.Second)
		settings.EndsAt, settings.MaxWaiting = time.Now().Add(time.Hour), 1
		r.put("shop", settings)
		may := func(want error) {
			t.Helper()
			if err := r.MayEnter(ctx, "shop"); !errors.Is(err, want) || want == nil && err != nil {
				t.Errorf("it is %v, want %v", err, want)
			}
		}
		may(room.ErrNotOpen)
		time.Sleep(30 * time.Second)
		may(nil)
		r.enter("shop")
		waiting := r.enter("shop")
		time.Sleep(2 * time.Second)
		may(room.ErrLineFull)
		if err := r.Leave(ctx, "shop", waiting.Ticket, nowhere); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		may(nil)
		if _, err := r.SoldOut(ctx, "shop"); err != nil {
			t.Fatal(err)
		}
		may(room.ErrSoldOut)
		if _, err := r.Resume(ctx, "shop"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		may(room.ErrEnded)
		if err := r.MayEnter(ctx, "fair"); !errors.Is(err, room.ErrNoRoom) {
			t.Errorf("a room that does not exist: %v", err)
		}
	})
}

// A room that ended before it was sold out has ended.
func TestSoldOutAfterTheEnd(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		settings := teller(1)
		settings.EndsAt = time.Now().Add(10 * time.Second)
		r.put("shop", settings)
		time.Sleep(20 * time.Second)
		if _, err := r.SoldOut(ctx, "shop"); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Enter(ctx, "shop", room.Visit{}); !errors.Is(err, room.ErrEnded) || errors.Is(err, room.ErrSoldOut) {
			t.Errorf("a newcomer gets %v", err)
		}
		if _, err := r.SoldOut(ctx, "fair"); !errors.Is(err, room.ErrNoRoom) {
			t.Errorf("a room that does not exist: %v", err)
		}
	})
}
