package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

var admitCases = []testCase{
	{"the backlog shows what waits", false, backlogShows},
	{"the backlog has a line for each tenant and type", false, backlogLines},
	{"only running actions are admitted", false, admitRunning},
	{"grants beyond what waits are cut", false, admitCut},
	{"jobs are ready in the order of the grants", false, admitOrder},
	{"types are counted", false, admitTypes},
	{"the fair queue is in order", false, backlogOrder},
	{"a paused action's jobs are not leased", false, pauseReady},
	{"a paused action's jobs in flight go on", false, pauseInFlight},
	{"canceling ends what was not started", false, cancelWaiting},
	{"canceling lets jobs in flight finish", false, cancelInFlight},
	{"tenants are served by weight", false, divideByWeight},
	{"a newcomer claims no past", false, divideNewcomer},
	{"keys of a tenant take turns", false, keysTakeTurns},
	{"jobs that come back count against their key", false, keysOfReturned},
}

func backlogShows(k *kit) {
	k.open(unlimited())
	k.check(len(k.backlog().Lines) == 0, "an empty store has a backlog")
	s := targeted("a", "tenant", "api")
	s.Class = bulk.High
	k.run(s, 10)
	entered := time.Now()
	k.advance(300 * time.Millisecond)
	b := k.backlog()
	k.check(b.Now.Equal(time.Now()), "now is %v, want %v", b.Now, time.Now())
	ends := time.Unix(0, (windowIndex(time.Second)+1)*int64(time.Second))
	k.check(b.WindowEnds.Equal(ends), "the window ends at %v, want %v", b.WindowEnds, ends)
	k.check(b.Left == bulk.NoLimit && len(b.Targets) == 0, "left %d, targets %v: nothing is limited", b.Left, b.Targets)
	line, w := k.waiting("a", b)
	k.check(line.Tenant == "tenant" && line.Type == bulk.WebhookType && line.Left == bulk.NoLimit, "line %+v", line)
	want := bulk.Waiting{
		Number: w.Number, Class: bulk.High, Priority: bulk.Priority(entered, 0, 10, 0, time.Second), Jobs: 10, Target: "api", Left: bulk.NoLimit,
	}
	k.check(*w == want, "waiting %+v, want %+v", *w, want)

	k.admit("a", 4)
	k.succeed(k.lease(3)...)
	_, w = k.waiting("a", k.backlog())
	priority := bulk.Priority(entered, 0, 10, 3, time.Second)
	k.check(w.Jobs == 6 && w.Priority == priority, "waiting %+v, want 6 jobs and, as 3 are done, priority %g", *w, priority)
	k.admit("a", 6)
	k.check(len(k.backlog().Lines) == 0, "an action whose jobs are all admitted is in the backlog")
}

func backlogLines(k *kit) {
	k.open(unlimited())
	k.run(spec("a", "one"), 1)
	k.run(spec("b", "one"), 2)
	k.run(targeted("c", "one", "api"), 3)
	k.run(spec("d", "two"), 4)
	got := []string{}
	for _, line := range k.backlog().Lines {
		jobs := []int64{}
		for _, w := range line.Waiting {
			jobs = append(jobs, w.Jobs)
		}
		slices.Sort(jobs)
		got = append(got, fmt.Sprint(line.Tenant, " ", line.Type, " ", jobs))
	}
	slices.Sort(got)
	want := []string{"one echo [1 2]", "one webhook [3]", "two echo [4]"}
	k.check(slices.Equal(got, want), "lines %q, want %q", got, want)
}

func admitRunning(k *kit) {
	k.open(unlimited())
	k.run(spec("a", "tenant"), 2)
	number := k.number("a")
	k.transition("a", bulk.Transition{Kind: bulk.Pause})
	k.check(len(k.backlog().Lines) == 0, "a paused action is in the backlog")
	k.check(k.grant(bulk.Grant{Number: number, Jobs: 2}) == 0, "a paused action was admitted")
	k.expect("a", where{Pending: 2})
	k.transition("a", bulk.Transition{Kind: bulk.Resume})
	k.check(k.admit("a", 1) == 1, "a resumed action was not admitted")
	k.transition("a", bulk.Transition{Kind: bulk.Cancel})
	k.check(k.grant(bulk.Grant{Number: number, Jobs: 2}) == 0, "a canceled action was admitted")
	k.check(len(k.backlog().Lines) == 0 && len(k.lease(9)) == 0, "a canceled action has jobs that wait")

	k.create(spec("b", "tenant"))
	k.upload("b", 1)
	for _, n := range []uint64{0, 1, 2, number - 1, number, number + 1, number + 2, number + 1024, 2 * number} {
		k.check(k.grant(bulk.Grant{Number: n, Jobs: 1}) == 0, "an action that was not sealed was admitted")
	}
	k.transition("b", bulk.Transition{Kind: bulk.Seal, Total: 1})
	k.check(k.admitAll() == 0 && len(k.lease(9)) == 0, "an action that was not started was admitted")
	k.transition("b", bulk.Transition{Kind: bulk.Pause})
	k.transition("b", bulk.Transition{Kind: bulk.Start})
	k.check(k.admitAll() == 0 && len(k.lease(9)) == 0, "an action that was paused before it started was admitted")
	k.transition("b", bulk.Transition{Kind: bulk.Resume})
	k.succeed(k.takeOne())
}

func admitCut(k *kit) {
	k.open(unlimited())
	k.run(spec("a", "tenant"), 5)
	a := k.number("a")
	k.check(k.grant() == 0, "no grant admitted a job")
	k.check(k.grant(bulk.Grant{Number: a, Jobs: 0}) == 0, "a grant of 0 admitted a job")
	k.check(k.grant(bulk.Grant{Number: a + 1000, Jobs: 9}) == 0, "a grant to an unknown number admitted a job")
	n := k.grant(bulk.Grant{Number: a + 1000, Jobs: 9}, bulk.Grant{Number: a, Jobs: 2}, bulk.Grant{Number: a, Jobs: 1})
	k.check(n == 3, "admitted %d, want 3", n)
	k.expect("a", where{Pending: 2, Ready: 3})
	k.check(k.admit("a", 100) == 2, "a grant of 100 did not admit the 2 that wait")
	k.check(k.admit("a", 100) == 0, "a grant admitted more than waits")
	k.succeed(k.lease(5)...)
	k.transition("a", bulk.Transition{Kind: bulk.Aggregate})
	k.transition("a", bulk.Transition{Kind: bulk.Complete})
	k.check(k.admit("a", 1) == 0, "a completed action was admitted")
	k.transition("a", bulk.Transition{Kind: bulk.Forget})
	k.check(k.admit("a", 1) == 0, "a forgotten action was admitted")
}

func admitOrder(k *kit) {
	k.open(unlimited())
	for _, id := range []string{"a", "b", "c"} {
		tenant := "tenant of " + id
		if k.factory.Shards > 1 {
			tenant = "tenant"
		}
		k.run(spec(id, tenant), 4)
	}
	a, b, c := k.number("a"), k.number("b"), k.number("c")
	k.grant(bulk.Grant{Number: c, Jobs: 1}, bulk.Grant{Number: a, Jobs: 2}, bulk.Grant{Number: b, Jobs: 1}, bulk.Grant{Number: c, Jobs: 1})
	k.grant(bulk.Grant{Number: a, Jobs: 1})
	got := ""
	for range 6 {
		jobs := k.lease(1)
		k.check(len(jobs) == 1, "leased %s, then none", got)
		got += jobs[0].Spec.ID
	}
	k.check(got == "caabca", "leased in the order %s, want that of the grants, caabca", got)
}

func admitTypes(k *kit) {
	k.open(unlimited())
	k.run(spec("a", "tenant"), 5)
	k.run(targeted("b", "tenant", "api"), 4)
	k.admit("a", 3)
	k.admit("b", 4)
	k.leaseAs(bulk.LeaseRequest{Types: []string{"echo"}, Max: 2, LeaseFor: time.Minute})
	jobs := k.leaseAs(bulk.LeaseRequest{Types: []string{bulk.WebhookType}, Max: 3, LeaseFor: time.Minute})
	k.succeed(jobs[0])
	k.settle(bulk.Settlement{Kind: bulk.FailedForGood}, jobs[1])
	types := k.backlog().Types
	for name, want := range map[string]bulk.TypeState{
		"echo": {Ready: 1, InFlight: 2, Waiting: 2, Lines: 1}, bulk.WebhookType: {Ready: 1, InFlight: 1, Finished: 2},
	} {
		got := types[name]
		got.Virtual = 0
		k.check(got == want, "type %s: %+v, want %+v", name, got, want)
	}
}

// backlogOrder divides while jobs come, pause, are admitted, come back and end.
func backlogOrder(k *kit) {
	k.open(unlimited())
	k.set(bulk.SettingsChange{Name: "t3", Tenant: &bulk.Tenant{Weight: 1, RequestsPerSecond: 1}})
	k.set(bulk.SettingsChange{Name: "t4", Tenant: &bulk.Tenant{Weight: 2, Concurrency: 3}})
	k.set(bulk.SettingsChange{Name: "shut", Target: &bulk.TargetLimits{RequestsPerSecond: 1}})
	for i := range 40 {
		s := spec(fmt.Sprint("a", i), fmt.Sprint("t", i%7))
		if s.Class = []bulk.Class{bulk.Normal, bulk.High, bulk.Low}[i%3]; i%5 == 0 {
			s = targeted(s.ID, s.Tenant, []string{"shut", "api"}[i%2])
		}
		s.Key = []string{"", "x", "y"}[i%4%3]
		k.run(s, 3+i%4)
	}
	for round := range 12 {
		k.grant(k.divide(bulk.Free{Total: 12, Types: map[string]int64{"echo": 12, bulk.WebhookType: 2}})...)
		jobs := k.leaseAs(bulk.LeaseRequest{Types: []string{"echo", bulk.WebhookType}, Max: 8, LeaseFor: time.Minute})
		k.succeed(jobs[:len(jobs)/2]...)
		for _, j := range jobs[len(jobs)/2:] {
			k.settle(bulk.Settlement{Kind: bulk.Released}, j)
		}
		id := fmt.Sprint("a", round)
		if a := k.action(id); a.Status == bulk.Running && a.Done() < a.Total {
			k.transition(id, bulk.Transition{Kind: []bulk.TransitionKind{bulk.Pause, bulk.Cancel}[round%2]})
		}
		if round == 6 {
			k.set(bulk.SettingsChange{Name: "t3", Tenant: &bulk.Tenant{Weight: 3, BasePriority: 5000}})
		}
		k.advance(time.Duration(round%3) * 500 * time.Millisecond)
	}
}

// divide returns the grants of a division. It checks that they are those of a queue that is made
// from what waits now.
func (k *kit) divide(free bulk.Free) (grants []bulk.Grant) {
	k.t.Helper()
	k.must(k.store.Fetch(ctx, func(b *bulk.Backlog) {
		b.List("")
		grants, _ = bulk.Divide(b, free)
		b.Queue = bulk.NewFairQueue()
		for _, line := range b.Lines {
			tags := bulk.LineTags{Taken: line.Taken, TypeTaken: line.TypeTaken, Granted: line.Granted}
			type key struct {
				class bulk.Class
				name  string
			}
			had := map[key]bool{}
			for _, w := range line.Waiting {
				of := bulk.Holder{Tenant: line.Tenant, Type: line.Type, Target: w.Target}
				granted, k := int64(0), key{w.Class, w.Key}
				if w.HadTurn && !had[k] {
					granted, had[k] = 1, true
				}
				b.Queue.Set(&bulk.Queued{Number: w.Number, Class: w.Class, Key: w.Key}, of, tags, w.Priority, w.Jobs, granted)
			}
		}
		b.Queue.Advance(b.Now, b.Virtual, func(name string) float64 { return b.Types[name].Virtual })
		want, _ := bulk.Divide(b, free)
		k.check(slices.Equal(grants, want), "granted %v, want %v", grants, want)
	}))
	return grants
}

func pauseReady(k *kit) {
	k.open(unlimited())
	k.run(spec("a", "tenant"), 4)
	k.admit("a", 3)
	k.transition("a", bulk.Transition{Kind: bulk.Pause})
	k.check(len(k.lease(9)) == 0, "a paused action's job was leased")
	c := k.action("a").Counts
	k.check(c.Pending+c.Ready == 4, "paused: %+v, want 4 pending or ready", c)
	k.transition("a", bulk.Transition{Kind: bulk.Resume})
	k.admit("a", 2)
	k.transition("a", bulk.Transition{Kind: bulk.Pause})
	k.check(len(k.lease(9)) == 0, "the job of an action that was paused again was leased")
	k.transition("a", bulk.Transition{Kind: bulk.Resume})
	k.admitAll()
	k.expectIndexes(k.lease(9), 0, 1, 2, 3)
	k.expect("a", where{InFlight: 4})
}

func pauseInFlight(k *kit) {
	k.open(unlimited())
	k.run(spec("a", "tenant"), 6)
	jobs := k.take(5)
	k.transition("a", bulk.Transition{Kind: bulk.Pause})
	k.succeed(jobs[0])
	k.settle(bulk.Settlement{Kind: bulk.FailedForNow, RetryAfter: time.Second}, jobs[1])
	k.settle(bulk.Settlement{Kind: bulk.Throttled}, jobs[2])
	k.settle(bulk.Settlement{Kind: bulk.Released}, jobs[3])
	k.advance(time.Hour)
	k.dispatch(100)
	k.check(k.admitAll() == 0 && len(k.lease(9)) == 0, "a paused action's returned job was leased")
	c := k.action("a").Counts
	k.check(c.Pending+c.Ready == 5 && c.Succeeded == 1, "paused: %+v, want 5 pending or ready and 1 succeeded", c)
	k.transition("a", bulk.Transition{Kind: bulk.Resume})
	k.succeed(k.take(5)...)
	k.expect("a", where{Succeeded: 6})
}

func cancelWaiting(k *kit) {
	k.open(unlimited())
	k.run(spec("a", "tenant"), 9)
	k.admit("a", 6)
	jobs := k.lease(4)
	k.settle(bulk.Settlement{Kind: bulk.FailedForNow, RetryAfter: time.Second}, jobs[0])
	k.settle(bulk.Settlement{Kind: bulk.Throttled}, jobs[1])
	k.succeed(jobs[2])
	k.settle(bulk.Settlement{Kind: bulk.FailedForGood}, jobs[3])
	k.transition("a", bulk.Transition{Kind: bulk.Pause})
	a := k.transition("a", bulk.Transition{Kind: bulk.Cancel})
	k.expect("a", where{Succeeded: 1, Failed: 1, Canceled: 7})
	k.check(a.Status == bulk.Canceled && a.FinishedAt.Equal(time.Now()), "canceled with nothing in flight: %+v", a)
	k.advance(time.Hour)
	moved, _ := k.dispatch(100)
	k.check(moved == 0, "Dispatch moved %d canceled jobs", moved)
	k.check(k.admitAll() == 0 && len(k.lease(9)) == 0, "a canceled job was leased")
	k.expect("a", where{Succeeded: 1, Failed: 1, Canceled: 7})
}

func cancelInFlight(k *kit) {
	k.open(unlimited())
	k.run(spec("a", "tenant"), 9)
	jobs := k.take(7)
	a := k.transition("a", bulk.Transition{Kind: bulk.Cancel})
	k.check(a.FinishedAt.IsZero(), "canceled with jobs in flight: finished at %v, want not yet", a.FinishedAt)
	k.expect("a", where{InFlight: 7, Canceled: 2})
	k.settle(bulk.Settlement{Kind: bulk.Extended, LeaseFor: time.Hour}, jobs[0])
	k.succeed(jobs[0])
	k.settle(bulk.Settlement{Kind: bulk.FailedForGood}, jobs[1])
	k.settle(bulk.Settlement{Kind: bulk.FailedForNow}, jobs[2])
	k.settle(bulk.Settlement{Kind: bulk.Throttled}, jobs[3])
	k.settle(bulk.Settlement{Kind: bulk.Released}, jobs[4])
	k.expect("a", where{InFlight: 2, Succeeded: 1, Failed: 1, Canceled: 5})
	k.advance(31 * time.Second)
	k.dispatch(100)
	k.expect("a", where{Succeeded: 1, Failed: 1, Canceled: 7})
	v := k.verdict(jobs[5], bulk.Succeeded)
	k.check(v == bulk.Expired || v == bulk.Duplicate, "settling a lease that expired after the cancel: %s", v)
	a = k.transition("a", bulk.Transition{Kind: bulk.Drained})
	k.check(a.FinishedAt.Equal(time.Now()), "drained at %v, want now", a.FinishedAt)
	k.check(k.admitAll() == 0 && len(k.lease(9)) == 0, "a canceled job was leased")
}

// serve does the work of the fetcher and ten workers for some windows, and counts the jobs
// leased for each tenant.
func (k *kit) serve(windows int, served map[string]int) {
	k.t.Helper()
	free := bulk.Free{Total: 100, Types: map[string]int64{"echo": 100}}
	for range windows {
		k.grant(k.divide(free)...)
		for _, j := range k.lease(100) {
			served[j.Spec.Tenant]++
			k.succeed(j)
		}
		k.advance(time.Second)
	}
}

func divideByWeight(k *kit) {
	k.open(unlimited())
	k.limitAll(8)
	k.set(bulk.SettingsChange{Name: "heavy", Tenant: &bulk.Tenant{Weight: 3}})
	k.run(spec("a", "light"), 100)
	k.run(spec("b", "heavy"), 100)
	k.run(spec("c", "other"), 100)
	served := map[string]int{}
	k.serve(10, served)
	k.check(served["light"] == 16 && served["heavy"] == 48 && served["other"] == 16, "of 80 served: %v, want 16, 48 and 16", served)
}

// serveKeys is serve, three jobs in a window; it calls settle for each job, and returns the keys of
// the jobs in order.
func (k *kit) serveKeys(windows int, settle func(bulk.Job)) (keys []string) {
	k.t.Helper()
	for range windows {
		k.grant(k.divide(bulk.Free{Total: 3, Types: map[string]int64{"echo": 3, bulk.WebhookType: 3}})...)
		jobs := k.leaseAs(bulk.LeaseRequest{Types: []string{"echo"}, Max: 9, LeaseFor: time.Minute})
		for _, j := range append(jobs, k.leaseAs(bulk.LeaseRequest{Types: []string{bulk.WebhookType}, Max: 9, LeaseFor: time.Minute})...) {
			keys = append(keys, j.Spec.Key)
			settle(j)
		}
		k.dispatch(100)
		k.advance(time.Second)
	}
	return keys
}

// inTurns checks that two keys took turns: at any time, each had as many jobs as the other, or one
// more or less.
func (k *kit) inTurns(keys []string, n int) {
	k.t.Helper()
	apart := 0
	for i, key := range keys {
		if apart++; key != keys[0] {
			apart -= 2
		}
		k.check(apart <= 1 && apart >= -1, "after %d jobs %q has had %d more: %q", i+1, keys[0], apart, keys)
	}
	k.check(len(keys) == n, "%d jobs were leased, want %d", len(keys), n)
}

func keysTakeTurns(k *kit) {
	k.open(unlimited())
	for i := range 20 {
		s := spec(fmt.Sprint("many", i), "tenant")
		s.Key = "many"
		k.run(s, 4)
	}
	k.serveKeys(5, func(j bulk.Job) { k.succeed(j) }) // before the other comes
	one := spec("one", "tenant")
	one.Key = "one"
	k.run(one, 40)
	k.inTurns(k.serveKeys(10, func(j bulk.Job) { k.succeed(j) }), 30)
	for i := range 3 { // the same for targets of their own
		s := targeted(fmt.Sprint("to", i), "hooks", fmt.Sprint("target", min(i, 1)))
		s.Key = fmt.Sprint("key", min(i, 1))
		k.run(s, 12)
	}
	k.transition("one", bulk.Transition{Kind: bulk.Cancel})
	for i := range 20 {
		if a := k.action(fmt.Sprint("many", i)); a.Status == bulk.Running && a.Done() < a.Total {
			k.transition(a.ID, bulk.Transition{Kind: bulk.Cancel})
		}
	}
	k.inTurns(k.serveKeys(6, func(j bulk.Job) { k.succeed(j) }), 18)
}

func keysOfReturned(k *kit) {
	k.open(unlimited())
	for _, id := range []string{"back", "done"} {
		s := spec(id, "tenant")
		s.Key = id
		k.run(s, map[string]int{"back": 2, "done": 60}[id])
	}
	k.inTurns(k.serveKeys(20, func(j bulk.Job) {
		if j.Spec.Key == "back" {
			k.settle(bulk.Settlement{Kind: bulk.Released}, j)
		} else {
			k.succeed(j)
		}
	}), 60)
}

func divideNewcomer(k *kit) {
	k.open(unlimited())
	k.limitAll(10)
	k.run(spec("a", "first"), 300)
	k.serve(10, map[string]int{})
	k.run(spec("b", "second"), 300)
	served := map[string]int{}
	k.serve(5, served)
	k.check(max(served["first"]-served["second"], served["second"]-served["first"]) <= 1, "after the second came: %v, want even", served)
	k.transition("b", bulk.Transition{Kind: bulk.Pause})
	k.serve(5, map[string]int{})
	k.transition("b", bulk.Transition{Kind: bulk.Resume})
	served = map[string]int{}
	k.serve(5, served)
	k.check(max(served["first"]-served["second"], served["second"]-served["first"]) <= 2, "after the second came back: %v, want even", served)
}
