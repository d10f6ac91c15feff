package bulk

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// sequences returns the jobs of grants, one by one, by the number of their action: of each type,
// or of all types, under "", if they share a limit that is scarce.
func (m *market) sequences(grants []Grant, left int64, free Free) map[string][]uint64 {
	jobs := map[string][]uint64{}
	for _, g := range grants {
		kind := ""
		if !m.byLimit(left, free) {
			kind = m.actions[g.Number-1].kind
		}
		for range g.Jobs {
			jobs[kind] = append(jobs[kind], g.Number)
		}
	}
	return jobs
}

// whole returns a backlog with the totals that stores give.
func (m *market) whole(left int64) Backlog {
	b := m.backlog(left)
	for _, line := range b.Lines {
		state := b.Types[line.Type]
		state.Lines++
		for _, w := range line.Waiting {
			state.Waiting += w.Jobs
		}
		b.Types[line.Type] = state
	}
	return b
}

func (m *market) byLimit(left int64, free Free) bool {
	return min(left, free.Total) < demand(m.whole(left), free)
}

func drawFree(t *rapid.T) (int64, Free) {
	return rapid.OneOf(rapid.Just(NoLimit), rapid.Int64Range(0, 60)).Draw(t, "left"), Free{
		Total: rapid.Int64Range(0, 100).Draw(t, "free"), Types: map[string]int64{
			"send": rapid.Int64Range(0, 60).Draw(t, "send"), "call": rapid.Int64Range(0, 60).Draw(t, "call"),
		},
	}
}

// TestPartOfABacklogGetsTheSameGrants checks that the grants of a part of the backlog are the
// first ones of the whole backlog, and all once the part is large enough.
func TestPartOfABacklogGetsTheSameGrants(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := newMarket(t)
		mixed := rapid.Bool().Draw(rt, "mixed")
		for i := range rapid.IntRange(1, 30).Draw(rt, "tenants") {
			name, kind := fmt.Sprintf("t%02d", i), rapid.SampledFrom([]string{"send", "call"}).Draw(rt, "type")
			m.tenant(name, rapid.SampledFrom([]float64{0.5, 1, 1, 3, 7.5}).Draw(rt, "weight"), 0)
			for range rapid.IntRange(1, 6).Draw(rt, "actions") {
				if mixed && rapid.Bool().Draw(rt, "other") {
					kind = map[string]string{"send": "call", "call": "send"}[kind]
				}
				m.submit(name, kind, rapid.SampledFrom([]Class{High, Normal, Low}).Draw(rt, "class"), rapid.Int64Range(1, 20).Draw(rt, "jobs"))
			}
		}
		for range rapid.IntRange(1, 8).Draw(rt, "rounds") {
			left, free := drawFree(rt)
			if mixed && !m.byLimit(left, free) {
				continue // equal tags of a type are ordered by what its tenants get of the other
			}
			want := m.sequences(Divide(m.whole(left), free, time.Second), left, free)
			for most := 1; ; most *= 2 {
				b := m.whole(left)
				b.Cut(most, time.Second)
				grants, reach := divide(b, free, time.Second)
				got := m.sequences(grants, left, free)
				for kind, jobs := range got {
					if len(jobs) > len(want[kind]) || !slices.Equal(jobs, want[kind][:len(jobs)]) {
						rt.Fatalf("with %d actions %q %d, want %d first", most, kind, jobs, want[kind])
					}
				}
				if len(reach.short) == 0 || !b.More {
					if !maps.EqualFunc(got, want, slices.Equal) {
						rt.Fatalf("with %d actions %v, want %v, and nothing is short", most, got, want)
					}
					break
				}
			}
			m.divide(left, free)
		}
	})
}

// TestPartsOfABacklogStayEven is TestBackloggedTenantsStayEven where few actions are seen.
func TestPartsOfABacklogStayEven(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := newMarket(t)
		for i := range rapid.IntRange(2, 40).Draw(rt, "tenants") {
			name := fmt.Sprintf("t%02d", i)
			m.tenant(name, rapid.SampledFrom([]float64{0.5, 1, 1, 2, 3}).Draw(rt, "weight"), 0)
			for range rapid.IntRange(1, 3).Draw(rt, "actions") {
				m.submit(name, "send", rapid.SampledFrom([]Class{High, Normal, Low}).Draw(rt, "class"), 1_000_000)
			}
		}
		for range rapid.IntRange(1, 60).Draw(rt, "windows") {
			left, free := NoLimit, Free{Total: 1000, Types: map[string]int64{"send": 30}}
			if rapid.Bool().Draw(rt, "by limit") {
				left, free = 30, m.freeFor(math.MaxInt32)
			}
			b := m.whole(left)
			b.Cut(rapid.IntRange(1, 20).Draw(rt, "most"), time.Second)
			grants := Divide(b, free, time.Second)
			if len(grants) == 0 {
				rt.Fatal("nothing was granted")
			}
			for _, g := range grants {
				m.advance(m.actions[g.Number-1], g.Jobs)
			}
			for a, p := range m.tenants {
				for b, q := range m.tenants {
					d := float64(p.granted)/p.settings.Weight - float64(q.granted)/q.settings.Weight
					if d > max(1/p.settings.Weight, 1/q.settings.Weight)+1e-6 {
						rt.Fatalf("%s had %d, %s had %d", a, p.granted, b, q.granted)
					}
				}
			}
		}
	})
}

// indexed is an action of the naive index.
type indexed struct {
	Queued
	of       Holder
	priority float64
	class    Class
	jobs     int64
}

// indexModel is Lines and what it should have.
type indexModel struct {
	x       *Lines
	actions []*indexed
	tags    map[string]float64 // by tenant, and by tenant and type
	granted map[string]int64
	virtual map[string]float64 // by type; "" is that of the limit
}

func (m *indexModel) lineTags(of Holder) LineTags {
	return LineTags{m.tags[of.Tenant], m.tags[of.Tenant+of.Type], m.granted[of.Tenant+of.Type]}
}

func (m *indexModel) set(a *indexed) {
	m.x.Set(&a.Queued, a.of, m.lineTags(a.of), a.class, a.priority, a.jobs)
}

// head returns the action that goes first in a lane; nil if none waits.
func (m *indexModel) head(of Holder) (first *indexed) {
	low := m.granted[of.Tenant+of.Type]%lowEvery == lowEvery-1
	rank := func(a *indexed) int {
		if low && a.class == Low {
			return -1
		}
		return classRank(a.class)
	}
	for _, a := range m.actions {
		if a.of == of && a.jobs > 0 && (first == nil || cmp.Or(cmp.Compare(rank(a), rank(first)), cmp.Compare(first.priority, a.priority)) < 0) {
			first = a
		}
	}
	return first
}

// inOrder returns the heads of the lanes of a pool, in one of its orders.
func (m *indexModel) inOrder(of Holder, byTenant int) (heads []uint64) {
	lanes := map[Holder]*indexed{}
	for _, a := range m.actions {
		if a.jobs > 0 && a.of.Type == of.Type && a.of.Target == of.Target {
			lanes[a.of] = m.head(a.of)
		}
	}
	key := func(of Holder) [2]float64 {
		tags := [2]float64{max(m.tags[of.Tenant+of.Type], m.virtual[of.Type]), max(m.tags[of.Tenant], m.virtual[""])}
		return [2]float64{tags[byTenant], tags[1-byTenant]}
	}
	for _, of := range slices.SortedFunc(maps.Keys(lanes), func(a, b Holder) int {
		x, y := key(a), key(b)
		return cmp.Or(cmp.Compare(x[0], y[0]), cmp.Compare(x[1], y[1]), cmp.Compare(classRank(lanes[a].class), classRank(lanes[b].class)),
			cmp.Compare(lanes[b].priority, lanes[a].priority), cmp.Compare(a.Tenant, b.Tenant))
	}) {
		heads = append(heads, lanes[of].Number)
	}
	return heads
}

// compare checks the index against a scan of all actions.
func (m *indexModel) compare(t *rapid.T) {
	m.x.Advance(m.virtual[""], func(name string) float64 { return m.virtual[name] })
	var want, got []uint64
	jobs, lines := map[string]int64{}, map[string]map[string]bool{"a": {}, "b": {}}
	pools := map[Holder]bool{}
	for _, a := range m.actions {
		if a.jobs > 0 {
			want = append(want, a.Number)
			jobs[a.of.Type] += a.jobs
			lines[a.of.Type][a.of.Tenant] = true
			pools[Holder{Type: a.of.Type, Target: a.of.Target}] = true
		}
	}
	m.x.All(func(q *Queued) { got = append(got, q.Number) })
	slices.Sort(got)
	if !slices.Equal(got, want) || m.x.Actions() != len(want) {
		t.Fatalf("it has %d, %d actions, want %d", got, m.x.Actions(), want)
	}
	for name := range lines {
		if n, in := m.x.Waiting(name); n != jobs[name] || in != len(lines[name]) {
			t.Fatalf("type %s: %d jobs in %d lines, want %d in %d", name, n, in, jobs[name], len(lines[name]))
		}
	}
	for of := range pools {
		for order := range 2 {
			var got []uint64
			for w := m.x.types[of.Type].pools[of.Target].orders[order].Walk(); ; {
				l := w.Next()
				if l == nil {
					break
				}
				got = append(got, l.head.Number)
			}
			if want := m.inOrder(of, order); !slices.Equal(got, want) {
				t.Fatalf("pool %v, order %d: %d, want %d", of, order, got, want)
			}
		}
	}
	if len(want) == 0 && (len(m.x.tenants) != 0 || len(m.x.types) != 0) {
		t.Fatalf("without actions it has %d tenants and %d types", len(m.x.tenants), len(m.x.types))
	}
}

// TestLinesAreInOrder makes random changes, and compares the index with a scan.
func TestLinesAreInOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &indexModel{x: NewLines(), tags: map[string]float64{}, granted: map[string]int64{}, virtual: map[string]float64{}}
		draw := func(names ...string) string { return rapid.SampledFrom(names).Draw(rt, "name") }
		pick := func() *indexed { return rapid.SampledFrom(m.actions).Draw(rt, "action") }
		rt.Repeat(map[string]func(*rapid.T){
			"": m.compare,
			"add": func(rt *rapid.T) {
				a := &indexed{
					of:    Holder{draw("t", "u", "v", "w", "x"), draw("a", "b"), draw("y", "z")},
					class: rapid.SampledFrom([]Class{High, Normal, Low}).Draw(rt, "class"), jobs: 1,
				}
				// Priorities differ, so that the order is the only one.
				a.Number, a.priority = uint64(len(m.actions)), float64(len(m.actions)*7919%1000)
				m.actions = append(m.actions, a)
				m.set(a)
			},
			"change": func(rt *rapid.T) {
				if len(m.actions) > 0 {
					a := pick()
					a.jobs = rapid.Int64Range(0, 3).Draw(rt, "jobs")
					a.priority += float64(rapid.IntRange(0, 5).Draw(rt, "boost") * 1000)
					m.set(a)
				}
			},
			"charge": func(rt *rapid.T) {
				if len(m.actions) == 0 {
					return
				}
				a := pick()
				line := a.of.Tenant + a.of.Type
				n := rapid.Int64Range(1, 4).Draw(rt, "jobs")
				m.tags[a.of.Tenant], m.virtual[""] = Charge(m.tags[a.of.Tenant], m.virtual[""], n, 2)
				m.tags[line], m.virtual[a.of.Type] = Charge(m.tags[line], m.virtual[a.of.Type], n, 1)
				m.granted[line] += n
				m.set(a)
			},
			"park": func(rt *rapid.T) {
				name := draw("t", "u", "v")
				m.x.Park(name)
				m.x.Park(draw("w", "x"))
				if m.x.Unpark(name); rapid.Bool().Draw(rt, "all") {
					m.x.Park(name)
				}
				m.x.UnparkAll()
			},
		})
	})
}

// TestFirstKeepsToItsBound checks how many actions a part has, and that it has every target.
func TestFirstKeepsToItsBound(t *testing.T) {
	m := newMarket(t)
	for i := range 3000 {
		a := m.submit(fmt.Sprint("t", i%1000), "send", []Class{High, Normal, Low}[i%3], 5)
		if a.waiting.Target = "busy"; i%500 == 0 {
			a.waiting.Target = fmt.Sprint("other ", i)
		}
	}
	m.targets["other 500"] = 0
	for _, most := range []int{1, 10, 100, 1000, 2999, 3000} {
		b := m.whole(NoLimit)
		b.Cut(most, time.Second)
		targets, actions := map[string]bool{}, 0
		for _, line := range b.Lines {
			for _, w := range line.Waiting {
				targets[w.Target] = targets[w.Target] || !w.Rest
				actions++
			}
		}
		want := most + 6*10 // six targets, each with some more
		if actions > want || actions < min(most, 3000)/2 || b.More != (most < 3000) || targets["other 500"] != (most == 3000) || len(targets) < 6 {
			t.Errorf("most %d: %d actions, at most %d are wanted; more: %v, targets %v", most, actions, want, b.More, targets)
		}
	}
}

// TestTheFetcherLooksFurther checks how many actions it asks for.
func TestTheFetcherLooksFurther(t *testing.T) {
	types := map[string]bool{"send": true}
	now := time.Unix(1_700_000_000, 0)
	l := newLook(50)
	step := func(after time.Duration, granted int, r reach, want int, again bool) {
		t.Helper()
		now = now.Add(after)
		if got := l.next(now, true, 1000, granted, r); got != again || l.most != want {
			t.Errorf("it asks for %d, at once: %v; want %d, %v", l.most, got, want, again)
		}
	}
	step(0, 0, reach{}, 256, false)
	all := reach{granted: types, short: types, seen: 100, served: 100}
	step(0, 100, all, 1024, true)
	step(0, 400, all, 2256, true) // twice what could become ready, and a little
	step(0, 1000, reach{granted: types, seen: 1100, served: 1000}, 2000, false)
	step(0, 10, reach{granted: types, short: types, seen: 1000, served: 10}, 80, false)
	stuck := reach{short: types, seen: 30}
	step(0, 0, stuck, 32, false)
	step(stuckAfter/2, 0, stuck, 32, false)
	step(stuckAfter, 0, stuck, 128, true)
	for most := 512; most < 1_000_000; most *= 4 {
		step(time.Millisecond, 0, stuck, most, true)
	}
	step(0, 1, reach{granted: types, seen: 1}, 524288, false)
	step(2*lookFar, 1, reach{granted: types, seen: 1}, 256, false)
}
