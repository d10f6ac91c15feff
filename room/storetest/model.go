package storetest

import (
	"errors"
	"os"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/internal/testkit/rapidtest"
	"github.com/sluice-project/sluice/room"
)

// longVariable, at 1, makes the model and the goroutines run longer.
const longVariable = "SLUICE_LONG"

// times returns how often something is repeated, in a short run or a long one.
func times(short, long int) int {
	if os.Getenv(longVariable) == "1" {
		return long
	}
	return short
}

// RunModel runs random operations on a store and on a Memory, and compares their answers, counts
// and events after each.
//
// The Memory's clock follows the store's: each answer has the time of its operation, and the Memory
// runs the same operation at exactly that millisecond.
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

// machine runs operations on a store and its model. The kit's terms are those of the room of the
// current step.
type machine struct {
	*kit
	bubble bool
	memory *Memory
	clock  time.Time // the Memory's
	rooms  []*machineRoom
	room   *machineRoom // the room of this step
	steps  int
}

// machineRoom is the machine's own knowledge of a room.
type machineRoom struct {
	name     string
	terms    room.Terms
	interval time.Duration // interval of ticks; 0: there are none
	opening  time.Time
	model    uint64 // the revision in the Memory
	given    uint64 // the highest revision of the store
	last     int64  // the last visitor's number
	ahead    map[int64]int64
	before   room.Status
	history  []room.Event
	partial  bool // the history is incomplete
}

func newMachine(t testing.TB, rt *rapid.T, harness Harness) *machine {
	m := &machine{kit: newKit(rapidtest.TB(t, rt), harness), bubble: harness.Bubble, memory: NewMemory()}
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

// timed runs an operation on the store, and sets the Memory's clock to its time. A refusal has no
// time: the operation may have been refused because it was too early, which was then also so at its
// beginning; any other refusal would also happen at its end.
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

// sameError checks that two errors are the same, and reports whether there is one.
func (m *machine) sameError(got, want error) bool {
	m.t.Helper()
	m.check((got == nil) == (want == nil) && errors.Is(got, want), "error is %v, want %v", got, want)
	return want != nil
}

// termsNow sets the room's terms at this time.
func (m *machine) termsNow(rt *rapid.T) {
	m.terms = m.room.terms
	if m.room.interval > 0 {
		now := m.now()
		ticks := int64(now.Sub(m.room.opening)/m.room.interval) + rapid.SampledFrom([]int64{0, 0, 0, 0, -1, 1}).Draw(rt, "tick off")
		m.terms.Tick = max(1, m.room.opening.Add(time.Duration(ticks)*m.room.interval).UnixMilli())
	}
}

// inModel returns the same terms for the Memory.
func (m *machine) inModel() room.Terms {
	terms := m.terms
	terms.Revision = m.room.model
	return terms
}

// seconds draws one of several times.
func seconds(rt *rapid.T, what string, some ...float64) time.Duration {
	return time.Duration(rapid.SampledFrom(some).Draw(rt, what) * float64(time.Second))
}

// drawTerms draws terms as a policy might set them.
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
		Tend:       seconds(rt, "tend", 1, 3),
		Late:       seconds(rt, "late", 0.2, 2),
		Events:     rapid.SampledFrom([]int64{1 << 40, 1 << 40, 1 << 40, 5, 0}).Draw(rt, "events"),
	}
	if rapid.IntRange(0, 2).Draw(rt, "schedule") == 0 {
		r.terms.From, r.terms.EnterFrom = at("from"), at("enter from")
		r.terms.Until, r.terms.EnterUntil = at("until"), at("enter until")
	}
	r.terms.DrawUntil = at("draw until")
	r.terms.Shares = rapid.SampledFrom([][room.MaxLanes]int64{{}, {1, 1}, {5, 2, 3}, {1, 0, 100}}).Draw(rt, "shares")
	r.interval = 0
	if rapid.IntRange(0, 2).Draw(rt, "ticks") == 0 {
		r.interval, r.opening = seconds(rt, "interval", 0.5, 2, 5), now.Add(-time.Second)
		r.terms.Calls = rapid.Int64Range(1, 4).Draw(rt, "calls")
	}
	r.partial = r.partial || r.terms.Events < 1<<40
}
