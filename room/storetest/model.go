package storetest

import (
	"errors"
	"os"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/room"
)

// longVariable, at 1, makes the model and the goroutines run longer.
const longVariable = "SLUICE_LONG"

// times is how often what is repeated is, in a long run and otherwise.
func times(short, long int) int {
	if os.Getenv(longVariable) == "1" {
		return long
	}
	return short
}

// RunModel makes random moves on a store and on a Memory beside it, and compares what
// they answer, their counts and their events after each.
//
// The Memory's clock follows the store's: each answer tells when the move was, and the
// Memory makes the same move at that very millisecond.
func RunModel(t *testing.T, harness Harness) { checkModel(t, harness) }

func checkModel(t testing.TB, harness Harness) {
	steps := 0
	check := func(rt *rapid.T) {
		m := newMachine(t, rt, harness)
		operations := m.operations()
		for range times(2, 20) {
			rt.Repeat(operations)
		}
		m.finish()
		steps += m.steps
	}
	rapid.Check(t, func(rt *rapid.T) {
		if harness.Bubble {
			rapid.SyncTest(rt, check)
			return
		}
		check(rt)
	})
	t.Logf("%d steps", steps)
}

// rapidTB lets what wants a testing.TB fail a rapid test.
type rapidTB struct {
	testing.TB
	rapid *rapid.T
}

func (t rapidTB) Cleanup(f func())             { t.rapid.Cleanup(f) }
func (t rapidTB) Error(args ...any)            { t.rapid.Error(args...) }
func (t rapidTB) Errorf(f string, args ...any) { t.rapid.Errorf(f, args...) }
func (t rapidTB) Fail()                        { t.rapid.Fail() }
func (t rapidTB) FailNow()                     { t.rapid.FailNow() }
func (t rapidTB) Failed() bool                 { return t.rapid.Failed() }
func (t rapidTB) Fatal(args ...any)            { t.rapid.Fatal(args...) }
func (t rapidTB) Fatalf(f string, args ...any) { t.rapid.Fatalf(f, args...) }
func (t rapidTB) Helper()                      { t.rapid.Helper() }
func (t rapidTB) Log(args ...any)              { t.rapid.Log(args...) }
func (t rapidTB) Logf(f string, args ...any)   { t.rapid.Logf(f, args...) }

// machine makes moves on a store and its model. The kit's terms are those of the room
// that the current step is about.
type machine struct {
	*kit
	bubble bool
	memory *Memory
	clock  time.Time // the Memory's
	rooms  []*machineRoom
	room   *machineRoom // that of this step
	steps  int
}

// machineRoom is what the machine knows of a room beside what the Memory does.
type machineRoom struct {
	name     string
	terms    room.Terms
	interval time.Duration // of ticks; 0: there are none
	opening  time.Time
	model    uint64 // the revision in the Memory
	given    uint64 // the highest revision that the store gave
	last     int64  // the last visitor's number
	ahead    map[int64]int64
	before   room.Status
	history  []room.Event
	partial  bool // the history is not whole
}

func newMachine(t testing.TB, rt *rapid.T, harness Harness) *machine {
	m := &machine{kit: newKit(rapidTB{TB: t, rapid: rt}, harness), bubble: harness.Bubble, memory: NewMemory()}
	m.must(m.store.RemoveRoom(ctx, "shop"))
	m.memory.clock = func() time.Time { return m.clock }
	for _, name := range []string{"a", "b-2"} {
		r := &machineRoom{name: name, ahead: map[int64]int64{}}
		m.rooms = append(m.rooms, r)
		m.room = r
		m.changeRoom(rt)
	}
	return m
}

// timed makes a move on the store, and sets the Memory's clock to when it was. The
// answer to a move that was refused does not tell: the move may have been refused
// because it was too early, but then also at its beginning, and otherwise also at its
// end.
func (m *machine) timed(move func() (time.Time, error)) error {
	m.t.Helper()
	before := m.now()
	at, err := move()
	after := m.now()
	switch {
	case errors.Is(err, room.ErrNotOpen):
		at = before
	case at.IsZero():
		at = after
	}
	m.check(!at.Before(before) && !at.After(after), "the move was at %v, want it from %v to %v", at, before, after)
	m.clock = at
	return err
}

// sameError checks that two errors are the same, and says whether there is one.
func (m *machine) sameError(got, want error) bool {
	m.t.Helper()
	m.check((got == nil) == (want == nil) && errors.Is(got, want), "error is %v, want %v", got, want)
	return want != nil
}

// termsNow are the room's terms at this time.
func (m *machine) termsNow(rt *rapid.T) {
	m.terms = m.room.terms
	if m.room.interval > 0 {
		now := m.now()
		ticks := int64(now.Sub(m.room.opening)/m.room.interval) + rapid.SampledFrom([]int64{0, 0, 0, 0, -1, 1}).Draw(rt, "tick off")
		m.terms.Tick = max(1, m.room.opening.Add(time.Duration(ticks)*m.room.interval).UnixMilli())
	}
}

// inModel are the same terms for the Memory.
func (m *machine) inModel() room.Terms {
	terms := m.terms
	terms.Revision = m.room.model
	return terms
}

// seconds draws one of some times.
func seconds(rt *rapid.T, what string, some ...float64) time.Duration {
	return time.Duration(rapid.SampledFrom(some).Draw(rt, what) * float64(time.Second))
}

// drawTerms draws what a policy might say.
func (m *machine) drawTerms(rt *rapid.T) {
	now := m.now()
	at := func(what string) time.Time {
		if from := rapid.SampledFrom([]int{0, 0, 0, -20, 5, 15}).Draw(rt, what); from != 0 {
			return now.Add(time.Duration(from) * time.Second)
		}
		return time.Time{}
	}
	r := m.room
	r.terms = room.Terms{
		Room: r.name, Revision: r.terms.Revision,
		Capacity:   rapid.SampledFrom([]int64{0, 1, 2, 3, 5, 9}).Draw(rt, "capacity"),
		MaxWaiting: rapid.SampledFrom([]int64{1, 4, 10, 100}).Draw(rt, "most waiting"),
		TTL:        seconds(rt, "ttl", 1, 10, 30, 30),
		Sliding:    rapid.Bool().Draw(rt, "sliding"),
		Renewals:   rapid.IntRange(0, 2).Draw(rt, "renewals"),
		Claim:      seconds(rt, "claim", 0.1, 2, 5),
		Abandon:    seconds(rt, "abandon", 1, 5, 10),
		Grace:      seconds(rt, "grace", 0, 1, 5, 12),
		Away:       seconds(rt, "away", 4, 8),
		Events:     rapid.SampledFrom([]int64{1 << 40, 1 << 40, 1 << 40, 5, 0}).Draw(rt, "events"),
	}
	if rapid.IntRange(0, 2).Draw(rt, "schedule") == 0 {
		r.terms.From, r.terms.EnterFrom = at("from"), at("enter from")
		r.terms.Until, r.terms.EnterUntil = at("until"), at("enter until")
	}
	r.terms.DrawUntil = at("draw until")
	r.interval = 0
	if rapid.IntRange(0, 2).Draw(rt, "ticks") == 0 {
		r.interval, r.opening = seconds(rt, "interval", 0.5, 2, 5), now.Add(-time.Second)
		r.terms.Calls = rapid.Int64Range(1, 4).Draw(rt, "calls")
	}
	r.partial = r.partial || r.terms.Events < 1<<40
}
