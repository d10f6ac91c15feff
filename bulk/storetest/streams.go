package storetest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

var streamCases = []testCase{
	{"a stream takes jobs while it runs", false, streamRuns},
	{"a stream is sealed with what it has", false, streamSeal},
	{"jobs fill pages whose earlier jobs are done", false, streamPages},
	{"appends at the end are each in one piece, until the seal", false, streamConcurrent},
	{"a canceled stream takes no more", false, streamCancel},
	{"a stream leaves the events of an action", false, streamEvents},
	{"a stream survives a restart", true, streamSurvives},
	{"dead letters of an open stream are listed and replayed", true, streamDead},
}

// stream creates a stream with n jobs.
func (k *kit) stream(id string, n int) {
	k.t.Helper()
	s := aggregated(id)
	s.Stream = true
	a := k.create(s)
	k.check(a.Status == bulk.Running && a.Open && a.EnteredAt.Equal(a.CreatedAt) && !a.CreatedAt.IsZero(), "created %+v, want it RUNNING, open and entered", a)
	if n > 0 {
		k.enqueue(id, n)
	}
}

// enqueue appends n jobs at the end of a stream.
func (k *kit) enqueue(id string, n int) {
	k.t.Helper()
	from := k.action(id).Received
	payloads := make([][]byte, n)
	for i := range payloads {
		payloads[i] = payload(id, from+int64(i))
	}
	received, err := k.store.Append(ctx, id, bulk.AtEnd, payloads)
	k.must(err)
	k.check(received == from+int64(n), "Append at the end of %d jobs: %d received, want %d", from, received, from+int64(n))
}

func streamRuns(k *kit) {
	k.open(unlimited())
	k.stream("a", 0)
	for at := range int64(3) {
		k.enqueue("a", 2)
		_, waits := k.waiting("a", k.backlog())
		priority := bulk.Priority(k.action("a").EnteredAt, 0, 2*at+2, 2*at, time.Second)
		k.check(waits != nil && waits.Jobs == 2 && waits.Priority == priority, "with 2 jobs more the stream waits with %+v, want priority %g", waits, priority)
		jobs := k.take(2)
		k.expectIndexes(jobs, 2*at, 2*at+1)
		k.succeed(jobs...)
		_, err := k.store.Transition(ctx, "a", bulk.Transition{Kind: bulk.Aggregate})
		k.expectRefusal(err, "aggregating an open stream whose jobs are done")
	}
	k.transition("a", bulk.Transition{Kind: bulk.Pause})
	k.enqueue("a", 1)
	k.check(k.admitAll() == 0, "a job of a paused stream was admitted")
	k.transition("a", bulk.Transition{Kind: bulk.Resume})
	k.succeed(k.takeOne())
	k.expect("a", where{Succeeded: 7})
}

func streamSeal(k *kit) {
	k.open(unlimited())
	k.stream("a", 3)
	_, err := k.store.Transition(ctx, "a", bulk.Transition{Kind: bulk.Seal, Total: 4})
	refused := k.expectRefusal(err, "sealing 3 jobs with a total of 4")
	k.check(refused.Total == 4 && refused.Received == 3, "the refusal has %d and %d", refused.Total, refused.Received)
	a := k.transition("a", bulk.Transition{Kind: bulk.Seal, Total: bulk.AtEnd})
	k.check(a.Status == bulk.Running && !a.Open && a.Total == 3, "sealed: %+v, want it RUNNING, not open, with a total of 3", a)
	_, err = k.store.Append(ctx, "a", bulk.AtEnd, [][]byte{payload("a", 3)})
	k.expectRefusal(err, "Append to a sealed stream")
	k.succeed(k.take(3)...)
	k.transition("a", bulk.Transition{Kind: bulk.Aggregate})
	k.transition("a", bulk.Transition{Kind: bulk.Reduce, Reduced: k.action("a").Batches})
	a = k.transition("a", bulk.Transition{Kind: bulk.Complete})
	k.check(a.Status == bulk.Completed && a.Total == 3 && a.Succeeded == 3, "in the end: %+v", a)

	k.stream("none", 0)
	k.transition("none", bulk.Transition{Kind: bulk.Seal, Total: bulk.AtEnd})
	k.transition("none", bulk.Transition{Kind: bulk.Aggregate})
	a = k.transition("none", bulk.Transition{Kind: bulk.Complete})
	k.check(a.Status == bulk.Completed && a.Total == 0, "a stream without jobs: %+v", a)
}

// streamPages ends all jobs that a store's page has so far, again and again: the next ones
// are on the same page.
func streamPages(k *kit) {
	k.open(unlimited())
	k.stream("a", 0)
	for at := int64(0); at < 2500; {
		n := int(7 + at%150)
		k.enqueue("a", n)
		jobs := k.take(n)
		k.check(jobs[0].Index == at, "leased from index %d on, want %d", jobs[0].Index, at)
		k.settle(bulk.Settlement{Kind: bulk.FailedForGood, Error: "bad"}, jobs[0])
		k.succeed(jobs[1:]...)
		at += int64(n)
	}
	letters, err := k.store.DeadLetters(ctx, "a", 0, 1000)
	k.must(err)
	for _, l := range letters {
		k.check(string(l.Payload) == string(payload("a", l.Index)), "the dead letter %d has the payload %.60q", l.Index, l.Payload)
	}
	k.transition("a", bulk.Transition{Kind: bulk.Seal, Total: bulk.AtEnd})
	k.transition("a", bulk.Transition{Kind: bulk.Aggregate})
}

// appendCrowd has the acknowledged jobs of a crowd that appends at the end of the stream "a".
type appendCrowd struct {
	*kit
	told  atomic.Int64 // acknowledged as received
	mu    sync.Mutex
	owner map[int64]string // payload by index
}

// append appends jobs of one caller. Their indexes must be theirs alone.
func (c *appendCrowd) append(caller, jobs int) error {
	payloads := make([][]byte, jobs)
	for i := range payloads {
		payloads[i] = fmt.Appendf(nil, "%d of %d", i, caller)
	}
	received, err := c.store.Append(ctx, "a", bulk.AtEnd, payloads)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, payload := range payloads {
		index := received - int64(jobs-i)
		if other, given := c.owner[index]; given {
			return fmt.Errorf("index %d was given to %q and to %q", index, other, payload)
		}
		c.owner[index] = string(payload)
	}
	c.told.Store(max(c.told.Load(), received))
	return nil
}

// call appends until that is refused; the first caller seals the stream. The received jobs must not
// become fewer.
func (c *appendCrowd) call(caller int) error {
	for n := range 10_000 {
		if caller == 0 && n == 5 {
			if _, err := c.store.Transition(ctx, "a", bulk.Transition{Kind: bulk.Seal, Total: bulk.AtEnd}); err != nil {
				return fmt.Errorf("seal: %w", err)
			}
		}
		before := c.told.Load()
		a, err := c.store.Action(ctx, "a")
		if err != nil {
			return err
		}
		if a.Received < before {
			return fmt.Errorf("%d were received after %d were acknowledged", a.Received, before)
		}
		if err := c.append(caller, 4+n%5); err != nil {
			return err
		}
	}
	return errors.New("the stream was not sealed")
}

// streamConcurrent appends from a crowd until one of it seals the stream.
func streamConcurrent(k *kit) {
	k.open(unlimited())
	k.stream("a", 0)
	c := &appendCrowd{kit: k, owner: map[int64]string{}}
	failures := make(chan error, 20)
	var callers sync.WaitGroup
	for caller := range cap(failures) {
		callers.Go(func() { failures <- c.call(caller) })
	}
	callers.Wait()
	for range cap(failures) {
		k.expectRefusal(<-failures, "Append to a sealed stream")
	}
	a, jobs := k.action("a"), len(c.owner)
	k.check(!a.Open && a.Total == int64(jobs) && a.Received == a.Total, "sealed: %+v, want it with the %d jobs that were acknowledged", a, jobs)
	k.admitAll()
	leased, err := k.store.Lease(ctx, request(jobs))
	k.must(err)
	k.check(len(leased) == jobs, "leased %d of %d jobs", len(leased), jobs)
	for _, j := range leased {
		k.check(string(j.Payload) == c.owner[j.Index], "job %d is %q, and was said to be %q", j.Index, j.Payload, c.owner[j.Index])
		delete(c.owner, j.Index)
	}
}

func streamCancel(k *kit) {
	k.open(unlimited())
	k.stream("a", 5)
	jobs := k.take(2)
	k.succeed(jobs[0])
	a := k.transition("a", bulk.Transition{Kind: bulk.Cancel})
	k.check(!a.Open && a.Total == 5 && a.FinishedAt.IsZero(), "canceled: %+v, want it not open, with a total of 5", a)
	k.expect("a", where{InFlight: 1, Succeeded: 1, Canceled: 3})
	_, err := k.store.Append(ctx, "a", bulk.AtEnd, [][]byte{payload("a", 5)})
	k.expectRefusal(err, "Append to a canceled stream")
	k.succeed(jobs[1])
	k.transition("a", bulk.Transition{Kind: bulk.Drained})
	k.expect("a", where{Succeeded: 2, Canceled: 3})
	k.transition("a", bulk.Transition{Kind: bulk.Forget})
	k.stream("a", 1) // the id is free again
}

func streamEvents(k *kit) {
	k.open(unlimited())
	k.keepEvents(1 << 40)
	k.stream("a", 1)
	k.succeed(k.takeOne())
	k.transition("a", bulk.Transition{Kind: bulk.Seal, Total: bulk.AtEnd})
	k.transition("a", bulk.Transition{Kind: bulk.Aggregate})
	k.transition("a", bulk.Transition{Kind: bulk.Reduce, Reduced: k.action("a").Batches})
	k.transition("a", bulk.Transition{Kind: bulk.Complete})
	events := k.events()
	k.expectEvents(events, "created, aggregating, completed")
	created, completed := k.decode(events[0]), k.decode(events[2])
	k.check(created["status"] == "RUNNING" && created["total"] == nil, "the event of its creation has %v", created)
	k.check(completed["status"] == "COMPLETED" && completed["total"] == 1.0, "the event of its end has %v", completed)
}

// streamDead takes dead letters out of a stream while later jobs run and more are enqueued.
func streamDead(k *kit) {
	k.eachRestart(unlimited(), func(restart func()) {
		k.stream("a", 6)
		jobs := k.take(5)
		fail := func(jobs ...bulk.Job) {
			k.settle(bulk.Settlement{Kind: bulk.FailedForGood, Error: "bad"}, jobs...)
		}
		fail(jobs[0], jobs[2], jobs[4])
		k.succeed(jobs[1])
		k.expectDead("a", 0, 10, 0, 2, 4)
		a := k.transition("a", bulk.Transition{Kind: bulk.Replayed, Total: 3})
		k.check(a.Open && a.Status == bulk.Running && a.Replays == 1, "replayed, the stream is %s, open: %v, with %d replays", a.Status, a.Open, a.Replays)
		k.expectDead("a", 0, 10, 4)
		fail(jobs[3])
		k.enqueue("a", 1)
		restart()
		fail(k.take(2)...)
		k.expectDead("a", 0, 10, 3, 4, 5, 6)
		k.transition("a", bulk.Transition{Kind: bulk.DropLetters, Letters: []int64{4, 6}})
		restart()
		k.expectDead("a", 0, 10, 3, 5)
		k.transition("a", bulk.Transition{Kind: bulk.Replayed, Total: 7, From: 1})
		k.expectDead("a", 0, 10)
		restart()
		k.expectDead("a", 0, 10)
		k.expect("a", where{Succeeded: 1, Failed: 6})
		k.check(k.action("a").Replays == 2, "%d replays after a restart, want 2", k.action("a").Replays)
		k.stream("canceled", 2)
		jobs = k.take(2)
		fail(jobs[0])
		k.transition("canceled", bulk.Transition{Kind: bulk.Cancel})
		_, err := k.store.Transition(ctx, "canceled", bulk.Transition{Kind: bulk.Replayed, Total: 2})
		k.expectRefusal(err, "Replayed of a canceled stream with a job in flight")
		k.succeed(jobs[1])
	})
}

func streamSurvives(k *kit) {
	k.eachRestart(unlimited(), func(restart func()) {
		k.stream("a", 10)
		jobs := k.take(4)
		k.succeed(jobs[:2]...)
		restart()
		k.check(k.action("a").Open, "after a restart the stream is not open")
		k.expectAfter("a", where{Pending: 6, InFlight: 2, Succeeded: 2})
		k.enqueue("a", 3)
		restart()
		k.expectAfter("a", where{Pending: 9, InFlight: 2, Succeeded: 2})
		k.succeed(jobs[2:]...)
		k.succeed(k.take(9)...)
		restart()
		k.expect("a", where{Succeeded: 13})
		k.enqueue("a", 1)
		k.transition("a", bulk.Transition{Kind: bulk.Pause})
		restart()
		k.transition("a", bulk.Transition{Kind: bulk.Resume})
		k.succeed(k.takeOne())
		a := k.transition("a", bulk.Transition{Kind: bulk.Seal, Total: bulk.AtEnd})
		restart()
		k.check(k.action("a").Total == 14 && !k.action("a").Open, "sealed with %d jobs: %+v", a.Total, k.action("a"))
		k.transition("a", bulk.Transition{Kind: bulk.Aggregate})
		k.check(k.action("a").Status == bulk.Aggregating, "it is %s in the end", k.action("a").Status)
		k.stream("b", 2)
		k.transition("b", bulk.Transition{Kind: bulk.Cancel})
		restart()
		k.expect("b", where{Canceled: 2})
		k.advance(time.Millisecond)
	})
}
