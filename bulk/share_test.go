package bulk

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"
)

// wantShares checks the jobs granted to tenants in one window.
func wantShares(t *testing.T, when string, got, want map[string]int64) {
	t.Helper()
	if !maps.Equal(got, want) {
		t.Errorf("%s: %v, want %v", when, got, want)
	}
}

func TestShareOfAWindowIsEqual(t *testing.T) {
	m := newMarket(t)
	for _, tenant := range []string{"a", "b", "c"} {
		m.submit(tenant, "send", Normal, 1000)
	}
	wantShares(t, "the first window", m.window(30), map[string]int64{"a": 10, "b": 10, "c": 10})
	wantShares(t, "ten more", m.window(10), map[string]int64{"a": 4, "b": 3, "c": 3})
	wantShares(t, "the remainder goes round", m.window(10), map[string]int64{"a": 3, "b": 4, "c": 3})
	wantShares(t, "and round", m.window(10), map[string]int64{"a": 3, "b": 3, "c": 4})
}

// A tenant that spreads its jobs over thousands of actions gets no more than with one.
func TestSplittingGainsNothing(t *testing.T) {
	m := newMarket(t)
	for range 5000 {
		m.submit("flooder", "send", Normal, 2)
	}
	m.submit("other", "send", Normal, 10_000)
	for range 3 {
		wantShares(t, "under a limit", m.window(1000), map[string]int64{"flooder": 500, "other": 500})
		wantShares(t, "with scarce workers", m.divide(NoLimit, m.freeFor(100)), map[string]int64{"flooder": 50, "other": 50})
	}
}

func TestWhatOneCannotUseGoesToTheOthers(t *testing.T) {
	m := newMarket(t)
	m.submit("whale", "send", Normal, 1_000_000)
	m.submit("small", "send", Normal, 3)
	m.tenant("limited", 1, 5)
	m.submit("limited", "send", Normal, 1000)
	wantShares(t, "a window of 100", m.window(100), map[string]int64{"whale": 92, "small": 3, "limited": 5})
}

func TestANewcomerBesideAWhaleIsServedAtOnce(t *testing.T) {
	m := newMarket(t)
	m.submit("whale", "send", Normal, 1_000_000)
	for range 50 {
		m.window(1000)
	}
	m.submit("newcomer", "send", Normal, 100)
	grants, _ := Divide(queued(m.backlog(1000)), m.freeFor(1000))
	place, seen := int64(0), int64(0)
	for _, g := range grants {
		if m.actions[g.Number-1].tenant == "newcomer" {
			if seen += g.Jobs; place > 2*seen {
				t.Fatalf("job %d of the newcomer comes after %d others", seen, place-seen)
			}
		}
		if place += g.Jobs; seen == 100 {
			break
		}
	}
	if seen != 100 {
		t.Errorf("%d of the newcomer's 100 jobs were granted in its first window", seen)
	}
}

func TestAnIdleTenantDoesNotClaimThePast(t *testing.T) {
	m := newMarket(t)
	m.submit("busy", "send", Normal, 1_000_000)
	m.submit("idle", "send", Normal, 10)
	m.window(20)
	for range 100 {
		m.window(20)
	}
	m.submit("idle", "send", Normal, 1000)
	wantShares(t, "the first window after idling", m.window(20), map[string]int64{"busy": 10, "idle": 10})
	wantShares(t, "the second", m.window(20), map[string]int64{"busy": 10, "idle": 10})
}

func TestATenantAtItsOwnLimitDoesNotClaimThePast(t *testing.T) {
	m := newMarket(t)
	m.submit("busy", "send", Normal, 1_000_000)
	m.tenant("limited", 1, 2)
	m.submit("limited", "send", Normal, 1000)
	for range 100 {
		wantShares(t, "while limited", m.window(20), map[string]int64{"busy": 18, "limited": 2})
	}
	m.tenant("limited", 1, 0)
	wantShares(t, "when the limit is lifted", m.window(20), map[string]int64{"busy": 10, "limited": 10})
}

func TestMoreTenantsThanRequestsTakeTurns(t *testing.T) {
	m := newMarket(t)
	for i := range 25 {
		m.submit(fmt.Sprintf("t%02d", i), "send", Normal, 1000)
	}
	for window := range 50 {
		m.window(10)
		if window%5 == 4 { // 50 requests among 25
			for name, p := range m.tenants {
				if want := int64(window/5+1) * 2; p.granted != want {
					t.Fatalf("after %d windows %s has %d, want %d", window+1, name, p.granted, want)
				}
			}
		}
	}
}

func TestWeightsDivide(t *testing.T) {
	m := newMarket(t)
	m.tenant("gold", 3, 0)
	m.submit("gold", "send", Normal, 100_000)
	m.submit("plain", "send", Normal, 100_000)
	for window := range int64(1000) {
		m.window(1 + window%7)
		gold, plain := float64(m.tenants["gold"].granted)/3, float64(m.tenants["plain"].granted)
		if math.Abs(gold-plain) > 1+1e-6 {
			t.Fatalf("window %d: gold has %g for its weight, plain %g", window, gold, plain)
		}
	}
}

func TestTheLowClassKeepsATenthOfItsTenantsShare(t *testing.T) {
	for _, c := range []struct {
		name   string
		weight float64
		limit  int64
		window int64
	}{
		{"alone", 1, 0, 10},
		{"one request in a window", 1, 0, 1},
		{"an odd number", 1, 0, 7},
		{"with a weight", 2.5, 0, 7},
		{"with little weight", 0.3, 0, 13},
		{"with a limit of one", 1, 1, 11},
		{"with a limit of two", 1, 2, 20},
		{"with a limit of ten", 1, 10, 1000},
	} {
		m := newMarket(t)
		m.submit("other", "send", High, 10_000_000)
		m.tenant("own", c.weight, c.limit)
		m.submit("own", "send", High, 1_000_000)
		m.submit("own", "send", Normal, 1_000_000)
		low := m.submit("own", "send", Low, 1_000_000)
		for m.tenants["own"].granted < 1000 {
			m.window(c.window)
		}
		tenth := m.tenants["own"].granted / 10
		if low.granted < tenth || low.granted > tenth+1 {
			t.Errorf("%s: low has %d of its tenant's %d, want a tenth", c.name, low.granted, m.tenants["own"].granted)
		}
	}
}

func TestAClassNeverTakesAnotherTenantsShare(t *testing.T) {
	m := newMarket(t)
	m.submit("low", "send", Low, 1_000_000)
	m.submit("normal", "send", Normal, 1_000_000)
	m.submit("high", "send", High, 1_000_000)
	for range 200 {
		m.window(7)
		counts := []int64{m.tenants["low"].granted, m.tenants["normal"].granted, m.tenants["high"].granted}
		if slices.Max(counts)-slices.Min(counts) > 1 {
			t.Fatalf("low, normal and high have %d", counts)
		}
	}
}

func TestClassDecidesWhoHasWhatIsLeftOver(t *testing.T) {
	m := newMarket(t)
	m.submit("a low", "send", Low, 100)
	m.submit("b normal", "send", Normal, 100)
	m.submit("c high", "send", High, 100)
	wantShares(t, "one too many", m.window(4), map[string]int64{"a low": 1, "b normal": 1, "c high": 2})
	m = newMarket(t)
	m.submit("a", "send", High, 1)
	m.submit("a", "send", Low, 100)
	m.submit("b", "send", Normal, 100)
	wantShares(t, "when the high job is gone", m.window(3), map[string]int64{"a": 1, "b": 2})
}

func TestWithinATenantHighGoesFirstThenPriority(t *testing.T) {
	m := newMarket(t)
	m.submit("a", "send", Low, 5)             // 1
	m.submit("a", "send", Normal, 5)          // 2
	m.submit("a", "send", Normal, 5)          // 3
	m.submit("a", "send", High, 5)            // 4
	short := m.submit("a", "send", Normal, 5) // 5: half done, so 60 s ahead
	short.total, short.done = 10, 5
	m.alpha = time.Minute
	var order []uint64
	grants, _ := Divide(queued(m.backlog(100)), m.freeFor(100))
	for _, g := range grants {
		order = append(order, g.Number)
	}
	// Every tenth grant is for the low class, which otherwise comes last.
	if want := []uint64{4, 5, 1, 5, 2, 3, 1, 3, 1}; !slices.Equal(order, want) {
		t.Errorf("grants in the order of %v, want %v", order, want)
	}
}

func TestBasePriorityBreaksTiesAndTakesNoShare(t *testing.T) {
	m := newMarket(t)
	m.submit("older", "send", Normal, 1000)
	m.submit("raised", "send", Normal, 1000)
	m.tenants["raised"].settings.BasePriority = 60_000
	wantShares(t, "one request", m.window(1), map[string]int64{"raised": 1})
	wantShares(t, "the next", m.window(1), map[string]int64{"older": 1})
	wantShares(t, "and the next ten", m.window(10), map[string]int64{"older": 5, "raised": 5})
}

func TestBoundsAreKept(t *testing.T) {
	m := newMarket(t)
	for _, tenant := range []string{"a", "b"} {
		m.submit(tenant, "send", Normal, 100).waiting.Target = "api"
		m.submit(tenant, "send", Normal, 100).waiting.Target = "free"
	}
	m.submit("c", "send", Normal, 100).waiting.Left = 3 // congested
	m.submit("d", "call", Normal, 100)
	m.targets["api"] = 7
	free := Free{Total: 1000, Types: map[string]int64{"send": 60, "call": 20}}
	got := m.divide(NoLimit, free)
	// Of 60 workers c can use 3; d has the others alone.
	if got["c"] != 3 || got["d"] != 20 || got["a"]+got["b"] != 57 || got["a"]-got["b"] > 1 || got["b"]-got["a"] > 1 {
		t.Errorf("granted %v", got)
	}
	if n := m.targets["api"]; n != 0 {
		t.Errorf("%d of the target's 7 are left", n)
	}
}

func TestNothingPassesWithoutRoom(t *testing.T) {
	m := newMarket(t)
	m.submit("a", "send", Normal, 100)
	full := map[string]int64{"send": 100}
	for name, c := range map[string]struct {
		left int64
		free Free
	}{
		"the window is used up":   {0, Free{Total: 100, Types: full}},
		"the ready queue is full": {100, Free{Total: 0, Types: full}},
		"it is more than full":    {100, Free{Total: -5, Types: full}},
		"the type has no free":    {100, Free{Total: 100, Types: map[string]int64{"send": 0}}},
		"the type is not known":   {100, Free{Total: 100}},
	} {
		if grants, _ := Divide(queued(m.backlog(c.left)), c.free); len(grants) > 0 {
			t.Errorf("%s: %v", name, grants)
		}
	}
	if grants, _ := Divide(queued(Backlog{Left: NoLimit}), Free{Total: 100}); len(grants) > 0 {
		t.Errorf("nobody waits: %v", grants)
	}
}

func TestDivideLeavesWhatItReadsAsItIs(t *testing.T) {
	m := newMarket(t)
	m.submit("a", "send", Normal, 100)
	m.targets["type send"] = 50
	b, free := queued(m.backlog(20)), m.freeFor(100)
	first, _ := Divide(b, free)
	if second, _ := Divide(b, free); !slices.Equal(first, second) {
		t.Errorf("first %v, then %v", first, second)
	}
	if jobs, _ := b.Queue.Waiting("send"); free.Types["send"] != math.MaxInt32 || jobs != 100 {
		t.Errorf("%d jobs wait, free is %+v", jobs, free)
	}
}

// TestATenantWithTwoTypesHasOneShareOfTheLimit checks that jobs of two types do not give a
// tenant two shares of the limit.
func TestATenantWithTwoTypesHasOneShareOfTheLimit(t *testing.T) {
	m := newMarket(t)
	m.submit("both", "send", Normal, 1_000_000)
	m.submit("both", "call", Normal, 1_000_000)
	m.submit("one", "send", Normal, 1_000_000)
	for range 20 {
		m.window(101)
		if d := m.tenants["both"].granted - m.tenants["one"].granted; d > 1 || d < -1 {
			t.Fatalf("both has %d, one has %d", m.tenants["both"].granted, m.tenants["one"].granted)
		}
	}
}

// TestScarceWorkersAreDividedAmongTheirOwnLines has scarce workers of "slow". The tenant
// "both" also has jobs of "fast", which has enough workers; that does not change its share of
// the slow workers.
func TestScarceWorkersAreDividedAmongTheirOwnLines(t *testing.T) {
	m := newMarket(t)
	slowOfBoth := m.submit("both", "slow", Normal, 1_000_000)
	m.submit("both", "fast", Normal, 1_000_000)
	m.submit("racer", "fast", Normal, 1_000_000)
	slow := m.submit("slow only", "slow", Normal, 1_000_000)
	for round := range 300 {
		m.divide(NoLimit, Free{Total: 10_000, Types: map[string]int64{"slow": 1 + int64(round)%3, "fast": 1000}})
		if d := slowOfBoth.granted - slow.granted; d > 1 || d < -1 {
			t.Fatalf("round %d: of the slow workers both has had %d, slow only %d", round, slowOfBoth.granted, slow.granted)
		}
		if d := m.tenants["both"].granted - slowOfBoth.granted - m.tenants["racer"].granted; d > 1 || d < -1 {
			t.Fatalf("round %d: of the fast workers one has had %d more", round, d)
		}
	}
	late := m.submit("late", "slow", Normal, 1_000_000)
	before := slow.granted
	for range 300 {
		m.divide(NoLimit, Free{Total: 10_000, Types: map[string]int64{"slow": 2, "fast": 1000}})
	}
	if late.granted < 199 || late.granted > 201 || slow.granted-before < 199 {
		t.Errorf("of 600 jobs since, the latecomer has %d and slow only %d, want a third each", late.granted, slow.granted-before)
	}
}

// noBounds are the bounds of a store without limits. They cost nothing, unlike lineBounds.
type noBounds struct{}

func (noBounds) Tenant(string) (settings Tenant, left int64, ends time.Time) {
	return Tenant{Weight: 1}, NoLimit, time.Time{}
}
func (noBounds) Target(string) int64  { return NoLimit }
func (noBounds) Limiter(Holder) int64 { return NoLimit }

func BenchmarkDivide(b *testing.B) {
	for _, tenants := range []int{1, 59, 10_000} {
		b.Run(fmt.Sprintf("tenants=%d", tenants), func(b *testing.B) {
			m := newMarket(b)
			for i := range tenants {
				m.submit(fmt.Sprintf("t%05d", i), "send", Normal, 1_000_000)
			}
			backlog := Backlog{Left: 10_000, Types: map[string]TypeState{"send": {}}}
			for _, a := range m.actions {
				backlog.Lines = append(backlog.Lines, Line{Tenant: a.tenant, Type: a.kind,
					Settings: Tenant{Weight: 1}, Left: NoLimit, Waiting: []Waiting{a.waiting}})
			}
			whole, free := queued(backlog), m.freeFor(10_000)
			whole.Bounds = noBounds{}
			b.ReportAllocs()
			for b.Loop() {
				Divide(whole, free)
			}
		})
	}
}
