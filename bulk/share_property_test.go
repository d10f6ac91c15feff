package bulk

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// drawMarket draws a market of equal or weighted tenants with random actions.
func drawMarket(t *rapid.T, m *market, weighted bool) {
	for i := range rapid.IntRange(1, 12).Draw(t, "tenants") {
		name := fmt.Sprintf("t%02d", i)
		weight := 1.0
		if weighted {
			weight = rapid.SampledFrom([]float64{0.1, 0.5, 1, 2, 3, 7.5, 100}).Draw(t, "weight")
		}
		m.tenant(name, weight, rapid.SampledFrom([]int64{0, 0, 0, 1, 5, 50}).Draw(t, "limit"))
		for range rapid.IntRange(1, 4).Draw(t, "actions") {
			a := m.submit(name, rapid.SampledFrom([]string{"send", "call"}).Draw(t, "type"),
				rapid.SampledFrom([]Class{High, Normal, Low}).Draw(t, "class"), rapid.Int64Range(1, 200).Draw(t, "jobs"))
			a.waiting.Target = rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "target")
			a.waiting.Key = rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "key")
			// Actions of one tenant and target share a limiter.
			a.waiting.Left = NoLimit
			if a.waiting.Target == "y" {
				a.waiting.Target, a.waiting.Left = "y of "+a.kind, 9
			}
		}
	}
}

// drawWindow begins a window of the tenants' limits, and draws what is left of the others.
func drawWindow(t *rapid.T, m *market) (left int64, free Free) {
	for _, p := range m.tenants {
		p.left = p.limit
	}
	left = rapid.OneOf(rapid.Just(NoLimit), rapid.Int64Range(0, 300)).Draw(t, "left")
	return left, Free{Total: rapid.Int64Range(0, 300).Draw(t, "free"), Types: map[string]int64{
		"send": rapid.Int64Range(0, 100).Draw(t, "send"), "call": rapid.Int64Range(0, 100).Draw(t, "call"),
	}}
}

// servable returns the maximum of jobs that could be granted: the maximum flow through the
// bounds. It serves jobs until none can be served; any order gives the same number if each
// job has one path.
func servable(m *market, b Backlog, free Free) int64 {
	capacity := max(0, min(b.Left, free.Total))
	var most int64
	types := map[string]int64{}
	for _, line := range b.Lines {
		var waiting int64
		for _, w := range line.Waiting {
			waiting += w.Jobs
		}
		types[line.Type] += min(waiting, line.Left)
	}
	for kind, n := range types {
		most += min(n, free.Types[kind])
	}
	return min(most, capacity)
}

func TestDivideConservesWork(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := newMarket(t)
		drawMarket(rt, m, true)
		// With one line for each tenant, and no targets, each job has one path.
		for _, a := range m.actions {
			a.kind = m.actions[slices.IndexFunc(m.actions, func(o *marketAction) bool { return o.tenant == a.tenant })].kind
			a.waiting.Left, a.waiting.Target = NoLimit, ""
		}
		for range rapid.IntRange(1, 8).Draw(rt, "rounds") {
			left, free := drawWindow(rt, m)
			want := servable(m, m.backlog(left), free)
			var got int64
			for _, n := range m.divide(left, free) {
				got += n
			}
			if got != want {
				rt.Fatalf("%d granted, %d could be served", got, want)
			}
		}
	})
}

// TestDivideLeavesNobodyWhoCouldBeServed checks, with every kind of bound at once, that no
// bound is exceeded (in divide), and that no waiting job could still be granted.
func TestDivideLeavesNobodyWhoCouldBeServed(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := newMarket(t)
		drawMarket(rt, m, true)
		for range rapid.IntRange(1, 8).Draw(rt, "rounds") {
			m.targets["x"] = rapid.Int64Range(0, 60).Draw(rt, "target x")
			left, free := drawWindow(rt, m)
			before := make([]int64, len(m.actions))
			for i, a := range m.actions {
				before[i] = a.granted
			}
			var total int64
			limiters, types := map[string]int64{}, map[string]int64{}
			m.divide(left, free)
			for i, a := range m.actions {
				n := a.granted - before[i]
				total += n
				types[a.kind] += n
				limiters[a.tenant+" "+a.kind+" "+a.waiting.Target] += n
			}
			for _, a := range m.actions {
				used := limiters[a.tenant+" "+a.kind+" "+a.waiting.Target]
				if a.waiting.Jobs > 0 && total < min(left, free.Total) && types[a.kind] < free.Types[a.kind] &&
					m.limitOf(a.tenant) > 0 && limitOr(m.targets, a.waiting.Target) > 0 && used < a.waiting.Left {
					rt.Fatalf("%d granted of %d and %d, but action %d of %s could be served", total, left, free.Total, a.waiting.Number, a.tenant)
				}
			}
		}
	})
}

// TestBackloggedTenantsStayEven checks that for tenants that wait all the time, the jobs
// granted, divided by the weight, differ by at most a job of each, over any span.
func TestBackloggedTenantsStayEven(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := newMarket(t)
		weighted := rapid.Bool().Draw(rt, "weighted")
		for i := range rapid.IntRange(2, 12).Draw(rt, "tenants") {
			name := fmt.Sprintf("t%02d", i)
			weight := 1.0
			if weighted {
				weight = rapid.SampledFrom([]float64{0.1, 0.5, 1, 2, 3, 7.5}).Draw(rt, "weight")
			}
			m.tenant(name, weight, 0)
			for range rapid.IntRange(1, 3).Draw(rt, "actions") {
				m.submit(name, "send", rapid.SampledFrom([]Class{High, Normal, Low}).Draw(rt, "class"), 1_000_000)
			}
		}
		type state map[string]float64
		states := []state{{}}
		for range rapid.IntRange(1, 25).Draw(rt, "windows") {
			// The bottleneck is the limit or the workers.
			if rapid.Bool().Draw(rt, "by limit") {
				m.window(rapid.Int64Range(0, 40).Draw(rt, "left"))
			} else {
				m.divide(NoLimit, Free{Total: 1000, Types: map[string]int64{"send": rapid.Int64Range(0, 40).Draw(rt, "workers")}})
			}
			now := state{}
			for name, p := range m.tenants {
				now[name] = float64(p.granted) / p.settings.Weight
			}
			for _, since := range states {
				for a := range now {
					for b := range now {
						bound := 1/m.tenants[a].settings.Weight + 1/m.tenants[b].settings.Weight + 1e-6
						if d := (now[a] - since[a]) - (now[b] - since[b]); d > bound {
							rt.Fatalf("over a span %s had %g for its weight, %s %g", a, now[a]-since[a], b, now[b]-since[b])
						}
						if d := now[a] - now[b]; d > max(1/m.tenants[a].settings.Weight, 1/m.tenants[b].settings.Weight)+1e-6 {
							rt.Fatalf("from the start %s had %g for its weight, %s %g", a, now[a], b, now[b])
						}
					}
				}
			}
			states = append(states, now)
		}
	})
}
