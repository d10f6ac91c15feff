package storetest

import (
	"strings"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

var retryCases = []testCase{
	{"a failed attempt is made again after a backoff", false, retryBackoff},
	{"a failed attempt waits as long as it asked for", false, retryAfter},
	{"a job that fails too often is dead", false, retryDead},
	{"attempts follow the spec, the type and the config", false, retryMost},
	{"throttling uses no attempt", false, retryThrottled},
	{"a throttled job waits for its slot", false, retryThrottledSlot},
	{"a released job is due at once", false, retryReleased},
	{"jobs that are due come first, by due time", false, retryOrder},
	{"a dispatch moves at most its batch", false, retryBatch},
	{"dispatch says when the next job is due", false, retryNext},
	{"a returned job goes ahead of new ones", false, retryAhead},
}

// retryBackoff checks the backoffs of jobs: they are within the cap, and not all equal.
func retryBackoff(k *kit) {
	config := unlimited()
	config.BackoffBase, config.BackoffCap, config.MaxAttempts = time.Second, 3*time.Second, 5
	k.open(config)
	const jobs = 30
	k.run(spec("a", "tenant"), jobs)
	spread := map[time.Duration]bool{}
	for attempt := 1; attempt < 5; attempt++ {
		leased := k.take(jobs)
		for _, j := range leased {
			k.check(j.Attempt == attempt, "%s: attempt %d, want %d", j.ID(), j.Attempt, attempt)
		}
		k.settle(bulk.Settlement{Kind: bulk.FailedForNow, Error: "once more"}, leased...)
		c := k.action("a").Counts
		k.check(c.NonReady[bulk.TransientError] == jobs, "non-ready %v, want %d for transient errors", c.NonReady, jobs)
		failed := time.Now()
		moved, next := k.dispatch(100)
		k.check(moved == 0, "a backoff of 0")
		for waiting := jobs; waiting > 0; waiting -= moved {
			k.check(next.After(time.Now()), "next is %v, not after now, %v", next, time.Now())
			k.advance(time.Until(next))
			spread[time.Since(failed)] = true
			k.check(time.Since(failed) <= 3*time.Second+time.Millisecond, "a backoff of %v, want at most 3 s", time.Since(failed))
			moved, next = k.dispatch(100)
		}
	}
	k.check(len(spread) > 2*jobs, "%d backoffs had only %d lengths: no jitter", 4*jobs, len(spread))
	k.check(k.action("a").Retried >= 3*jobs, "retried %d, want at least %d", k.action("a").Retried, 3*jobs)
}

func retryAfter(k *kit) {
	k.open(unlimited())
	k.run(spec("a", "tenant"), 1)
	j := k.takeOne()
	k.settle(bulk.Settlement{Kind: bulk.FailedForNow, RetryAfter: 90 * time.Second}, j)
	k.advance(89 * time.Second)
	moved, next := k.dispatch(10)
	k.check(moved == 0 && k.near(next, time.Now().Add(time.Second)), "moved %d, next %v, want in one second, %v", moved, next, time.Now())
	k.check(k.admitAll() == 0 && len(k.lease(1)) == 0, "a job was started before it was due")
	k.advance(time.Second + time.Millisecond)
	moved, _ = k.dispatch(10)
	k.check(moved == 1, "a job that was due was not moved")
	k.expect("a", where{Pending: 1})
	k.check(k.takeOne().Attempt == 2, "not the second attempt")
}

func retryDead(k *kit) {
	k.open(unlimited())
	s := spec("a", "tenant")
	s.MaxAttempts = 2
	k.run(s, 2)
	for attempt := range 2 {
		for _, j := range k.take(2) {
			text := strings.Repeat("x", 10) + string(rune('0'+j.Index)) + string(rune('0'+attempt))
			k.settle(bulk.Settlement{Kind: bulk.FailedForNow, Error: text, RetryAfter: time.Second}, j)
		}
		k.advance(2 * time.Second)
		k.dispatch(10)
	}
	k.expect("a", where{Failed: 2})
	a := k.action("a")
	k.check(a.Retried == 2, "retried %d, want 2", a.Retried)
	dead, err := k.store.DeadLetters(ctx, "a", 0, 10)
	k.must(err)
	k.check(len(dead) == 2, "%d dead letters, want 2", len(dead))
	for i, d := range dead {
		want := strings.Repeat("x", 10) + string(rune('0'+i)) + "1"
		k.check(d.Index == int64(i) && d.Attempts == 2 && d.Error == want, "dead letter %+v, want job %d, 2 attempts, error %s", d, i, want)
	}
}

func retryMost(k *kit) {
	config := unlimited()
	config.MaxAttempts = 3
	config.Types = map[string]bulk.TypeConfig{bulk.WebhookType: {MaxAttempts: 2}}
	k.open(config)
	for id, want := range map[string]int{"config": 3, "type": 2, "spec": 1, "more": 5} {
		s := spec(id, "tenant")
		switch id {
		case "type":
			s = targeted(id, "tenant", "api")
		case "spec", "more":
			s.MaxAttempts = want
		}
		k.run(s, 1)
		made := 0
		for k.action(id).Failed == 0 && made < 10 {
			j := k.takeOne()
			made++
			k.check(j.Attempt == made, "%s: attempt %d, want %d", id, j.Attempt, made)
			k.settle(bulk.Settlement{Kind: bulk.FailedForNow, RetryAfter: time.Second}, j)
			k.advance(2 * time.Second)
			k.dispatch(10)
		}
		k.check(made == want, "by the %s: dead after %d attempts, want %d", id, made, want)
	}
}

func retryThrottled(k *kit) {
	k.open(unlimited())
	s := spec("a", "tenant")
	s.MaxAttempts = 2
	k.run(s, 1)
	for n := int64(1); n <= 5; n++ {
		j := k.takeOne()
		k.check(j.Attempt == 1, "attempt %d after %d throttles, want 1", j.Attempt, n-1)
		k.settle(bulk.Settlement{Kind: bulk.Throttled, Error: "429"}, j)
		c := k.action("a").Counts
		k.check(c.Throttled == n && c.NonReady[bulk.APIThrottled] == 1, "after %d throttles: %+v", n, c)
		k.untilCalm()
	}
	k.settle(bulk.Settlement{Kind: bulk.FailedForNow}, k.takeOne())
	k.untilCalm()
	j := k.takeOne()
	k.check(j.Attempt == 2, "attempt %d after a failure, want 2", j.Attempt)
	k.settle(bulk.Settlement{Kind: bulk.Throttled}, j)
	k.untilCalm()
	j = k.takeOne()
	k.check(j.Attempt == 2, "attempt %d after a failure and a throttle, want 2", j.Attempt)
	k.succeed(j)
	c := k.action("a").Counts
	k.check(c.Throttled == 6 && c.Succeeded == 1, "throttled %d, succeeded %d", c.Throttled, c.Succeeded)
}

// untilCalm lets time pass until a job is due, and congestion control no longer limits
// anything.
func (k *kit) untilCalm() {
	k.t.Helper()
	k.untilDue()
	k.advance(time.Minute)
}

// untilDue lets time pass until Dispatch has moved a job.
func (k *kit) untilDue() {
	k.t.Helper()
	for range 1000 {
		moved, next := k.dispatch(1)
		if moved == 1 {
			return
		}
		k.check(next.After(time.Now()), "next is %v, not after now, %v", next, time.Now())
		k.advance(time.Until(next))
	}
	k.t.Fatal("no job is ever due")
}

func retryThrottledSlot(k *kit) {
	config := unlimited()
	config.BackoffBase = 2 * time.Second
	k.open(config)
	k.run(targeted("a", "tenant", "api"), 6)
	for _, asked := range []time.Duration{0, time.Second, 10 * time.Second, 5 * time.Minute} {
		j := k.takeOne()
		k.settle(bulk.Settlement{Kind: bulk.Throttled, RetryAfter: asked}, j)
		throttled := time.Now()
		k.untilDue()
		waited, least := time.Since(throttled), max(asked, 2*time.Second)
		k.check(waited >= least-time.Millisecond, "throttled with Retry-After %v: due after %v, want at least %v", asked, waited, least)
		k.check(waited <= least+time.Minute, "throttled with Retry-After %v: due only after %v", asked, waited)
		k.advance(time.Minute)
		k.succeed(k.takeOne())
	}
}

func retryReleased(k *kit) {
	k.open(unlimited())
	s := spec("a", "tenant")
	s.MaxAttempts = 1
	k.run(s, 1)
	for range 5 {
		j := k.takeOne()
		k.check(j.Attempt == 1, "attempt %d of a released job, want 1", j.Attempt)
		k.settle(bulk.Settlement{Kind: bulk.Released}, j)
		c := k.action("a").Counts
		k.check(c.Pending+c.NonReadyTotal() == 1, "released: %+v, want pending or non-ready", c)
		k.dispatch(10)
		k.expect("a", where{Pending: 1})
	}
	k.check(k.action("a").Throttled == 0, "a released job counts as throttled")
}

// retryOrder has jobs due in another order than they were settled in, and dispatches them one
// at a time.
func retryOrder(k *kit) {
	k.open(unlimited())
	k.run(spec("a", "tenant"), 5)
	jobs := k.take(5)
	for i, after := range []time.Duration{50, 20, 40, 10, 30} {
		k.settle(bulk.Settlement{Kind: bulk.FailedForNow, RetryAfter: after * time.Second}, jobs[i])
	}
	k.advance(time.Minute)
	for _, want := range []int64{3, 1, 4, 2, 0} {
		moved, _ := k.dispatch(1)
		k.check(moved == 1, "Dispatch(1) moved %d of several due jobs", moved)
		k.admitAll()
		k.expectIndexes(k.lease(5), want)
	}
}

func retryBatch(k *kit) {
	k.open(unlimited())
	k.run(spec("a", "one"), 30)
	k.run(spec("b", "two"), 30)
	k.settle(bulk.Settlement{Kind: bulk.FailedForNow, RetryAfter: time.Second}, k.take(60)[:40]...)
	k.advance(time.Minute)
	total := 0
	for _, most := range []int{0, 1, 25, 7, 13} {
		moved, next := k.dispatch(most)
		k.check(moved == most, "Dispatch(%d) of 60 jobs that were due moved %d", most, moved)
		k.check(!next.IsZero() && !next.After(time.Now()), "more is due, but next is %v", next)
		total += moved
	}
	moved, next := k.dispatch(100)
	k.check(total+moved == 60 && next.IsZero(), "moved %d of 60, next %v, want none", total+moved, next)
	k.check(k.action("a").Pending+k.action("b").Pending == 60, "not all 60 are pending")
}

func retryNext(k *kit) {
	k.open(unlimited())
	moved, next := k.dispatch(10)
	k.check(moved == 0 && next.IsZero(), "of an empty store: moved %d, next %v", moved, next)
	k.run(spec("a", "tenant"), 4)
	moved, next = k.dispatch(10)
	k.check(moved == 0 && next.IsZero(), "with jobs that only wait: moved %d, next %v", moved, next)
	jobs := k.take(4)
	start := time.Now()
	expect := func(after time.Duration) {
		k.t.Helper()
		_, next := k.dispatch(10)
		k.check(k.near(next, start.Add(after)), "next is %v, want %v", next, start.Add(after))
	}
	expect(30 * time.Second)
	k.settle(bulk.Settlement{Kind: bulk.FailedForNow, RetryAfter: 40 * time.Second}, jobs[0])
	expect(30 * time.Second)
	k.settle(bulk.Settlement{Kind: bulk.FailedForNow, RetryAfter: 10 * time.Second}, jobs[1])
	expect(10 * time.Second)
	k.advance(11 * time.Second)
	expect(30 * time.Second)
	k.succeed(jobs[2:]...)
	k.advance(20 * time.Second)
	expect(40 * time.Second)
}

func retryAhead(k *kit) {
	k.open(unlimited())
	k.run(spec("a", "tenant"), 6)
	k.admit("a", 2)
	jobs := k.lease(2)
	k.settle(bulk.Settlement{Kind: bulk.Released}, jobs...)
	k.dispatch(10)
	k.admit("a", 2)
	back := k.lease(2)
	k.check(len(back) == 2 && back[0].Index+back[1].Index == 1, "leased %v, want the returned 0 and 1 ahead of new ones", indexes(back))
	k.admitAll()
	k.expectIndexes(k.lease(10), 2, 3, 4, 5)
}
