package storetest

import (
	"time"

	"github.com/sluice-project/sluice/bulk"
)

var restartCases = []testCase{
	{"a local lease ends with the process", true, restartLocal},
	{"a job that was in flight at too many crashes is dead", true, restartDead},
	{"a remote lease survives", true, restartRemote},
	{"no lease ends before its deadline", true, restartDeadline},
	{"what is ready is not lost", true, restartReady},
	{"what waits for its time still waits", true, restartNonReady},
	{"what is done stays done", true, restartDone},
	{"a canceled action drains", true, restartCanceled},
	{"limits hold across a restart", true, restartLimits},
	{"what ended actions have started counts across a restart", true, restartLeft},
	{"a long history survives", true, restartHistory},
}

// eachRestart runs a story once for each way to restart the store.
func (k *kit) eachRestart(config bulk.Config, story func(restart func())) {
	k.t.Helper()
	for way, restart := range k.restarts() {
		k.t.Logf("restarting by %s", way)
		k.open(config)
		story(restart)
	}
}

func restartLocal(k *kit) {
	k.eachRestart(unlimited(), func(restart func()) {
		s := spec("a", "tenant")
		s.MaxAttempts = 2
		k.run(s, 4)
		k.admit("a", 2)
		r := request(2)
		r.Local = true
		old := k.leaseAs(r)
		for crash := 1; crash <= 4; crash++ {
			restart()
			k.expectAfter("a", where{Pending: 4})
			k.check(k.verdict(old[0], bulk.Succeeded) == bulk.Expired, "a local lease was settled after a restart")
			k.admit("a", 2)
			jobs := k.leaseAs(r)
			k.check(len(jobs) == 2 && jobs[0].Index+jobs[1].Index == 1, "leased %v, want those that were in flight, 0 and 1", indexes(jobs))
			k.check(jobs[0].Attempt == 1, "attempt %d after %d crashes, want 1: a crash uses none", jobs[0].Attempt, crash)
			k.check(jobs[0].Lease != old[0].Lease && jobs[0].Lease != old[1].Lease, "a lease has the id of one before the crash")
			old = append(jobs, old...)
		}
		k.succeed(old[:2]...)
		k.admitAll()
		k.expectIndexes(k.lease(9), 2, 3)
	})
}

// restartDeadline leases for a fraction of a millisecond.
func restartDeadline(k *kit) {
	k.eachRestart(unlimited(), func(restart func()) {
		k.run(spec("a", "tenant"), 1)
		k.admit("a", 1)
		r := request(1)
		r.LeaseFor = 10*time.Second + 700*time.Microsecond
		jobs := k.leaseAs(r)
		restart()
		k.advance(time.Until(jobs[0].Deadline) - time.Nanosecond)
		moved, _ := k.dispatch(10)
		k.check(moved == 0, "a lease ended before its deadline, after a restart")
		k.advance(2 * time.Millisecond) // a store may keep whole milliseconds
		moved, _ = k.dispatch(10)
		k.check(moved == 1, "a lease did not end at its deadline, after a restart")
	})
}

func restartDead(k *kit) {
	config := unlimited()
	config.MaxCrashes = 3
	k.eachRestart(config, func(restart func()) {
		k.run(aggregated("a"), 3)
		r := request(1)
		r.Local = true
		for crash := 1; k.action("a").Failed == 0; crash++ {
			k.check(crash <= 4, "a job was in flight at %d crashes of 3, and is not dead", crash-1)
			k.check(k.admit("a", 1) == 1, "nothing was admitted after %d crashes", crash-1)
			jobs := k.leaseAs(r)
			k.check(len(jobs) == 1 && jobs[0].Index == 0, "leased %v, want job 0", indexes(jobs))
			restart()
			k.check(crash >= 3 || k.action("a").Failed == 0, "a job was dead after %d of 3 crashes", crash)
		}
		k.expectAfter("a", where{Pending: 2, Failed: 1})
		dead, err := k.store.DeadLetters(ctx, "a", 0, 9)
		k.must(err)
		k.check(len(dead) == 1 && dead[0].Index == 0 && dead[0].Error != "", "dead letters %+v, want job 0 with an error", dead)
		k.check(string(dead[0].Payload) == string(payload("a", 0)), "the dead letter's payload is %q", dead[0].Payload)
		k.check(len(k.outcomes("a")) == 1, "%d outcomes, want that of the dead job", len(k.outcomes("a")))
		restart()
		k.expectAfter("a", where{Pending: 2, Failed: 1})
		k.expectIndexes(k.take(2), 1, 2)
	})
}

func restartRemote(k *kit) {
	k.eachRestart(unlimited(), func(restart func()) {
		s := spec("a", "tenant")
		k.run(s, 6)
		jobs := k.take(5)
		k.advance(10 * time.Second)
		k.settle(bulk.Settlement{Kind: bulk.Extended, LeaseFor: time.Minute}, jobs[3])
		restart()
		k.expectAfter("a", where{Pending: 1, InFlight: 5})
		k.succeed(jobs[0])
		v := k.verdict(jobs[0], bulk.Succeeded)
		k.check(v == bulk.Duplicate, "settled twice after a restart: %s", v)
		k.settle(bulk.Settlement{Kind: bulk.FailedForNow, RetryAfter: time.Hour}, jobs[1])
		k.settle(bulk.Settlement{Kind: bulk.Extended, LeaseFor: time.Minute}, jobs[4])
		moved, next := k.dispatch(10)
		k.check(moved == 0 && k.near(next, jobs[2].Deadline), "moved %d, next is %v, want the deadline before the restart, %v", moved, next, jobs[2].Deadline)
		k.advance(21 * time.Second)
		moved, _ = k.dispatch(10)
		k.check(moved == 1, "Dispatch moved %d, want the one lease that expired", moved)
		restart()
		k.check(k.verdict(jobs[2], bulk.Succeeded) == bulk.Expired, "a lease that expired before the restart was settled")
		k.succeed(jobs[3], jobs[4])
		k.lease(0) // Jobs may be ready and no worker has asked for a while, so no more are admitted.
		k.admit("a", 1)
		back := k.findLeased(2)
		k.check(back.Attempt == 2, "attempt %d after an expired lease, want 2", back.Attempt)
	})
}

func restartReady(k *kit) {
	k.eachRestart(unlimited(), func(restart func()) {
		k.run(spec("a", "tenant"), 10)
		k.run(spec("p", "tenant"), 4)
		k.admit("a", 7)
		k.admit("p", 2)
		k.succeed(k.lease(2)...)
		k.transition("p", bulk.Transition{Kind: bulk.Pause})
		restart()
		c := k.action("a").Counts
		k.check(c.Pending+c.Ready == 8 && c.Succeeded == 2, "after a restart: %+v", c)
		k.check(k.action("p").Paused, "a paused action is not paused after a restart")
		k.admitAll()
		k.expectIndexes(k.lease(20), 2, 3, 4, 5, 6, 7, 8, 9)
		k.transition("p", bulk.Transition{Kind: bulk.Resume})
		k.admitAll()
		k.expectIndexes(k.lease(20), 0, 1, 2, 3)
	})
}

func restartNonReady(k *kit) {
	k.eachRestart(unlimited(), func(restart func()) {
		k.run(spec("a", "tenant"), 4)
		jobs := k.take(4)
		k.settle(bulk.Settlement{Kind: bulk.FailedForNow, RetryAfter: time.Minute}, jobs[0])
		k.settle(bulk.Settlement{Kind: bulk.Throttled, RetryAfter: 2 * time.Minute}, jobs[1])
		k.settle(bulk.Settlement{Kind: bulk.Released}, jobs[2])
		before := k.action("a").Counts
		restart()
		after := k.action("a").Counts
		k.check(after.Throttled == 1 && after.Retried == before.Retried, "after a restart: %+v, before: %+v", after, before)
		k.check(after.NonReady[bulk.APIThrottled] == 1, "after a restart: %+v, want one throttled", after)
		k.dispatch(10)
		k.admitAll()
		back := k.lease(10)
		k.expectIndexes(back, 2)
		k.check(back[0].Attempt == 1, "attempt %d of a released job", back[0].Attempt)
		k.advance(59 * time.Second)
		k.dispatch(10)
		k.check(k.admitAll() == 2, "after 59 s want the 2 leases that expired, and not what is due in 60 s")
		k.lease(2)
		k.advance(2 * time.Second)
		k.dispatch(10)
		k.check(k.takeOne().Attempt == 2, "not the second attempt of a job that failed")
		k.advance(2 * time.Minute)
		restart()
		k.dispatch(10)
		k.admitAll()
		j := k.findLeased(1)
		k.check(j.Attempt == 1, "attempt %d of a throttled job, want 1", j.Attempt)
	})
}

func restartDone(k *kit) {
	k.eachRestart(unlimited(), func(restart func()) {
		s := aggregated("a")
		s.MaxAttempts = 1
		k.run(s, 6)
		jobs := k.take(5)
		k.succeed(jobs[0], jobs[3])
		k.settle(bulk.Settlement{Kind: bulk.FailedForGood, Error: "bad"}, jobs[1])
		k.settle(bulk.Settlement{Kind: bulk.FailedForNow, Error: "again"}, jobs[2])
		restart()
		k.expectAfter("a", where{Pending: 1, InFlight: 1, Succeeded: 2, Failed: 2})
		for i, j := range jobs[:4] {
			v := k.verdict(j, bulk.Succeeded)
			k.check(v == bulk.Duplicate || v == bulk.Expired, "settling the done job %d after a restart: %s", i, v)
		}
		k.advance(time.Minute)
		k.dispatch(10)
		k.expectAfter("a", where{Pending: 1, Succeeded: 2, Failed: 3})
		k.succeed(k.takeOne())
		k.transition("a", bulk.Transition{Kind: bulk.Aggregate})
		restart()
		k.expect("a", where{Succeeded: 3, Failed: 3})
		k.check(len(k.outcomes("a")) == 6, "%d outcomes of 6 jobs", len(k.outcomes("a")))
	})
}

func restartCanceled(k *kit) {
	k.eachRestart(unlimited(), func(restart func()) {
		k.run(spec("a", "tenant"), 8)
		remote := k.take(2)
		k.settle(bulk.Settlement{Kind: bulk.FailedForNow, RetryAfter: time.Minute}, remote[1])
		r := request(2)
		r.Local = true
		k.leaseAs(r)
		k.transition("a", bulk.Transition{Kind: bulk.Cancel})
		k.expect("a", where{InFlight: 3, Canceled: 5})
		restart()
		k.expect("a", where{InFlight: 1, Canceled: 7})
		k.check(len(k.backlog().Lines) == 0, "a canceled action is in the backlog after a restart")
		k.succeed(remote[0])
		k.expect("a", where{Succeeded: 1, Canceled: 7})
		k.transition("a", bulk.Transition{Kind: bulk.Drained})
	})
}

// restartLimits restarts within a window: attempts started before still count.
func restartLimits(k *kit) {
	config := unlimited()
	config.RequestsPerSecond = 10
	k.eachRestart(config, func(restart func()) {
		k.limitTenant("tenant", 8)
		k.limitTarget("api", 6, 4)
		k.run(targeted("a", "tenant", "api"), 50)
		k.run(spec("b", "tenant"), 50)
		k.run(spec("c", "other"), 50)
		local := false
		for range 12 {
			started := map[string]int{}
			for range 4 {
				k.admitAll()
				r := request(3)
				r.Local, local = local, !local
				for _, j := range k.leaseAs(r) {
					started[j.Spec.ID]++
					if j.Index%2 == 0 {
						k.succeed(j)
					}
				}
				k.check(k.action("a").InFlight <= 4, "%d in flight against a target of 4", k.action("a").InFlight)
				restart()
			}
			k.check(started["a"] <= 6, "%d started against a target of 6/s", started["a"])
			k.check(started["a"]+started["b"] <= 8, "%d started of a tenant of 8/s", started["a"]+started["b"])
			k.check(started["a"]+started["b"]+started["c"] <= 10, "%v started of 10/s", started)
			k.advance(time.Second)
		}
		k.advance(time.Hour)
		k.dispatch(100)
		k.check(k.admitAll() > 0 && len(k.lease(100)) > 0, "nothing passes an hour after the restarts")
	})
}

func restartLeft(k *kit) {
	k.eachRestart(unlimited(), func(restart func()) {
		k.limitTarget("api", 5, 0)
		k.run(targeted("a", "tenant", "api"), 3)
		k.succeed(k.take(3)...)
		k.transition("a", bulk.Transition{Kind: bulk.Cancel})
		restart()
		left, told := k.backlog("api").Targets["api"]
		k.check(told && left <= 2, "%d left of 5, told: %v, where 3 were started in the window", left, told)
	})
}

// restartHistory gives distant jobs of an action a long alternating history, with calls that
// touch many jobs at once: a store that keeps logs must compact them at some time.
func restartHistory(k *kit) {
	config := unlimited()
	config.MaxAttempts = 100
	k.eachRestart(config, func(restart func()) {
		const jobs, far = 1500, 1100
		k.run(spec("a", "tenant"), jobs)
		leased := k.take(jobs)
		k.succeed(leased[200:far]...)
		k.succeed(leased[far+200:]...)
		attempts := map[int64]int{}
		for round := range 50 {
			order := make([]bulk.Job, jobs)
			for _, j := range leased {
				attempts[j.Index]++
				k.check(j.Attempt == attempts[j.Index], "%s: attempt %d, want %d", j.ID(), j.Attempt, attempts[j.Index])
				order[j.Index] = j
			}
			var settlements []bulk.Settlement
			for i := range 200 {
				for at, index := range []int{i, far + i} {
					kind := bulk.FailedForNow
					if (i+at+round)%3 == 0 {
						kind = bulk.Released
						attempts[int64(index)]--
					}
					settlements = append(settlements, bulk.Settlement{Lease: order[index].Lease, Kind: kind, RetryAfter: time.Second})
				}
			}
			k.settleAll(settlements)
			k.advance(2 * time.Second)
			k.dispatch(jobs)
			leased = k.take(400)
			if round%7 == 6 {
				restart()
				k.expect("a", where{InFlight: 400, Succeeded: jobs - 400})
			}
		}
		k.succeed(leased...)
		restart()
		k.expect("a", where{Succeeded: jobs})
	})
}

// settleAll settles in one call; all settlements must be accepted.
func (k *kit) settleAll(settlements []bulk.Settlement) {
	k.t.Helper()
	verdicts, err := k.store.Settle(ctx, settlements)
	k.must(err)
	for i, v := range verdicts {
		k.check(v == bulk.Accepted, "settling %+v: %s, want accepted", settlements[i], v)
	}
}

// expectAfter is expect after a restart: jobs that were ready may be ready or pending.
func (k *kit) expectAfter(id string, want where) {
	k.t.Helper()
	c := k.action(id).Counts
	got := where{c.Pending + c.Ready, 0, c.NonReadyTotal(), c.InFlight, c.Succeeded, c.Failed, c.Canceled}
	k.check(got == want, "counts of %s after a restart, ready ones taken for pending: %+v, want %+v", id, got, want)
}
