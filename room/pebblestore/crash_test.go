package pebblestore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/pebblestore"
	"github.com/sluice-project/sluice/room/storetest"
)

var ctx = context.Background()

func closed(t testing.TB, s room.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// shop creates a room, and returns terms for it.
func shop(t testing.TB, s room.Store) room.Terms {
	t.Helper()
	revision, err := s.PutRoom(ctx, "shop", []byte("{}"), 0)
	if err != nil {
		t.Fatal(err)
	}
	return room.Terms{
		Room: "shop", Revision: revision, MaxWaiting: 1_000_000, TTL: 10 * time.Minute, Sliding: true,
		Claim: time.Minute, Abandon: 5 * time.Minute, Grace: 5 * time.Minute, Away: time.Hour, Events: 1_000_000,
	}
}

// told has the answers to one visitor, in order.
type told struct {
	number int64
	places []room.Place
}

// visits lets visitors enter, ask, and leave at random until the test is over, and records the
// answers to each.
func visits(s room.Store, terms room.Terms, random *rand.Rand, over *atomic.Bool, tell func(int64, room.Place)) error {
	var mine []int64
	for !over.Load() {
		var place room.Place
		var err error
		switch i := random.IntN(10); {
		case i < 4 || len(mine) == 0:
			place, err = s.Enter(ctx, terms, room.Arrival{})
			mine = append(mine, place.Number)
		case i < 8:
			var places []room.Place
			if places, err = s.Ask(ctx, terms, storetest.Bearers(mine[random.IntN(len(mine))]), true); err == nil {
				place = places[0]
			}
		default:
			at := random.IntN(len(mine))
			number := mine[at]
			mine = append(mine[:at], mine[at+1:]...)
			_, err = s.Leave(ctx, terms, room.Bearer{Number: number}, room.Left)
			place = room.Place{Number: number, State: room.Gone, Reason: room.Left}
		}
		if errors.Is(err, room.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		tell(place.Number, place)
	}
	return nil
}

// Power is lost during many concurrent operations. Every answer from before it holds afterwards:
// positions do not rise, nobody who was inside has to wait, passes do not end earlier, gone
// visitors stay gone; and the events match the state.
func TestCrashWhileManyMove(t *testing.T) {
	rounds := uint64(8)
	if os.Getenv("SLUICE_LONG") == "1" {
		rounds = 80
	}
	for round := range rounds {
		t.Run(fmt.Sprint(round), func(t *testing.T) { crashRound(t, round) })
	}
}

func crashRound(t *testing.T, round uint64) {
	disk := vfs.NewCrashableMem()
	s := open(t, disk)
	terms := shop(t, s)
	terms.Capacity = 5
	var mu sync.Mutex
	var over atomic.Bool
	before := map[int64]*told{}
	moves := 0
	var crowd sync.WaitGroup
	for worker := range uint64(8) {
		crowd.Go(func() {
			random := rand.New(rand.NewPCG(round, worker))
			err := visits(s, terms, random, &over, func(number int64, place room.Place) {
				mu.Lock()
				defer mu.Unlock()
				if over.Load() {
					return // it may have been after the power loss
				}
				if before[number] == nil {
					before[number] = &told{number: number}
				}
				before[number].places = append(before[number].places, place)
				moves++
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	for enough := false; !enough; {
		if _, err := s.Expire(ctx, terms); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		if enough = moves > 500+int(round)*137; enough {
			over.Store(true)
		}
		mu.Unlock()
	}
	left := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rand.New(rand.NewPCG(3, round))})
	crowd.Wait()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	s = open(t, left)
	defer closed(t, s)
	for _, v := range before {
		holds(t, s, terms, v)
	}
	historyHolds(t, s)
}

// holds checks that the last answer to a visitor still holds.
func holds(t *testing.T, s *pebblestore.Store, terms room.Terms, v *told) {
	t.Helper()
	places, err := s.Ask(ctx, terms, storetest.Bearers(v.number), false)
	if err != nil {
		t.Fatal(err)
	}
	after, last := places[0], v.places[len(v.places)-1]
	// After the answer gone, or inside, no other came.
	switch last.State {
	case room.Gone:
		if after.State != room.Gone || after.Reason != last.Reason {
			t.Errorf("%d was gone, and is %+v", v.number, after)
		}
	case room.Inside:
		if after.State == room.Gone && after.Reason == room.Left {
			return // it was about to leave
		}
		if after.State != room.Inside || after.Until.Before(last.Until) {
			t.Errorf("%d was inside until %v, and is %+v", v.number, last.Until, after)
		}
	case room.Waiting:
		if after.State == room.Waiting && after.Ahead > last.Ahead {
			t.Errorf("%d waited behind %d, and waits behind %d", v.number, last.Ahead, after.Ahead)
		}
		if after.State == room.Gone && after.Reason != room.Left {
			t.Errorf("%d waited, and is %+v", v.number, after)
		}
	}
}

// historyHolds checks the counts of a room against its events.
func historyHolds(t *testing.T, s *pebblestore.Store) {
	t.Helper()
	events, err := s.Events(ctx, "shop", 0, 0, 1_000_000)
	if err != nil {
		t.Fatal(err)
	}
	var entered, admitted, inside int64
	for i, e := range events {
		if e.Sequence != int64(i)+1 {
			t.Fatalf("event %d is %+v", i, e)
		}
		switch {
		case e.Type == room.VisitorEntered:
			if entered++; e.Number != entered {
				t.Fatalf("event %d is %+v, want number %d", i, e, entered)
			}
		case e.Type == room.VisitorAdmitted:
			admitted++
			inside++
		case e.Inside:
			inside--
		}
		if inside < 0 || inside > 5 {
			t.Fatalf("%d are inside after event %+v", inside, e)
		}
	}
	status, err := s.Status(ctx, "shop")
	if err != nil || status.Entered != entered || status.Admitted != admitted || status.Inside != inside {
		t.Errorf("status is %+v, %v; the events tell of %d who entered, %d admitted and %d inside", status, err, entered, admitted, inside)
	}
}

// slowDisk is a disk whose syncs wait while it is held.
type slowDisk struct {
	vfs.FS
	held atomic.Pointer[chan struct{}]
}

func newSlowDisk() *slowDisk {
	d := &slowDisk{}
	d.FS = errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if held := d.held.Load(); held != nil && (op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData) {
			<-*held
		}
		return nil
	}))
	return d
}

func (d *slowDisk) hold() (release func()) {
	held := make(chan struct{})
	d.held.Store(&held)
	return func() { d.held.Store(nil); close(held) }
}

// slowShop is a room with four waiting visitors on a slow disk.
type slowShop struct {
	t     *testing.T
	disk  *slowDisk
	s     *pebblestore.Store
	terms room.Terms
}

func newSlowShop(t *testing.T) *slowShop {
	t.Helper()
	disk := newSlowDisk()
	s := open(t, disk)
	t.Cleanup(func() { closed(t, s) })
	c := &slowShop{t, disk, s, shop(t, s)}
	for range 4 {
		if _, err := s.Enter(ctx, c.terms, room.Arrival{}); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// ask asks and returns the answer.
func (c *slowShop) ask(number int64, claim bool) room.Place {
	places, err := c.s.Ask(ctx, c.terms, storetest.Bearers(number), claim)
	if err != nil {
		c.t.Error(err)
		return room.Place{}
	}
	return places[0]
}

// begin starts an operation that may wait for the disk.
func (c *slowShop) begin(move func() room.Place) (done chan room.Place) {
	done = make(chan room.Place, 1)
	go func() { done <- move() }()
	synctest.Wait()
	return done
}

// pending checks that an operation waits for the disk.
func (c *slowShop) pending(what string, done chan room.Place) {
	c.t.Helper()
	if len(done) > 0 {
		c.t.Errorf("%s was told before it was durable", what)
	}
}

// While a departure is not durable, no answer has a position that it improved, or says that the
// visitor is gone: a power loss would undo both.
func TestLeavingIsToldWhenItIsDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newSlowShop(t)
		release := c.disk.hold()
		leaving := c.begin(func() room.Place {
			p, err := c.s.Leave(ctx, c.terms, room.Bearer{Number: 1}, room.Left)
			if err != nil {
				t.Error(err)
			}
			return p
		})
		gone := c.begin(func() room.Place { return c.ask(1, false) })
		c.pending("that one left", leaving)
		c.pending("that one is gone", gone)
		waiting := c.begin(func() room.Place { return c.ask(3, false) })
		if len(waiting) == 0 {
			t.Error("who waits asks, which changes nothing on disk, and waits for it")
		}
		if p := <-waiting; p.Ahead != 2 {
			t.Errorf("3 waits behind %d while it is not durable that one left, want 2", p.Ahead)
		}
		release()
		<-leaving
		if p := <-gone; p.State != room.Gone {
			t.Errorf("1 has left, and is %+v", p)
		}
		if p := c.ask(3, false); p.Ahead != 1 {
			t.Errorf("3 waits behind %d after one has left, want 1", p.Ahead)
		}
	})
}

// A claim is not answered before it is durable; using the pass afterwards does not wait.
func TestClaimIsToldWhenItIsDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newSlowShop(t)
		c.terms.Capacity = 1
		if _, err := c.s.Expire(ctx, c.terms); err != nil {
			t.Fatal(err)
		}
		release := c.disk.hold()
		claiming := c.begin(func() room.Place { return c.ask(1, true) })
		again := c.begin(func() room.Place { return c.ask(1, false) })
		c.pending("the claim", claiming)
		c.pending("that one is inside", again)
		release()
		if a, b := <-claiming, <-again; a.State != room.Inside || b.State != room.Inside {
			t.Errorf("1 has claimed: %+v, and is %+v", a, b)
		}
		release = c.disk.hold()
		used := c.begin(func() room.Place { return c.ask(1, true) })
		if len(used) == 0 {
			t.Error("a pass is used, which changes nothing on disk, and waits for it")
		}
		release()
		if p := <-used; p.State != room.Inside {
			t.Errorf("1 is %+v", p)
		}
	})
}

// The use of a sliding pass is written once per eighth of its length; after a crash the pass ends
// not earlier than answered, and at most an eighth later.
func TestSlidingPassAfterCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfs.NewCrashableMem()
		var syncs atomic.Int64
		s := open(t, errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData {
				syncs.Add(1)
			}
			return nil
		})))
		terms := shop(t, s)
		terms.Capacity = 1
		if _, err := s.Enter(ctx, terms, room.Arrival{}); err != nil {
			t.Fatal(err)
		}
		syncs.Store(0)
		for i := range 60 { // 420 s, 5.6 eighths of 600 s
			time.Sleep(7 * time.Second)
			places, err := s.Ask(ctx, terms, storetest.Bearers(1), true)
			if err != nil {
				t.Fatal(err)
			}
			want := places[0].Until
			if !want.Equal(places[0].Now.Add(terms.TTL)) {
				t.Fatalf("the pass ends at %v, want %v from %v on", want, terms.TTL, places[0].Now)
			}
			again := open(t, disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 0, RNG: rand.New(rand.NewPCG(1, uint64(i)))}))
			fixed := terms
			fixed.Sliding = false
			if places, err = again.Ask(ctx, fixed, storetest.Bearers(1), false); err != nil {
				t.Fatal(err)
			}
			if late := places[0].Until.Sub(want); late < 0 || late > terms.TTL/8 {
				t.Fatalf("after a crash the pass ends %v later, want 0 to %v", late, terms.TTL/8)
			}
			if err := again.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if n := syncs.Load(); n < 4 || n > 5 {
			t.Errorf("the pass was written %d times while it was used for 5.6 eighths of its length", n)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
