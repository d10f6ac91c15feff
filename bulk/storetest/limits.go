package storetest

import (
	"time"

	"github.com/sluice-project/sluice/bulk"
)

var limitCases = []testCase{
	{"rates are exact in every window", false, limitExact},
	{"rates of tenants and targets are exact", false, limitEach},
	{"what is left counts what is ready and started", false, limitLeft},
	{"jobs that stay ready count in the next window", false, limitCarried},
	{"a type that nobody asks for delays no other", false, limitIdleType},
	{"every start is charged, retries too", false, limitRetries},
	{"limits change at once", false, limitChanges},
	{"a limit lowered below what is ready holds", false, limitLowered},
	{"concurrency bounds what is in flight", false, limitConcurrency},
	{"smooth pacing holds in any second", false, limitSmooth},
	{"the tightest limit holds", false, limitTightest},
	{"our own limits turn back no job", false, limitNoTurnBack},
	{"a limited action delays no other", false, limitOthersPass},
	{"what was started counts when its action has ended", false, limitOutlives},
}

// limitExact runs rates with fractions over many windows of several lengths.
func limitExact(k *kit) {
	for _, c := range []struct {
		window time.Duration
		rate   float64
	}{
		{time.Second, 7}, {time.Second, 0.5}, {time.Second, 2.5}, {100 * time.Millisecond, 10}, {100 * time.Millisecond, 25},
		{100 * time.Millisecond, 2.5}, {100 * time.Millisecond, 0.3}, {time.Minute, 0.25},
	} {
		config := unlimited()
		config.RequestsPerSecond, config.Window = c.rate, c.window
		k.open(config)
		k.run(spec("a", "tenant"), 700)
		k.advance(3 * c.window)
		total, want := int64(0), int64(0)
		for range 40 {
			allowed := budget(c.rate, c.window, windowIndex(c.window))
			admitted := k.admitAll()
			jobs := k.lease(700)
			k.check(int64(admitted) == allowed && int64(len(jobs)) == allowed,
				"%g/s in windows of %v: admitted %d, leased %d, want %d", c.rate, c.window, admitted, len(jobs), allowed)
			k.check(k.admitAll() == 0 && len(k.lease(1)) == 0, "%g/s: more passed in the same window", c.rate)
			k.succeed(jobs...)
			total, want = total+int64(len(jobs)), want+allowed
			k.advance(c.window)
		}
		k.check(total == want && total > 0, "%g/s in 40 windows of %v: %d, want %d", c.rate, c.window, total, want)
	}
}

func limitEach(k *kit) {
	k.open(unlimited())
	k.run(spec("t", "limited"), 100)
	k.run(targeted("g", "free", "api"), 100)
	k.run(spec("f", "free"), 100)
	k.limitTenant("limited", 2.5)
	k.limitTarget("api", 1.5, 0)
	k.advance(time.Second)
	for range 10 {
		index := windowIndex(time.Second)
		want := map[string]int64{"t": budget(2.5, time.Second, index), "g": budget(1.5, time.Second, index), "f": 100}
		b := k.backlog("api")
		line, _ := k.waiting("t", b)
		k.check(line.Left == want["t"], "the tenant's line has %d left, want %d", line.Left, want["t"])
		k.check(b.Targets["api"] == want["g"], "targets %v, want %d for api", b.Targets, want["g"])
		k.admitAll()
		got := map[string]int64{}
		for _, j := range k.lease(300) {
			got[j.Spec.ID]++
			k.succeed(j)
		}
		k.check(got["t"] == want["t"] && got["g"] == want["g"], "leased %v, want %v", got, want)
		k.advance(time.Second)
	}
}

func limitLeft(k *kit) {
	config := unlimited()
	config.RequestsPerSecond = 10
	k.open(config)
	k.run(spec("a", "tenant"), 100)
	k.limitTenant("tenant", 8)
	left := func(global, tenant int64) {
		b := k.backlog()
		line, _ := k.waiting("a", b)
		k.check(b.Left == global && line.Left == tenant, "left %d and %d, want %d and %d", b.Left, line.Left, global, tenant)
	}
	left(10, 8)
	k.admit("a", 3)
	left(7, 5)
	jobs := k.lease(2)
	left(7, 5)
	k.succeed(jobs...)
	left(7, 5)
	k.settle(bulk.Settlement{Kind: bulk.Released}, k.lease(1)...)
	left(7, 5)
	k.check(k.admit("a", 50) == 5, "the tenant's limit did not cut a grant to the 5 left")
	left(2, 0)
	k.advance(time.Second)
	left(5, 3)
}

func limitCarried(k *kit) {
	config := unlimited()
	config.RequestsPerSecond = 10
	k.open(config)
	k.run(spec("a", "tenant"), 100)
	k.check(k.admit("a", 50) == 10, "a limit of 10 did not admit 10")
	k.advance(time.Second)
	k.check(k.backlog().Left == 0 && k.admit("a", 50) == 0, "more was admitted although 10 jobs were ready")
	k.expectIndexes(k.lease(6), 0, 1, 2, 3, 4, 5)
	k.check(k.admit("a", 50) == 0, "more was admitted with 6 started and 4 ready")
	k.advance(time.Second)
	k.check(k.backlog().Left == 6 && k.admit("a", 50) == 6, "with 4 ready of a limit of 10, not 6 were admitted")
	k.check(len(k.lease(50)) == 10, "not 10 were leased")
}

// limitIdleType has ready jobs of one type, whose workers have stopped, and jobs of another
// type.
func limitIdleType(k *kit) {
	config := unlimited()
	config.RequestsPerSecond = 10
	k.open(config)
	other := spec("b", "tenant")
	other.Type = "abandoned"
	k.run(other, 100)
	k.limitTenant("tenant", 10)
	k.run(spec("a", "tenant"), 100)
	k.check(k.admit("b", 50) == 10, "a limit of 10 did not admit 10")
	k.advance(time.Second)
	k.check(k.admit("a", 50) == 0, "more was admitted although 10 jobs were ready, which may be asked for yet")
	k.advance(time.Second)
	for range 3 {
		k.check(k.backlog().Left == 10 && k.admit("a", 50) == 10, "jobs that nobody asks for keep others from being admitted")
		k.check(len(k.lease(50)) == 10, "jobs that nobody asks for keep others from being started")
		k.advance(time.Second)
	}
	// The workers are back: ready jobs hold their slots again, and no more start than the
	// limit allows, though there are jobs of both types.
	r := request(6)
	r.Types = []string{other.Type}
	k.check(k.admit("a", 50) == 10, "a limit of 10 did not admit 10")
	k.check(len(k.leaseAs(r)) == 6, "the workers that are back were not given 6 jobs")
	k.check(k.backlog().Left == 0, "%d are left with 6 started and 14 ready of a limit of 10", k.backlog().Left)
	k.check(len(k.lease(50)) == 4, "more started than the limit of 10 allows")
}

func limitRetries(k *kit) {
	config := unlimited()
	config.RequestsPerSecond = 4
	k.open(config)
	k.run(spec("a", "tenant"), 4)
	for attempt := 1; attempt <= 6; attempt++ {
		jobs := k.take(4)
		k.settle(bulk.Settlement{Kind: bulk.Released}, jobs[:2]...)
		k.settle(bulk.Settlement{Kind: bulk.Throttled}, jobs[2])
		k.succeedOrRetry(jobs[3], attempt)
		k.dispatch(10)
		k.check(k.admitAll() == 0 && len(k.lease(10)) == 0, "a returned job was started in a window that had its 4 starts")
		k.advance(61 * time.Second)
		k.dispatch(10)
	}
}

// succeedOrRetry fails a job for now in its first attempts, and then releases it.
func (k *kit) succeedOrRetry(j bulk.Job, attempt int) {
	k.t.Helper()
	kind := bulk.FailedForNow
	if attempt > 3 {
		kind = bulk.Released
	}
	k.settle(bulk.Settlement{Kind: kind}, j)
}

func limitChanges(k *kit) {
	config := unlimited()
	config.RequestsPerSecond = 5
	k.open(config)
	k.run(spec("a", "tenant"), 200)
	pass := func(want int, why string) {
		k.t.Helper()
		admitted := k.admitAll()
		jobs := k.lease(200)
		k.check(admitted == want && len(jobs) == want, "%s: admitted %d, leased %d, want %d", why, admitted, len(jobs), want)
		k.succeed(jobs...)
	}
	pass(5, "the config's limit")
	k.limitAll(8)
	pass(3, "raised from 5 to 8 in the window")
	k.limitAll(6)
	pass(0, "lowered to 6 after 8")
	k.limitTenant("tenant", 20)
	k.limitAll(0)
	pass(12, "no limit but the tenant's 20, after 8")
	k.limitTenant("tenant", 0)
	pass(180, "no limit")
}

func limitLowered(k *kit) {
	for name, lower := range map[string]func(rate float64){
		"all":    k.limitAll,
		"tenant": func(rate float64) { k.limitTenant("tenant", rate) },
		"target": func(rate float64) { k.limitTarget("api", rate, 0) },
	} {
		k.open(unlimited())
		lower(10)
		k.run(targeted("a", "tenant", "api"), 30)
		k.check(k.admit("a", 10) == 10, "%s: a limit of 10 did not admit 10", name)
		k.lease(2)
		lower(4)
		started := 2
		for range 3 {
			started += len(k.lease(5))
			k.admitAll()
		}
		k.check(started <= 4, "%s: lowered to 4 with 8 ready, %d were started in the window", name, started)
		c := k.action("a").Counts
		k.check(c.NonReadyTotal() == c.NonReady[bulk.RateLimited], "%s: jobs were turned back for %v, want only rate_limited", name, c.NonReady)
		windows := 0
		for ; started < 30 && windows < 20; windows++ {
			k.advance(time.Second)
			k.dispatch(100)
			k.admitAll()
			n := len(k.lease(100))
			k.check(n <= 4, "%s: %d were started in a window of 4", name, n)
			started += n
		}
		k.check(started == 30, "%s: after %d windows %d of 30 jobs were started", name, windows, started)
	}
}

// underOneLimit has, for each kind of limit, two actions that it applies to.
var underOneLimit = map[string][2]bulk.Spec{
	"all":        {spec("a", "one"), targeted("b", "two", "api")},
	"tenant one": {spec("a", "one"), targeted("b", "one", "api")},
	"target api": {targeted("a", "one", "api"), targeted("b", "two", "api")},
	"type echo":  {spec("a", "one"), spec("b", "two")},
}

func limitConcurrency(k *kit) {
	for of, actions := range underOneLimit {
		k.open(unlimited())
		most := func(n int) { k.limit(of, bulk.Limit{Concurrency: n}) }
		most(3)
		k.run(actions[0], 10)
		k.run(actions[1], 10)
		k.admitAll()
		jobs := k.lease(20)
		k.check(len(jobs) == 3, "%s: leased %d, want the 3 of the limit", of, len(jobs))
		k.advance(5 * time.Second)
		k.dispatch(10)
		k.check(k.admitAll() == 0 && len(k.lease(20)) == 0, "%s: more than 3 were in flight", of)
		k.succeed(jobs[0])
		k.settle(bulk.Settlement{Kind: bulk.Released}, jobs[1])
		k.admitAll()
		n := len(k.lease(20))
		k.check(n == 2, "%s: leased %d after 2 of 3 ended, want 2", of, n)
		most(1)
		k.check(k.admitAll() == 0 && len(k.lease(20)) == 0, "%s: lowered to 1, but more were started", of)
		most(0)
		k.check(k.admitAll() > 0, "%s: without a limit nothing was admitted", of)
		most(5)
		n += len(k.lease(20))
		k.check(n == 4, "%s: %d are in flight with 1 that was there before, want 5: many were ready when the limit was set to that", of, n+1)
		most(0)
		k.advance(time.Second)
		k.dispatch(100)
		k.admitAll()
		k.check(len(k.lease(20)) == 19-n-1, "%s: without a limit not all were started", of)
	}
}

// limitSmooth looks every few milliseconds for jobs that may start. Where many do, a tenth more than
// the second of which the limit holds is enough.
func limitSmooth(k *kit) {
	for of, actions := range underOneLimit {
		for rate, span := range map[float64]time.Duration{50: 1100 * time.Millisecond, 7: 2500 * time.Millisecond, 0.8: 2500 * time.Millisecond} {
			k.open(unlimited())
			k.limit(of, bulk.Limit{RequestsPerSecond: rate, Pacing: bulk.PaceSmooth})
			k.run(actions[0], 400)
			k.run(actions[1], 400)
			var starts []time.Time
			// Several looks between two starts, and no more: on Redis each costs exchanges.
			step := min(max(5*time.Millisecond, time.Duration(0.1/rate*float64(time.Second))), 15*time.Millisecond)
			began := time.Now()
			for time.Since(began) < span {
				k.admitAll()
				for _, j := range k.lease(100) {
					starts = append(starts, time.Now())
					k.succeed(j)
				}
				k.dispatch(100)
				k.advance(step)
			}
			k.check(float64(len(starts)) >= 0.9*span.Seconds()*rate-1, "%s: %d started in %v, want %g a second", of, len(starts), span, rate)
			for i, from := range starts {
				n := 0
				for _, start := range starts[i:] {
					if start.Sub(from) < time.Second {
						n++
					}
				}
				k.check(float64(n) < rate+1, "%s: %d started within a second, want at most %g", of, n, rate)
			}
		}
	}
}

func limitTightest(k *kit) {
	k.open(unlimited())
	k.run(targeted("a", "tenant", "api"), 100)
	for _, c := range []struct {
		all, tenant, target float64
		concurrency, want   int
	}{{9, 5, 7, 0, 5}, {4, 5, 7, 0, 4}, {9, 5, 3, 0, 3}, {9, 5, 3, 2, 2}, {9, 5, 3, 8, 3}, {0, 0, 3, 0, 3}} {
		k.advance(time.Second)
		k.limitAll(c.all)
		k.limitTenant("tenant", c.tenant)
		k.limitTarget("api", c.target, c.concurrency)
		admitted := k.admitAll()
		jobs := k.lease(100)
		k.check(admitted == c.want && len(jobs) == c.want, "limits %+v: admitted %d, leased %d", c, admitted, len(jobs))
		k.succeed(jobs...)
	}
}

func limitNoTurnBack(k *kit) {
	k.open(unlimited())
	k.limitAll(10)
	k.limitTenant("one", 3)
	k.limitTarget("api", 4, 2)
	ids := []string{"a", "b", "c"}
	k.run(spec("a", "one"), 40)
	k.run(targeted("b", "two", "api"), 40)
	k.run(spec("c", "three"), 40)
	for step := range 120 {
		k.admitAll()
		k.succeed(k.lease(1 + step%4)...)
		for _, id := range ids {
			a := k.action(id)
			k.check(a.NonReadyTotal() == 0, "step %d: a job of %s was turned back by our own limits", step, id)
		}
		k.advance(200 * time.Millisecond)
	}
}

// limitOthersPass has a limited action's ready jobs in front of another action's.
func limitOthersPass(k *kit) {
	k.open(unlimited())
	k.run(spec("a", "limited"), 20)
	k.run(spec("b", "free"), 20)
	k.admit("a", 20)
	k.limitTenant("limited", 1)
	k.admit("b", 20)
	got := map[string]int{}
	for range 21 {
		for _, j := range k.lease(5) {
			got[j.Spec.ID]++
		}
	}
	k.check(got["a"] == 1 && got["b"] == 20, "leased %v, want one of the limited a and all 20 of b", got)
}

// limitOutlives ends an action within a window, and runs another one of its tenant and
// target: all limits still count the first.
func limitOutlives(k *kit) {
	for name, set := range map[string]func(){
		"all":    func() { k.limitAll(5) },
		"tenant": func() { k.limitTenant("tenant", 5) },
		"target": func() { k.limitTarget("api", 5, 0) },
	} {
		for ended, end := range map[string]func(){
			"completed": func() {
				k.transition("a", bulk.Transition{Kind: bulk.Aggregate})
				k.transition("a", bulk.Transition{Kind: bulk.Complete})
			},
			"canceled": func() { k.transition("a", bulk.Transition{Kind: bulk.Cancel}) },
			"forgotten": func() {
				k.transition("a", bulk.Transition{Kind: bulk.Cancel})
				k.transition("a", bulk.Transition{Kind: bulk.Forget})
			},
		} {
			k.open(unlimited())
			set()
			k.run(targeted("a", "tenant", "api"), 3)
			k.succeed(k.take(3)...)
			end()
			k.run(targeted("b", "tenant", "api"), 9)
			k.admitAll()
			n := len(k.lease(9))
			k.check(n == 2, "limit of %s, 3 of 5 started by an action that was then %s: %d more were started, want 2", name, ended, n)
		}
	}
}
