package bulk

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// keyedLines is a queue of actions of one type, as a store keeps it. It bounds targets only.
type keyedLines struct {
	x       *FairQueue
	tags    map[string]LineTags // by tenant
	virtual float64
	actions []*keyedAction
	full    map[string]bool // targets that take no more
	newest  bool            // the newest action has the highest priority, not the oldest
	now     time.Time
}

type keyedAction struct {
	Queued
	of            Holder
	jobs, granted int64
}

func newKeyedLines() *keyedLines {
	return &keyedLines{x: NewFairQueue(), tags: map[string]LineTags{}, full: map[string]bool{}, now: time.Unix(1_700_000_000, 0)}
}

func (k *keyedLines) Tenant(string) (settings Tenant, left int64, ends time.Time) {
	return Tenant{Weight: 1}, NoLimit, k.now.Add(time.Second)
}

func (k *keyedLines) Target(name string) int64 {
	if k.full[name] {
		return 0
	}
	return NoLimit
}

func (k *keyedLines) Limiter(Holder) int64 { return NoLimit }

func (k *keyedLines) add(tenant, target, key string, class Class, jobs int64) *keyedAction {
	a := &keyedAction{Queued: Queued{Number: uint64(len(k.actions)), Class: class, Key: key}, of: Holder{tenant, "send", target}, jobs: jobs}
	k.actions = append(k.actions, a)
	k.set(a)
	return a
}

func (k *keyedLines) set(a *keyedAction) {
	priority := -float64(a.Number)
	if k.newest {
		priority = -priority
	}
	k.x.Set(&a.Queued, a.of, k.tags[a.of.Tenant], priority, a.jobs, a.granted)
}

// divide makes one division of n grants.
func (k *keyedLines) divide(n int64) []Grant {
	k.x.Advance(k.now, k.virtual, func(string) float64 { return k.virtual })
	b := &Backlog{Now: k.now, WindowEnds: k.now.Add(time.Second), Left: NoLimit, Virtual: k.virtual, Queue: k.x, Bounds: k}
	grants, _ := Divide(b, Free{Total: n, Types: map[string]int64{"send": n}})
	return grants
}

// serve divides, and admits what is granted.
func (k *keyedLines) serve(n int64) {
	touched := map[uint64]bool{}
	for _, g := range k.divide(n) {
		a := k.actions[g.Number]
		a.jobs, a.granted = a.jobs-g.Jobs, a.granted+g.Jobs
		t := k.tags[a.of.Tenant]
		t.Taken, k.virtual = Charge(t.Taken, k.virtual, g.Jobs, 1)
		t.TypeTaken, t.Granted = t.Taken, t.Granted+g.Jobs
		k.tags[a.of.Tenant] = t
		touched[g.Number] = true
	}
	for number := range touched { // in whatever order
		k.set(k.actions[number])
	}
}

// granted counts what keys were granted, of all tenants.
func (k *keyedLines) grantedTo(tenant, key string) (n int64) {
	for _, a := range k.actions {
		if a.of.Tenant == tenant && a.Key == key {
			n += a.granted
		}
	}
	return n
}

// TestKeysOfATenantHaveEqualParts: a customer with very much beside one with little, in one target and in
// targets of their own.
func TestKeysOfATenantHaveEqualParts(t *testing.T) {
	for _, c := range []struct {
		name          string
		actions, jobs int64
		target        string
	}{
		{"10,000 actions", 10_000, 1, "shop"},
		{"10,000 jobs in one action", 1, 10_000, "shop"},
		{"10,000 actions for a target of its own", 10_000, 1, "own"},
		{"10,000 jobs for a target of its own", 1, 10_000, "own"},
	} {
		k := newKeyedLines()
		for range c.actions {
			k.add("t", "shop", "whale", Normal, c.jobs)
		}
		k.serve(500) // before the other comes
		before := k.grantedTo("t", "whale")
		k.add("t", c.target, "minnow", Normal, 200)
		for i := range int64(50) {
			k.serve(1 + i%12)
		}
		whale, minnow := k.grantedTo("t", "whale")-before, k.grantedTo("t", "minnow")
		if share := float64(minnow) / float64(whale+minnow); whale+minnow < 300 || share < 0.45 || share > 0.55 {
			t.Errorf("%s: the whale has %d and the minnow %d, want even", c.name, whale, minnow)
		}
	}
}

// TestKeysTakeTurns is the table of docs/bulk/fairness.md.
func TestKeysTakeTurns(t *testing.T) {
	k, served := newKeyedLines(), ""
	k.add("t", "shop", "a", Normal, 10_000)
	k.add("t", "shop", "b", Normal, 2)
	for job := range 11 {
		if job == 6 {
			k.add("t", "own", "c", Normal, 100)
		}
		before := map[string]int64{}
		for _, key := range []string{"a", "b", "c"} {
			before[key] = k.grantedTo("t", key)
		}
		k.serve(1)
		for key, n := range before {
			if k.grantedTo("t", key) > n {
				served += key
			}
		}
	}
	if served != "ababaacacac" {
		t.Errorf("served were the keys %s, want ababaacacac", served)
	}
}

// TestAKeyThatComesAndGoesHasItsPart: a customer that always has one job to do, and the next when it was
// admitted, has no more than one with many that wait.
func TestAKeyThatComesAndGoesHasItsPart(t *testing.T) {
	k := newKeyedLines()
	k.newest = true
	steady := k.add("t", "shop", "steady", Normal, 1000)
	for i := range int64(200) {
		k.divide(0) // it has left
		if last := k.actions[len(k.actions)-1]; last == steady || last.jobs == 0 {
			k.add("t", "shop", "drops", Normal, 1)
		}
		k.serve(1 + i%2)
	}
	if drops := k.grantedTo("t", "drops"); drops > steady.granted+1 || drops < 90 {
		t.Errorf("what comes by drops was granted %d, what waits %d", drops, steady.granted)
	}
}

// TestAKeyWhoseTargetIsFullGainsNothing: nor does it delay others.
func TestAKeyWhoseTargetIsFullGainsNothing(t *testing.T) {
	k := newKeyedLines()
	held, other := k.add("t", "own", "held", Normal, 1000), k.add("t", "shop", "other", Normal, 1000)
	k.full["own"] = true
	for range 20 {
		k.serve(10)
	}
	if other.granted != 200 {
		t.Errorf("%d granted while a key was held, want all 200", other.granted)
	}
	k.full["own"] = false
	for range 20 {
		k.serve(10)
	}
	if held.granted < 99 || held.granted > 101 {
		t.Errorf("of 200 granted since, the key that was held has %d, want half", held.granted)
	}
}

// TestSplittingOverKeysGainsNothing: a tenant with very many keys has no more than one with a single key.
func TestSplittingOverKeysGainsNothing(t *testing.T) {
	k := newKeyedLines()
	for i := range 10_000 {
		k.add("flooder", "shop", fmt.Sprint(i), Normal, 2)
	}
	other := k.add("other", "shop", "", Normal, 10_000)
	for range 50 {
		k.serve(7)
	}
	if other.granted != 175 {
		t.Errorf("of 350 granted, the tenant with one key has %d, want 175", other.granted)
	}
}

// TestDivideLooksAtTheKeysItServes: of 10,000 keys in one lane it looks at those that it serves, and at the
// next one.
func TestDivideLooksAtTheKeysItServes(t *testing.T) {
	k := newKeyedLines()
	for i := range 10_000 {
		k.add("t", "shop", fmt.Sprint(i), Normal, 2)
	}
	for round := range 3 {
		k.serve(10)
		looked := 0
		for _, key := range k.x.keys {
			if key.division == k.x.divisions {
				looked++
			}
		}
		if looked > 11 {
			t.Errorf("round %d: %d keys were looked at for 10 grants", round, looked)
		}
	}
}

// TestKeysThatWaitStayEven: whatever else comes and goes, two keys of one line and class that wait from
// the beginning are never apart by more than a job, and by more than two over any span.
func TestKeysThatWaitStayEven(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		k := newKeyedLines()
		classes := rapid.SliceOfN(rapid.SampledFrom(classes[:]), 1, 3).Draw(rt, "classes")
		targets := []string{"x", "y", "z"}
		for _, class := range classes {
			for _, key := range []string{"a", "b"} {
				for range rapid.IntRange(1, 3).Draw(rt, "actions") {
					k.add("t", rapid.SampledFrom(targets).Draw(rt, "target"), key, class, 10_000)
				}
			}
		}
		apart := func(class Class) (d int64) {
			for _, a := range k.actions {
				switch {
				case a.Class == class && a.Key == "a":
					d += a.granted
				case a.Class == class && a.Key == "b":
					d -= a.granted
				}
			}
			return d
		}
		for range rapid.IntRange(1, 40).Draw(rt, "rounds") {
			for range rapid.IntRange(0, 2).Draw(rt, "arrivals") {
				tenant, key := rapid.SampledFrom([]string{"t", "t", "u"}).Draw(rt, "tenant"), rapid.SampledFrom([]string{"", "c", "d"}).Draw(rt, "key")
				k.add(tenant, rapid.SampledFrom(targets).Draw(rt, "target"), key, rapid.SampledFrom(classes).Draw(rt, "class"), rapid.Int64Range(1, 9).Draw(rt, "jobs"))
			}
			if at := rapid.IntRange(0, len(k.actions)-1).Draw(rt, "leaves"); k.actions[at].Key != "a" && k.actions[at].Key != "b" {
				k.actions[at].jobs = 0
				k.set(k.actions[at])
			}
			k.serve(rapid.Int64Range(1, 15).Draw(rt, "grants"))
			for _, class := range classes {
				if d := apart(class); d > 1 || d < -1 {
					rt.Fatalf("in class %v one key has had %d more", class, d)
				}
			}
		}
	})
}

// TestKeysThatLeftAreForgotten checks the bound of what is kept of keys that do not wait.
func TestKeysThatLeftAreForgotten(t *testing.T) {
	k := newKeyedLines()
	k.add("t", "shop", "first", High, 1)
	k.add("t", "shop", "waits", Normal, 1)
	for i := range 3 * maxGone {
		a := k.add("t", "shop", fmt.Sprint(i), Normal, 1)
		a.jobs, a.granted = 0, 1
		k.set(a)
		k.x.Advance(k.now, 0, func(string) float64 { return 0 })
	}
	if n := len(k.x.keys); n > maxGone+2 {
		t.Errorf("%d keys are kept", n)
	}
	for _, a := range k.actions {
		a.jobs = 0
		k.set(a)
	}
	k.x.Advance(k.now, 0, func(string) float64 { return 0 })
	if n := len(k.x.keys) + len(k.x.places); n > 0 {
		t.Errorf("%d keys are kept of a line without jobs", n)
	}
}

// BenchmarkKeys divides among the keys of one lane, admits what is granted and tells the queue: an
// iteration is one grant, of divisions of ten.
func BenchmarkKeys(b *testing.B) {
	for _, keys := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			k := newKeyedLines()
			for i := range 10_000 {
				k.add("t", "shop", fmt.Sprint(i%keys), Normal, 1_000_000)
			}
			k.serve(10)
			b.ReportAllocs()
			b.ResetTimer()
			for i := 0; i < b.N; i += 10 {
				k.serve(10)
			}
		})
	}
}
