package engine_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
	"github.com/sluice-project/sluice/room/storetest"
)

func TestRoomsAreMadeChangedAndRemoved(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		view, created, err := r.PutRoom(ctx, "shop", teller(1))
		if err != nil || !created || view.Phase != room.Open || view.Room.Settings.MaxWaiting != room.DefaultMaxWaiting {
			t.Fatalf("PutRoom() = %+v, %v, %v", view, created, err)
		}
		first := view.Room
		if view, created, err = r.PutRoom(ctx, "shop", teller(2)); err != nil || created {
			t.Fatalf("PutRoom() = %+v, %v, %v", view, created, err)
		}
		if now := view.Room; now.Generation != first.Generation || now.Settings.Capacity != 2 || now.Revision == first.Revision {
			t.Errorf("was %+v, is %+v", first, now)
		}
		var wrong *room.SettingsError
		if _, _, err := r.PutRoom(ctx, "shop", teller(0)); !errors.As(err, &wrong) || wrong.Field != "capacity" {
			t.Errorf("capacity 0: %v", err)
		}
		if _, _, err := r.PutRoom(ctx, "Shop", teller(1)); !errors.As(err, &wrong) || wrong.Field != "room" {
			t.Errorf("a name in capitals: %v", err)
		}
		r.put("a", teller(1))
		for after, want := range map[string]string{"": "a", "a": "shop", "shop": ""} {
			rooms, more, err := r.Rooms(ctx, after, 1)
			if err != nil || more != (after == "") || len(rooms) > 1 || len(rooms) == 1 && rooms[0].Room.Name != want || len(rooms) == 0 && want != "" {
				t.Errorf("Rooms(%q) = %+v, %v, %v", after, rooms, more, err)
			}
		}
		for range 2 {
			if err := r.DeleteRoom(ctx, "shop"); err != nil {
				t.Errorf("DeleteRoom() = %v", err)
			}
		}
		if _, err := r.Room(ctx, "shop"); !errors.Is(err, room.ErrNoRoom) {
			t.Errorf("Room() = %v, want ErrNoRoom", err)
		}
		for _, f := range []func() error{
			func() error { _, err := r.Pause(ctx, "shop"); return err },
			func() error { return r.RevokeAll(ctx, "shop") },
			func() error { return r.RevokeTicket(ctx, "shop", "x") },
			func() error { _, err := r.Enter(ctx, "shop", room.Visit{}); return err },
			func() error { return r.AskAll(ctx, "shop", make([]engine.Asker, 1), true)[0].Err },
		} {
			if err := f(); !errors.Is(err, room.ErrNoRoom) {
				t.Errorf("%v, want ErrNoRoom", err)
			}
		}
	})
}

// Changes that would worsen a position, or change the meaning of passes, are refused.
func TestChangesThatWouldHurtThoseInLineAreRefused(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		opens := time.Now().Add(time.Minute)
		lottery := teller(1)
		lottery.Method, lottery.OpensAt = room.Lottery, opens
		later := lottery
		later.OpensAt = opens.Add(time.Second)
		park := room.Settings{Mode: room.Park, Batch: 1, Interval: time.Second, Stay: time.Second}
		fifo := teller(1)
		fifo.OpensAt = opens

		r.put("shop", lottery)
		r.put("shop", park) // no visitor has come
		r.put("shop", lottery)
		r.enter("shop")
		refused := func(name, field string, s room.Settings) {
			t.Helper()
			var wrong *room.SettingsError
			if _, _, err := r.PutRoom(ctx, name, s); !errors.As(err, &wrong) || wrong.Field != field {
				t.Errorf("PutRoom() = %v, want a refusal of %s", err, field)
			}
		}
		refused("shop", "mode", park)
		refused("shop", "method", fifo)
		r.put("shop", later) // not drawn yet
		time.Sleep(time.Until(later.OpensAt) - 14*time.Second)
		latest := later
		latest.OpensAt = later.OpensAt.Add(time.Hour)
		refused("shop", "opens_at", latest) // the draw might come before that is stored
		time.Sleep(2 * time.Minute)
		later.OpensAt = later.OpensAt.Add(time.Hour)
		refused("shop", "opens_at", later)
		// Everybody has gone; visitors who come to a room of another mode need another room.
		time.Sleep(10 * time.Minute)
		refused("shop", "method", fifo)
	})
}

func TestAFullLineRefuses(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		s := teller(1)
		s.MaxWaiting = 1
		r.put("shop", s)
		r.enter("shop")
		r.enter("shop")
		if _, err := r.Enter(ctx, "shop", room.Visit{}); !errors.Is(err, room.ErrLineFull) {
			t.Errorf("Enter() = %v, want ErrLineFull", err)
		}
	})
}

// Changes by another instance are visible at once where it matters: a room that it created, a
// capacity that it changed, a room that it removed.
func TestInstancesSeeEachOthersChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewMemory()
		here, there := newRig(t, store), newRig(t, store)
		here.put("shop", teller(1))
		first := there.enter("shop")
		here.put("shop", teller(2))
		if a := there.enter("shop"); a.State != room.Inside {
			t.Errorf("the second is %v, want inside", a.State)
		}
		if _, err := here.Pause(ctx, "shop"); err != nil {
			t.Fatal(err)
		}
		if err := there.Leave(ctx, "shop", first.Ticket, nowhere); err != nil {
			t.Fatal(err)
		}
		if a := there.enter("shop"); a.State != room.Waiting {
			t.Errorf("in a paused room one is %v, want waiting", a.State)
		}
		if err := here.DeleteRoom(ctx, "shop"); err != nil {
			t.Fatal(err)
		}
		if _, err := there.Enter(ctx, "shop", room.Visit{}); !errors.Is(err, room.ErrNoRoom) {
			t.Errorf("in a room that was removed: %v, want ErrNoRoom", err)
		}
		here.stop()
		there.stop()
	})
}

// Settings are known while the store is away; everything else is refused, and the engine continues
// by itself when the store is back.
func TestSettingsAreKnownWhileTheStoreIsAway(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		r.put("shop", teller(7))
		r.store.Fail(fmt.Errorf("no route: %w", room.ErrUnavailable))
		time.Sleep(time.Minute)
		if s, err := r.Settings(ctx, "shop"); err != nil || s.Capacity != 7 {
			t.Errorf("Settings() = %+v, %v", s, err)
		}
		if _, err := r.Settings(ctx, "never-seen"); !errors.Is(err, room.ErrUnavailable) {
			t.Errorf("Settings() of a room that was never seen: %v", err)
		}
		if _, err := r.Enter(ctx, "shop", room.Visit{}); !errors.Is(err, room.ErrUnavailable) {
			t.Errorf("Enter() = %v", err)
		}
		if got := strings.Count(r.log.String(), "level=ERROR"); got > 5 {
			t.Errorf("%d errors were logged in a minute of one and the same failure:\n%s", got, r.log)
		}
		r.store.Fail(nil)
		if a := r.enter("shop"); a.State != room.Inside {
			t.Errorf("the first is %v, want inside", a.State)
		}
	})
}

func TestARecordThatCannotBeReadIsNotServed(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		if _, err := r.store.PutRoom(ctx, "odd", []byte("{"), 0); err != nil {
			t.Fatal(err)
		}
		r.put("shop", teller(1))
		time.Sleep(10 * time.Second)
		if _, err := r.Room(ctx, "odd"); !errors.Is(err, room.ErrNoRoom) {
			t.Errorf("Room() = %v, want ErrNoRoom", err)
		}
		r.enter("shop")
		if got := strings.Count(r.log.String(), "cannot be read"); got != 1 {
			t.Errorf("logged %d times, want once:\n%s", got, r.log)
		}
	})
}

// An empty room is not looked at, but counted from time to time. A room with visitors is looked
// at at least twice a second by one instance, and once by others where visitors ask.
func TestOneInstanceTendsARoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := storetest.NewMemory()
		var stores [3]*countingStore
		var engines [3]*engine.Engine
		for i := range engines {
			stores[i] = &countingStore{Store: memory}
			engine, err := engine.New(stores[i], room.Config{})
			if err != nil {
				t.Fatal(err)
			}
			if err := engine.Start(ctx); err != nil {
				t.Fatal(err)
			}
			engines[i] = engine
		}
		for i := range 50 {
			if _, _, err := engines[i%3].PutRoom(ctx, fmt.Sprint("room-", i), teller(1)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Second)
		counts := func() (expired, rooms [3]int64) {
			for i := range stores {
				expired[i], rooms[i] = stores[i].expired.Swap(0), stores[i].rooms.Swap(0)
			}
			return expired, rooms
		}
		counts()
		time.Sleep(4 * time.Minute)
		expired, rooms := counts()
		if total := expired[0] + expired[1] + expired[2]; total > 0 || rooms != [3]int64{} {
			t.Errorf("in 4 minutes 50 empty rooms were expired %v times, and all were read %v times", expired, rooms)
		}
		for i := range 2 {
			if _, err := engines[i].Enter(ctx, "room-0", room.Visit{}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		counts()
		time.Sleep(10 * time.Second)
		expired, _ = counts()
		if expired[0] < 19 || expired[0] > 30 || expired[1] < 9 || expired[1] > 15 || expired[2] > 0 {
			t.Errorf("in 10 seconds a room with visitors at two of three instances was looked at %v times", expired)
		}
		for _, engine := range engines {
			if err := engine.Stop(ctx); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// When the instance ends that tends a room, another one takes over once something is overdue, where
// visitors ask. Where nobody does, visits end after minutes.
func TestATenderIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewMemory()
		here, there := newRig(t, store), newRig(t, store)
		for _, name := range []string{"shop", "quiet"} {
			here.put(name, teller(1))
			here.enter(name)
		}
		time.Sleep(time.Second)
		next := there.enter("shop").Ticket
		for range 117 { // until just before the visit ends
			time.Sleep(500 * time.Millisecond)
			there.ask("shop", next)
		}
		time.Sleep(400 * time.Millisecond)
		here.stop()
		time.Sleep(400 * time.Millisecond)
		if a := there.ask("shop", next); a.State != room.Inside {
			t.Errorf("0.3 s after the visit should have ended, the room answers %+v", a)
		}
		time.Sleep(5 * time.Minute)
		if status, err := store.Status(ctx, "quiet"); err != nil || status.Expired != 1 {
			t.Errorf("the status of the room that nobody uses is %+v, %v", status, err)
		}
		there.stop()
	})
}

// The settings of all rooms together are bounded, and may be made smaller at the bound.
func TestSettingsOfAllRoomsAreBounded(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		large := teller(1)
		for range 100 {
			large.Routes = append(large.Routes, room.Rule{Path: "/" + strings.Repeat("p", 500)})
			large.Bypass = append(large.Bypass, room.Rule{Path: "/" + strings.Repeat("p", 500)})
		}
		r.put("room-0", large)
		for i := range room.MaxRoomBytes/room.MaxRecord - 1 {
			if _, err := r.store.PutRoom(ctx, fmt.Sprint("other-", i), make([]byte, room.MaxRecord), 0); err != nil {
				t.Fatal(err)
			}
		}
		r.put("room-1", large)
		time.Sleep(2 * time.Second) // until they are known
		if _, _, err := r.PutRoom(ctx, "more", large); !errors.Is(err, room.ErrTooManyRooms) {
			t.Errorf("PutRoom() = %v, want ErrTooManyRooms", err)
		}
		r.put("room-0", large)
		r.put("room-0", teller(1))
		r.put("more", large)
	})
}

func TestMetrics(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		r.put("shop", teller(1))
		r.enter("shop")
		r.enter("shop")
		var left []string
		for range 10 { // at the positions 2 to 11
			left = append(left, r.enter("shop").Ticket)
		}
		for _, ticket := range slices.Backward(left) {
			if err := errors.Join(r.Leave(ctx, "shop", ticket, netip.Addr{}), r.Leave(ctx, "shop", ticket, netip.Addr{})); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(3 * time.Second)
		r.store.Fail(room.ErrUnavailable)
		_, _ = r.Enter(ctx, "shop", room.Visit{})
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(r.Collector())
		want := `
# HELP room_inside Visitors who have a slot, those included who are called and have not come yet.
# TYPE room_inside gauge
room_inside{room="shop"} 1
# HELP room_waiting Visitors in line who are not called.
# TYPE room_waiting gauge
room_waiting{room="shop"} 1
# HELP room_entered_total Visitors who entered.
# TYPE room_entered_total counter
room_entered_total{room="shop"} 12
# HELP room_gave_up_total Visitors who left the line by themselves, at this instance, by their position.
# TYPE room_gave_up_total counter
room_gave_up_total{position="1-10",room="shop"} 9
room_gave_up_total{position="11-100",room="shop"} 1
# HELP room_store_failures_total Moves that the store did not make because it was away, full or broken.
# TYPE room_store_failures_total counter
room_store_failures_total{move="enter"} 1
`
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "room_inside", "room_waiting", "room_entered_total", "room_gave_up_total", "room_store_failures_total"); err != nil {
			t.Error(err)
		}
	})
}

// A server that takes over may lack the last change of a room. The instances see the earlier state,
// serve by it, and can change the room again.
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

// The seed of a lottery is public after the draw. A room without visitors may have another lottery,
// with another seed.
func TestASecondLotteryHasAnotherSeed(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		lottery := teller(1)
		lottery.Method, lottery.OpensAt = room.Lottery, time.Now().Add(time.Minute)
		first := r.put("shop", lottery)
		time.Sleep(2 * time.Minute)
		r.put("shop", teller(1))
		lottery.OpensAt = time.Now().Add(time.Hour)
		again := r.put("shop", lottery)
		if bytes.Equal(first.Room.Seed, again.Room.Seed) {
			t.Error("the second lottery is drawn by a seed that everybody can know")
		}
		lottery.Capacity = 2
		if same := r.put("shop", lottery); !bytes.Equal(again.Room.Seed, same.Room.Seed) {
			t.Error("a lottery's seed was changed")
		}
	})
}

// A room says how long those waited who were called lately.
func TestARoomKnowsTheWaitsOfThoseItCalled(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, r *rig) {
		r.put("shop", teller(1))
		first := r.enter("shop")
		second, third := r.enter("shop"), r.enter("shop")
		for range 4 {
			time.Sleep(10 * time.Second)
			for _, a := range []engine.Answer{second, third} {
				if a = r.ask("shop", a.Ticket); a.State != room.Waiting {
					t.Fatalf("%v, want to wait", a.State)
				}
			}
		}
		if err := r.Leave(ctx, "shop", first.Ticket, nowhere); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1500 * time.Millisecond) // the line is looked at in the meantime
		if a := r.ask("shop", second.Ticket); a.State != room.Inside {
			t.Fatalf("%v, want inside", a.State)
		}
		view, err := r.Room(ctx, "shop")
		if err != nil || view.Waits == nil || view.Waits.Of != 2 || view.Waits.P50 != 0 || view.Waits.P95.Round(time.Second) != 40*time.Second {
			t.Fatalf("%+v %v, want those of one who did not wait, and of one who waited 40 s", view.Waits, err)
		}
		time.Sleep(engine.WaitsSpan)
		if view, err = r.Room(ctx, "shop"); err != nil || view.Waits != nil {
			t.Fatalf("ten minutes later: %+v %v", view.Waits, err)
		}
	})
}
