package room_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-project/sluice/room"
)

// A server that takes over may not have received the last change of a room. The
// instances see the state before it, serve by that, and can change the room again.
func TestAStoreThatLostAChangeIsServed(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		r.put("shop", teller(1))
		inside, next := r.enter("shop"), r.enter("shop")
		records, err := r.store.Rooms(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Pause(ctx, "shop"); err != nil {
			t.Fatal(err)
		}
		r.store.Rewind(records[0])
		if a := r.ask("shop", inside.Ticket); a.State != room.Inside {
			t.Errorf("who was inside is %v", a.State)
		}
		if err := r.Leave(ctx, "shop", inside.Ticket, nowhere); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if a := r.ask("shop", next.Ticket); a.State != room.Inside {
			t.Errorf("who came next is %v: the pause was lost, and the room stands still", a.State)
		}
		if view, err := r.Pause(ctx, "shop"); err != nil || !view.Room.Paused {
			t.Errorf("Pause() after the loss: %v, %v", view.Room.Paused, err)
		}
	})
}

// An instance that has lost the lease while its publisher failed does not publish that
// batch any more: another one may have published it, and what came after it.
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
		if ok, err := r.store.Lease(ctx, "publisher", "a ghost", time.Hour); !ok || err != nil {
			t.Fatalf("Lease() = %v, %v", ok, err)
		}
		before := book.count()
		fails.Store(false)
		time.Sleep(time.Minute)
		if after := book.count(); before == 0 || after != before {
			t.Errorf("%d events were handed over before another had the lease, and %d after", before, after-before)
		}
	}, room.WithPublisher(book))
}
