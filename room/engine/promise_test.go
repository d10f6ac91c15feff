package engine_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
	"github.com/sluice-project/sluice/room/storetest"
)

// TestPromises lets visitors come, ask, pay, leave, vanish and return at random, at several engines
// on one store that are killed and lose the store, in rooms with a changing capacity, and checks
// the room's guarantees by its history.
func TestPromises(t *testing.T) {
	checkWorlds(t, func(rt *rapid.T) *world {
		w := drawWorld(rt)
		w.settings = room.Settings{
			Mode: room.Teller, Capacity: rapid.Int64Range(1, 4).Draw(rt, "capacity"), PassTTL: 4 * time.Second,
			ClaimWindow: rapid.SampledFrom([]time.Duration{3 * time.Second, 5 * time.Second}).Draw(rt, "claim"),
			// Longer than all engines may be down.
			AbandonAfter: 6 * time.Second, Grace: 4 * time.Second,
		}
		if w.calm = rapid.Bool().Draw(rt, "calm"); !w.calm {
			w.drawTroubles(rt)
		}
		return w
	})
}

// TestParkPromises is the same for batches: each tick lets in exactly as many as allowed, whichever
// engine handles it.
func TestParkPromises(t *testing.T) {
	checkWorlds(t, func(rt *rapid.T) *world {
		w := drawWorld(rt)
		w.calm = true
		w.settings = room.Settings{
			Mode: room.Park, Batch: rapid.Int64Range(1, 6).Draw(rt, "batch"),
			Interval: rapid.SampledFrom([]time.Duration{700 * time.Millisecond, 3 * time.Second}).Draw(rt, "interval"),
			Stay:     rapid.SampledFrom([]time.Duration{2 * time.Second, 5 * time.Second}).Draw(rt, "stay"),
			// The stay bounds the claim window.
			ClaimWindow: 2 * time.Second, AbandonAfter: 6 * time.Second, Grace: 4 * time.Second,
		}
		return w
	})
}

func checkWorlds(t *testing.T, draw func(*rapid.T) *world) {
	rounds := 1
	if os.Getenv("SLUICE_LONG") != "" {
		rounds = 8
	}
	for range rounds {
		rapid.Check(t, func(rt *rapid.T) {
			w := draw(rt)
			synctest.Test(t, func(t *testing.T) { w.live(t) })
			if err := w.failed(); err != nil {
				rt.Fatal(err)
			}
		})
	}
}

// world is a room with its visitors.
type world struct {
	settings room.Settings
	engines  []*rig
	store    *storetest.Memory
	people   []*person
	troubles []trouble
	// calm worlds have no troubles, so that all times are exact.
	calm  bool
	begin time.Time
	// capacities are the capacities, each with its beginning.
	capacities []capacityFrom
	book       *recorder
	// idleSince is since when a slot is free while a visitor waits who keeps asking.
	idleSince time.Time
	// known guards what visitors know, since they act beside each other.
	known sync.Mutex
	// failure guards err.
	failure sync.Mutex
	err     error
}

type capacityFrom struct {
	from     time.Time
	capacity int64
}

// person is a visitor. All have keys, so that a visitor whose answer was lost may enter again.
type person struct {
	key                  string
	arrives, asks, stays time.Duration
	// A silent visitor does not ask from silentFrom after entering, for silentFor.
	silentFrom, silentFor time.Duration
	leaves                bool

	// acting is true during a call, and calls counts the calls.
	acting                  bool
	calls                   int
	number, position        int64
	ticket                  string
	arrived, asked, entered time.Time
	done                    bool
}

// faithful visitors never stop asking until their visit ends.
func (p *person) faithful() bool { return p.silentFor == 0 }

// trouble is a fault of the service at a time, for some time.
type trouble struct {
	kind      string
	at, lasts time.Duration
	engine    int
	capacity  int64
	began     bool
}

const step = 50 * time.Millisecond

func drawWorld(rt *rapid.T) *world {
	w := &world{book: new(recorder)}
	steps := func(name string, low, high int) time.Duration {
		return time.Duration(rapid.IntRange(low, high).Draw(rt, name)) * step
	}
	w.engines = make([]*rig, rapid.IntRange(1, 3).Draw(rt, "engines"))
	for i := range rapid.IntRange(2, 25).Draw(rt, "people") {
		p := &person{
			key: fmt.Sprint("p", i), arrives: steps("arrives", 0, 300), asks: steps("asks", 2, 14), stays: steps("stays", 1, 80),
			leaves: rapid.Bool().Draw(rt, "leaves"),
		}
		if rapid.IntRange(0, 2).Draw(rt, "faithful") == 0 {
			p.silentFrom, p.silentFor = steps("silent", 0, 100), steps("silent for", 20, 400)
		}
		w.people = append(w.people, p)
	}
	return w
}

func (w *world) drawTroubles(rt *rapid.T) {
	for range rapid.IntRange(0, 4).Draw(rt, "troubles") {
		w.troubles = append(w.troubles, trouble{
			kind:     rapid.SampledFrom([]string{"away", "lost replies", "kill", "capacity", "pause", "rotate"}).Draw(rt, "trouble"),
			at:       time.Duration(rapid.IntRange(0, 500).Draw(rt, "at")) * step,
			lasts:    time.Duration(rapid.IntRange(1, 200).Draw(rt, "lasts")) * step,
			engine:   rapid.IntRange(0, len(w.engines)-1).Draw(rt, "engine"),
			capacity: rapid.Int64Range(1, 5).Draw(rt, "new capacity"),
		})
	}
}

// live lets time pass until all visitors who keep asking have had their visit.
func (w *world) live(t *testing.T) {
	w.begin = time.Now()
	w.store = storetest.NewMemory()
	for i := range w.engines {
		w.engines[i] = newRig(t, w.store, engine.WithPublisher(w.book))
		if i == 0 { // the others read it as they start
			w.engines[0].put("shop", w.settings)
		}
	}
	w.capacities = append(w.capacities, capacityFrom{w.begin.Truncate(time.Millisecond), w.settings.Capacity})
	for time.Since(w.begin) < 10*time.Minute && w.failed() == nil && !w.over() {
		w.trouble(t)
		w.act()
		w.pass(step / 2)
		w.watchSlots()
		w.pass(step / 2)
	}
	if w.failed() == nil && !w.over() {
		w.failf("somebody who keeps asking was not let in within 10 minutes: %+v", w.waiting())
	}
	w.store.Fail(nil)
	w.store.FailAfter(nil)
	for i := range w.engines {
		if w.engines[i] == nil {
			w.engines[i] = newRig(t, w.store, engine.WithPublisher(w.book))
		}
	}
	time.Sleep(time.Minute) // publishing may be backing off for some seconds
	for _, engine := range w.engines {
		engine.stop()
	}
	if w.failed() == nil {
		w.check(w.book.arrived(t))
	}
}

// pass lets time pass. Visitors have acted afterwards, or wait within a call.
func (w *world) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (w *world) failed() error {
	w.failure.Lock()
	defer w.failure.Unlock()
	return w.err
}

func (w *world) failf(format string, args ...any) {
	w.failure.Lock()
	defer w.failure.Unlock()
	if w.err == nil {
		w.err = fmt.Errorf("after %v: %w", time.Since(w.begin), fmt.Errorf(format, args...))
	}
}

func (w *world) over() bool { return len(w.waiting()) == 0 }

// waiting returns the visitors who keep asking and have not had their visit.
func (w *world) waiting() (people []person) {
	w.known.Lock()
	defer w.known.Unlock()
	for _, p := range w.people {
		if p.faithful() && !p.done {
			people = append(people, *p)
		}
	}
	return people
}

// act lets all visitors do their next actions, except for those whose last one goes on.
func (w *world) act() {
	w.known.Lock()
	defer w.known.Unlock()
	for _, p := range w.people {
		e := w.engine(p.calls)
		if e == nil || p.acting {
			continue
		}
		call := w.next(p, e)
		if call == nil {
			continue
		}
		p.acting = true
		p.calls++
		go func() {
			learn := call()
			w.known.Lock()
			defer w.known.Unlock()
			learn()
			p.acting = false
		}()
	}
}

// next returns the next call of a visitor, nil if there is none now. The call returns what the
// visitor does with the answer.
func (w *world) next(p *person, e *rig) func() (learn func()) {
	now, ticket := time.Now(), p.ticket
	sinceArrival := now.Sub(p.arrived)
	switch {
	case p.done || now.Sub(w.begin) < p.arrives:
		return nil
	case ticket == "":
		return func() func() {
			a, err := e.Enter(ctx, "shop", room.Visit{Key: p.key})
			return func() { w.hear(p, a, err) }
		}
	case !p.faithful() && sinceArrival >= p.silentFrom && sinceArrival < p.silentFrom+p.silentFor:
		return nil
	case !p.entered.IsZero() && now.Sub(p.entered) >= p.stays && !p.leaves:
		p.done = true
		return nil
	case !p.entered.IsZero() && now.Sub(p.entered) >= p.stays:
		return func() func() {
			err := e.Leave(ctx, "shop", ticket, nowhere)
			return func() { w.left(p, err) }
		}
	case now.Sub(p.asked) >= p.asks:
		return func() func() {
			a, err := e.Ask(ctx, "shop", ticket, nowhere)
			return func() { w.hear(p, a, err) }
		}
	}
	return nil
}

// left checks the answer to a visitor who leaves.
func (w *world) left(p *person, err error) {
	switch {
	case err == nil:
		p.done = true
	case !errors.Is(err, room.ErrUnavailable):
		w.failf("%s leaves: %v", p.key, err)
		p.done = true
	}
}

// engine returns the nth live engine, counted in a circle; nil if there is none.
func (w *world) engine(n int) *rig {
	live := slices.DeleteFunc(slices.Clone(w.engines), func(e *rig) bool { return e == nil })
	if len(live) == 0 {
		return nil
	}
	return live[n%len(live)]
}

// hear checks the answer to a visitor.
func (w *world) hear(p *person, a engine.Answer, err error) {
	var gone *room.GoneError
	switch {
	case errors.Is(err, room.ErrUnavailable):
		return
	case errors.As(err, &gone):
		p.done = true
		// A visitor who was let in without learning of it has had the visit.
		if p.faithful() && p.entered.IsZero() && gone.Reason != room.Expired {
			w.failf("%s kept asking and lost the place: %v", p.key, err)
		}
		return
	case err != nil:
		w.failf("%s is told %v", p.key, err)
		return
	}
	if p.ticket == "" {
		p.arrived, p.number = time.Now(), a.ID
	}
	p.asked, p.ticket = time.Now(), a.Ticket
	switch {
	case a.State == room.Inside && p.entered.IsZero():
		p.entered = time.Now()
	case a.State == room.Waiting && (a.Position < 1 || p.position > 0 && a.Position > p.position):
		w.failf("%s was at %d and is at %d", p.key, p.position, a.Position)
	case a.State == room.Waiting:
		p.position = a.Position
		near := a.Position == 1 && w.settings.Mode == room.Teller
		if near && a.NextPoll > w.settings.ClaimWindow/2 {
			w.failf("%s is at the front and is to ask again in %v", p.key, a.NextPoll)
		}
	}
}
