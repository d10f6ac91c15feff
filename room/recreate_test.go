package room_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/storetest"
)

// While a batch is being published the room is removed, and another one made of its
// name, by another instance. The events of that one are all published, as its own.
func TestEventsOfARoomThatIsMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		book, release := new(recorder), make(chan struct{})
		calls := 0
		here := newRig(t, storetest.NewMemory(), room.WithPublisher(publisherFunc(func(ctx context.Context, notices []room.Notice) error {
			if calls++; calls == 1 { // those of the room before
				<-release
				return nil
			}
			return book.Publish(ctx, notices)
		})))
		defer here.stop()
		there := newRig(t, here.store, room.WithPublisher(book))
		defer there.stop()
		here.put("shop", teller(1))
		for range 10 {
			here.enter("shop")
		}
		time.Sleep(5 * time.Second)
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
