package storetest

import (
	"fmt"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

var keyCases = []testCase{
	{"concurrency by key bounds what is in flight", false, keyConcurrency},
	{"every end of an attempt frees its key", false, keyEnds},
	{"rates by key are exact in every window", false, keyRates},
	{"smooth pacing by key holds in any second", false, keySmooth},
	{"rates by cost are paid", false, keyCost},
	{"what an attempt has really cost is settled", false, keyRealCost},
	{"jobs that wait for a rate by cost are turned aside once", false, keyCostWaits},
	{"a key is the tenant's, in all its actions", false, keyOfTenant},
	{"a job is held by all its keys", false, keySeveral},
	{"jobs without a key are not limited", false, keyNone},
	{"limits by key change at once", false, keyChanges},
	{"what waits for a key is canceled, and paused", false, keyTransitions},
	{"a place is kept for a job that cannot come, and not for long", false, keyKept},
	{"a place that nobody takes is free again, though others are taken", false, keyKeptBusy},
	{"a job that waits for a key tells it", false, keyShown},
	{"a tenant whose jobs wait for keys by the hundred thousand admits no more", false, keyBound},
	{"keys hold what is in flight over restarts", true, keyRestart},
	{"rates by key hold over restarts", true, keyRateRestart},
}

// flood has one key for the first ten jobs of an action, and another for each of the others.
const flood = `int(payload.n) < 10 ? "flood" : string(int(payload.n))`

// limitKeys sets the limits by key of a tenant.
func (k *kit) limitKeys(tenant string, keys map[string]bulk.KeyLimit) {
	k.t.Helper()
	k.set(bulk.SettingsChange{Name: tenant, Tenant: &bulk.Tenant{Keys: keys}})
}

// limitKey sets the limit of one expression.
func (k *kit) limitKey(expression string, l bulk.KeyLimit) {
	k.t.Helper()
	k.limitKeys("tenant", map[string]bulk.KeyLimit{expression: l})
}

// keyLimited counts the jobs of an action that wait for their key.
func (k *kit) keyLimited(id string) int64 {
	k.t.Helper()
	c := k.action(id).Counts
	k.check(c.NonReadyTotal() == c.NonReady[bulk.KeyLimited], "%s: turned back for %v, want only key_limited", id, c.NonReady)
	return c.NonReady[bulk.KeyLimited]
}

// pass admits and leases what may pass now.
func (k *kit) pass() []bulk.Job {
	k.t.Helper()
	k.admitAll()
	return k.lease(100)
}

func keyConcurrency(k *kit) {
	k.open(unlimited())
	k.limitKey(flood, bulk.KeyLimit{Concurrency: 2})
	k.run(spec("a", "tenant"), 14)
	jobs := k.pass()
	k.expectIndexes(jobs, 0, 1, 10, 11, 12, 13)
	k.check(k.keyLimited("a") == 8, "%d jobs wait for their key, want 8", k.keyLimited("a"))
	k.check(k.admitAll() == 0 && len(k.lease(10)) == 0, "jobs that wait for their key were admitted")
	moved, next := k.dispatch(10)
	k.check(moved == 0 && next.After(time.Now().Add(10*time.Second)), "Dispatch moved %d jobs whose key is full, and is next due at %v", moved, next)
	k.succeed(jobs[2:]...)
	k.check(k.keyLimited("a") == 8, "other keys freed jobs that wait for theirs")
	running := jobs[:2]
	for first := int64(2); first < 10; first++ {
		k.succeed(running[0])
		k.check(k.keyLimited("a") == 9-first, "with job %d started, %d jobs wait for their key: each is turned aside once", first, k.keyLimited("a"))
		next := k.pass()
		k.expectIndexes(next, first)
		k.check(next[0].Attempt == 1, "waiting for a key used an attempt")
		running = append(running[1:], next...)
	}
	k.succeed(running...)
	k.expect("a", where{Succeeded: 14})
}

func keyEnds(k *kit) {
	k.open(unlimited())
	k.limitKey("tenant", bulk.KeyLimit{Concurrency: 1})
	k.run(spec("a", "tenant"), 8)
	for _, kind := range []bulk.SettlementKind{bulk.Succeeded, bulk.FailedForGood, bulk.FailedForNow, bulk.Throttled, bulk.Released} {
		jobs := k.pass()
		k.check(len(jobs) == 1, "before kind %d: %d jobs started, want 1", kind, len(jobs))
		k.settle(bulk.Settlement{Kind: kind, RetryAfter: time.Hour}, jobs...)
		k.advance(time.Second) // congestion control lets none start in the window of a throttle
	}
	k.check(len(k.pass()) == 1, "not one started before the lease expires")
	k.advance(31 * time.Second)
	k.dispatch(10)
	jobs := k.pass()
	k.check(len(jobs) == 1, "%d jobs started when the lease of the first had expired, want 1", len(jobs))
	k.settle(bulk.Settlement{Kind: bulk.Extended, LeaseFor: time.Minute}, jobs...)
	k.check(len(k.pass()) == 0, "an extension freed the key")
}

func keyRates(k *kit) {
	for _, c := range []struct {
		window time.Duration
		rate   float64
	}{{time.Second, 7}, {time.Second, 2.5}, {100 * time.Millisecond, 2.5}, {time.Minute, 0.25}} {
		config := unlimited()
		config.Window = c.window
		k.open(config)
		k.limitKey(`string(int(payload.n) % 2)`, bulk.KeyLimit{RequestsPerSecond: c.rate})
		k.run(spec("a", "tenant"), 700)
		k.advance(3 * c.window)
		for range 20 {
			allowed := budget(c.rate, c.window, windowIndex(c.window))
			got := [2]int64{}
			k.dispatch(1000)
			k.admitAll()
			for _, j := range k.lease(700) {
				got[j.Index%2]++
				k.succeed(j)
			}
			k.check(got == [2]int64{allowed, allowed}, "%g/s in windows of %v: %v started with the two keys, want %d each", c.rate, c.window, got, allowed)
			k.dispatch(1000)
			k.check(len(k.pass()) == 0, "%g/s: more passed in the same window", c.rate)
			k.advance(c.window)
		}
		moved, next := k.dispatch(1000)
		k.check(moved > 0 || next.After(time.Now()) && next.Before(time.Now().Add(10*c.window+10*time.Second)), "Dispatch is next due at %v", next)
	}
}

func keySmooth(k *kit) {
	k.open(unlimited())
	k.limitKey(`string(int(payload.n) % 2)`, bulk.KeyLimit{RequestsPerSecond: 20, Pacing: bulk.PaceSmooth})
	k.run(spec("a", "tenant"), 400)
	var starts [2][]time.Time
	for began := time.Now(); time.Since(began) < 2500*time.Millisecond; k.advance(15 * time.Millisecond) {
		k.dispatch(100)
		for _, j := range k.pass() {
			starts[j.Index%2] = append(starts[j.Index%2], time.Now())
			k.succeed(j)
		}
	}
	for key := range starts {
		k.check(len(starts[key]) >= 42, "%d started with a key in 2.5 s, want nearly 20 a second", len(starts[key]))
		for i, start := range starts[key] {
			k.check(i < 20 || start.Sub(starts[key][i-20]) >= time.Second, "more than 20 started with a key within a second")
		}
	}
}

// keyCost compares what starts in each window with a rate by cost: while anything is left, a job
// starts, and what it takes beyond that is taken from the next windows.
func keyCost(k *kit) {
	for _, c := range []struct {
		rate   float64
		cost   int64
		pacing bulk.Pacing
	}{{10, 3, ""}, {10, 25, ""}, {2.5, 4, ""}, {0.3, 2, ""}, {100, 7, bulk.PaceSmooth}} {
		k.open(unlimited())
		k.limitKey("tenant", bulk.KeyLimit{RequestsPerSecond: c.rate, Cost: fmt.Sprint(c.cost), Pacing: c.pacing})
		k.run(spec("a", "tenant"), 400)
		l := bulk.Limit{RequestsPerSecond: c.rate, Pacing: c.pacing}
		step := l.Window(time.Second)
		k.advance(3 * time.Second)
		debt, total := int64(0), 0
		for range 60 {
			left := budget(l.Paced(), step, windowIndex(step)) - debt
			want := 0
			for ; left > 0; left -= c.cost {
				want++
			}
			k.dispatch(1000)
			jobs := k.pass()
			k.check(len(jobs) == want, "%+v: %d started in a window that owes %d, want %d", c, len(jobs), debt, want)
			k.succeed(jobs...)
			debt, total = max(0, -left), total+len(jobs)
			k.advance(step)
		}
		k.check(total > 0, "%+v: nothing started", c)
	}
}

func keyRealCost(k *kit) {
	k.open(unlimited())
	k.limitKeys("tenant", map[string]bulk.KeyLimit{"tenant": {RequestsPerSecond: 10, Cost: "cost"}, "type": {RequestsPerSecond: 100}})
	s := spec("a", "tenant")
	s.Cost = 5
	k.run(s, 50)
	k.advance(time.Second)
	starts := func(want int, why string) []bulk.Job {
		k.t.Helper()
		k.dispatch(100)
		jobs := k.pass()
		k.check(len(jobs) == want, "%s: %d started, want %d", why, len(jobs), want)
		return jobs
	}
	jobs := starts(2, "two of 5 in a window of 10")
	k.settle(bulk.Settlement{Kind: bulk.Succeeded, Cost: 1}, jobs[0])
	jobs = append(jobs[1:], starts(1, "one has cost 1, so 4 are left")...)
	k.advance(time.Second)
	jobs = append(jobs, starts(2, "1 was owed")...)
	k.settle(bulk.Settlement{Kind: bulk.Succeeded, Cost: 25}, jobs[0])
	k.settle(bulk.Settlement{Kind: bulk.FailedForNow, RetryAfter: time.Hour}, jobs[1:]...)
	k.advance(time.Second)
	starts(0, "20 more were owed")
	k.advance(time.Second)
	starts(0, "the first window has paid 10")
	k.advance(time.Second)
	k.succeed(starts(2, "1 and 10 were paid")...)
	k.advance(time.Second)
	k.settle(bulk.Settlement{Kind: bulk.Succeeded, Cost: 1 << 40}, starts(2, "nothing is owed but 1")...)
	k.advance(100_000 * time.Second)
	starts(0, "no more than the most is owed")
	k.advance(100_100 * time.Second)
	starts(2, "the most is paid twice")
}

func keyCostWaits(k *kit) {
	k.open(unlimited())
	k.limitKey("tenant", bulk.KeyLimit{RequestsPerSecond: 1000, Cost: "400"})
	k.run(spec("a", "tenant"), 30)
	k.advance(time.Second)
	left := int64(30)
	for left > 0 {
		k.dispatch(1000)
		jobs := k.pass()
		left -= int64(len(jobs))
		k.check(len(jobs) > 0 && len(jobs) <= 3, "%d started, want two or three of 400 in a window of 1,000", len(jobs))
		k.check(k.keyLimited("a") == left, "%d jobs wait for their key, want %d", k.keyLimited("a"), left)
		moved, _ := k.dispatch(1000)
		k.check(moved == 0, "Dispatch moved %d jobs that the window cannot take", moved)
		k.succeed(jobs...)
		k.advance(time.Second)
	}
}

func keyOfTenant(k *kit) {
	k.open(unlimited())
	k.limitKey(`"all of them"`, bulk.KeyLimit{Concurrency: 3})
	k.limitKeys("other", map[string]bulk.KeyLimit{`"all of them"`: {Concurrency: 2}})
	k.run(spec("a", "tenant"), 5)
	k.run(targeted("b", "tenant", "api"), 5)
	k.run(spec("c", "other"), 5)
	k.run(spec("d", "third"), 5)
	started := map[string]int{}
	for _, j := range k.pass() {
		started[j.Spec.Tenant]++
	}
	k.check(started["tenant"] == 3 && started["other"] == 2 && started["third"] == 5, "started by tenant: %v, want 3, 2, and the 5 that have no limit", started)
}

func keySeveral(k *kit) {
	k.open(unlimited())
	byTwo, byThree := `string(int(payload.n) % 2)`, `string(int(payload.n) % 3)`
	k.limitKeys("tenant", map[string]bulk.KeyLimit{byTwo: {Concurrency: 2}, byThree: {Concurrency: 1}})
	k.run(spec("a", "tenant"), 60)
	running, done := map[int64]bulk.Job{}, 0
	for round := 0; done < 60 && round < 200; round++ {
		for _, j := range k.pass() {
			running[j.Index] = j
		}
		var twos [2]int
		var threes [3]int
		for index := range running {
			twos[index%2]++
			threes[index%3]++
		}
		k.check(max(twos[0], twos[1]) <= 2 && max(threes[0], threes[1], threes[2]) <= 1, "in flight by key: %v and %v, want at most 2 and 1", twos, threes)
		for index, j := range running {
			k.succeed(j)
			delete(running, index)
			done++
			break
		}
		if len(running) == 0 {
			k.advance(bulk.KeyKept)
		}
		k.dispatch(100)
	}
	k.check(done == 60, "%d of 60 jobs ended: %+v", done, k.action("a").Counts)
}

func keyNone(k *kit) {
	k.open(unlimited())
	k.limitKeys("tenant", map[string]bulk.KeyLimit{
		"payload.missing": {Concurrency: 1}, `""`: {Concurrency: 1}, "[payload.n][0] == 1.0 ? null : payload": {Concurrency: 1}, "1 / 0": {Concurrency: 1},
	})
	k.run(spec("a", "tenant"), 5)
	k.check(len(k.pass()) == 5, "jobs without a key were limited")
}

func keyChanges(k *kit) {
	k.open(unlimited())
	expression := `"one"`
	k.limitKey(expression, bulk.KeyLimit{Concurrency: 2})
	k.run(spec("a", "tenant"), 30)
	jobs := k.pass()
	k.check(len(jobs) == 2, "%d started, want 2", len(jobs))
	change := func(l bulk.KeyLimit, want int) {
		k.t.Helper()
		k.limitKey(expression, l)
		k.dispatch(100)
		more := k.pass()
		k.check(len(more) == want, "%+v: %d more started, want %d", l, len(more), want)
		jobs = append(jobs, more...)
	}
	change(bulk.KeyLimit{Concurrency: 5}, 3)
	change(bulk.KeyLimit{Concurrency: 3}, 0)
	k.succeed(jobs[:2]...)
	k.dispatch(100)
	k.check(len(k.pass()) == 0, "lowered to 3 with 3 in flight, more were started")
	k.succeed(jobs[2])
	jobs = append(jobs[3:], k.pass()...)
	k.check(len(jobs) == 3, "%d in flight, want 3", len(jobs))
	change(bulk.KeyLimit{Concurrency: 4, RequestsPerSecond: 1000}, 1)
	k.limitKeys("tenant", nil)
	k.dispatch(100)
	more := k.pass()
	k.check(len(more) == 30-3-4, "without the limit %d more were started, want all %d", len(more), 30-3-4)
	k.succeed(append(jobs, more...)...)
	k.expect("a", where{Succeeded: 30})
}

func keyTransitions(k *kit) {
	k.open(unlimited())
	k.limitKey("tenant", bulk.KeyLimit{Concurrency: 1})
	for _, id := range []string{"a", "b", "c"} {
		k.run(spec(id, "tenant"), 3)
	}
	running := k.pass()
	k.check(len(running) == 1 && running[0].Spec.ID == "a", "%d started, want the first of a", len(running))
	k.transition("b", bulk.Transition{Kind: bulk.Pause})
	k.transition("c", bulk.Transition{Kind: bulk.Cancel})
	k.expect("c", where{Canceled: 3})
	for range 2 { // those of c are passed over, and those of b return to their line
		k.succeed(running...)
		k.dispatch(100)
		running = k.pass()
		k.check(len(running) == 1 && running[0].Spec.ID == "a", "%d started, want the next of a", len(running))
	}
	k.transition("b", bulk.Transition{Kind: bulk.Resume})
	k.succeed(running...)
	for range 3 {
		k.dispatch(100)
		running = k.pass()
		k.check(len(running) == 1 && running[0].Spec.ID == "b", "%d started, want one of b", len(running))
		k.succeed(running...)
	}
	k.check(k.backlog().NonReady == [4]int64{}, "non-ready %v, want none", k.backlog().NonReady)
}

func keyKept(k *kit) {
	k.open(unlimited())
	k.limitKey("tenant", bulk.KeyLimit{Concurrency: 1})
	k.run(spec("a", "tenant"), 1)
	running := k.pass()
	k.run(spec("b", "tenant"), 1)
	k.check(len(k.pass()) == 0, "a second job started with a key that may have one")
	k.succeed(running...)
	k.run(spec("c", "tenant"), 1)
	k.admit("c", 1)
	k.check(len(k.lease(1)) == 0, "a later job took the place that was kept for one that had waited")
	k.transition("b", bulk.Transition{Kind: bulk.Pause})
	_, next := k.dispatch(10)
	k.check(!next.IsZero() && next.Before(time.Now().Add(bulk.KeyKept+time.Second)), "Dispatch is next due at %v", next)
	k.advance(bulk.KeyKept)
	k.dispatch(10)
	running = k.pass()
	k.check(len(running) == 1 && running[0].Spec.ID == "c", "%d started when the place was no longer kept, want that of c", len(running))
	k.transition("b", bulk.Transition{Kind: bulk.Resume})
	k.check(len(k.pass()) == 0, "two jobs are in flight with a key that may have one")
	k.succeed(running...)
	k.check(len(k.pass()) == 1, "the job that had missed its place does not start")
}

func keyKeptBusy(k *kit) {
	k.open(unlimited())
	k.limitKey("tenant", bulk.KeyLimit{Concurrency: 2})
	k.run(spec("a", "tenant"), 50)
	running := k.pass()
	k.run(spec("b", "tenant"), 1)
	k.admit("b", 1)
	k.check(len(k.lease(10)) == 0, "a third job started with a key that may have two")
	for range 48 {
		k.succeed(running[0])
		running = append(running[1:], k.pass()...)
	}
	k.succeed(running[0])
	running = running[1:]
	k.expect("b", where{Pending: 1}) // a place is kept for it
	k.transition("b", bulk.Transition{Kind: bulk.Pause})
	k.run(spec("c", "tenant"), 100)
	for range 20 {
		k.advance(time.Second)
		k.dispatch(100)
		running = append(running, k.pass()...)
		k.succeed(running[0])
		running = running[1:]
	}
	k.check(len(running) == 1, "%d run besides the one that has ended, want one: a place is kept for a job that cannot come", len(running))
}

func keyShown(k *kit) {
	k.open(unlimited())
	k.limitKey("payload.action", bulk.KeyLimit{Concurrency: 1})
	k.run(spec("a", "tenant"), 2)
	k.pass()
	want := bulk.JobState{State: bulk.StateNonReady, Index: 1, Reason: bulk.KeyLimited, Key: bulk.JobKey{Expression: "payload.action", Key: "a"}, KeyHeld: 1}
	got, err := k.store.Job(ctx, "a", 1)
	k.must(err)
	want.Number = got.Number
	k.check(fmt.Sprint(got) == fmt.Sprint(want), "the state of the job that waits is %+v, want %+v", got, want)
}

func keyRestart(k *kit) {
	for name, restart := range k.restarts() {
		k.open(unlimited())
		k.limitKey(flood, bulk.KeyLimit{Concurrency: 3})
		k.run(spec("a", "tenant"), 12)
		local := request(2)
		local.Local = true
		k.admitAll()
		k.leaseAs(local)
		remote := k.lease(100)
		k.expectIndexes(remote, 2, 10, 11)
		restart()
		k.advance(time.Second)
		k.dispatch(100)
		jobs := k.pass()
		k.check(len(jobs) == 2, "%s: %d started with one remote lease of a key that may have 3, want 2", name, len(jobs))
		k.succeed(remote...)
		for len(jobs) > 0 {
			k.succeed(jobs...)
			k.dispatch(100)
			jobs = k.pass()
			k.check(len(jobs) <= 3, "%s: %d started with a key that may have 3", name, len(jobs))
		}
		k.expect("a", where{Succeeded: 12})
	}
}

func keyRateRestart(k *kit) {
	for name, restart := range k.restarts() {
		k.open(unlimited())
		k.limitKey("tenant", bulk.KeyLimit{RequestsPerSecond: 4})
		k.run(spec("a", "tenant"), 12)
		k.advance(time.Second)
		started := 0
		for range 3 {
			k.dispatch(100)
			jobs := k.pass()
			k.succeed(jobs...)
			started += len(jobs)
			restart()
		}
		k.check(started <= 4, "%s: %d started in a window of 4", name, started)
		for range 10 {
			k.advance(time.Second)
			k.dispatch(100)
			jobs := k.pass()
			k.check(len(jobs) <= 4, "%s: %d started in a window of 4", name, len(jobs))
			k.succeed(jobs...)
		}
		k.expect("a", where{Succeeded: 12})
	}
}

func keyBound(k *kit) {
	k.open(unlimited())
	k.limitKey("tenant", bulk.KeyLimit{Concurrency: 1})
	k.run(spec("a", "tenant"), bulk.MaxKeyLimited+1)
	var running []bulk.Job
	const at = 4000 // a time, as workers lease them
	for admitted := 0; admitted <= bulk.MaxKeyLimited; admitted += at {
		k.grant(bulk.Grant{Number: k.number("a"), Jobs: at})
		running = append(running, k.lease(at)...)
	}
	k.expectIndexes(running, 0)
	k.check(k.keyLimited("a") == bulk.MaxKeyLimited, "%d jobs wait for their key, want %d", k.keyLimited("a"), bulk.MaxKeyLimited)
	k.run(spec("b", "tenant"), 1)
	k.check(k.admitAll() == 0, "a job was admitted while %d of its tenant wait for keys", bulk.MaxKeyLimited)
	k.run(spec("c", "other"), 1)
	k.check(k.admitAll() == 1, "the job of another tenant was not admitted")
	k.succeed(running...)
	k.check(k.admitAll() == 2, "with a place for one more, neither it nor the jobs behind were admitted")
}
