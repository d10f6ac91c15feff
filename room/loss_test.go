package room_test

import (
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
