package storetest

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

var jobCases = []testCase{
	{"a job is seen in every state", false, jobLife},
	{"what has ended stays as it ended", true, jobEnded},
	{"results are kept until the action is forgotten", true, jobResults},
	{"the jobs before one in line are counted", false, jobLine},
	{"a long line is not counted to its end", false, jobFarBehind},
	{"the jobs of a canceled action", false, jobCanceled},
	{"the first job that has not ended", false, jobFirst},
	{"a job that is not there", false, jobMissing},
}

// job returns the state of a job.
func (k *kit) job(id string, index int64) bulk.JobState {
	k.t.Helper()
	j, err := k.store.Job(ctx, id, index)
	k.must(err)
	k.check(index == bulk.FirstJob || j.Index == index, "Job(%s, %d) is of job %d", id, index, j.Index)
	return j
}

// expectJob compares the state of a job with what is wanted. A job that has ended may have
// attempts that are not known, unless it has an error. The action's number and, where At is
// zero, the time are not compared.
func (k *kit) expectJob(id string, want bulk.JobState) {
	k.t.Helper()
	got := k.job(id, want.Index)
	if got.Attempts == bulk.NotKnown && got.State.Ended() && want.Error == "" {
		got.Attempts = want.Attempts
	}
	k.check(want.At.IsZero() || k.near(got.At, want.At), "job %d of %s: the time is %v, want %v", want.Index, id, got.At, want.At)
	k.check(bytes.Equal(got.Result, want.Result), "job %d of %s: the result is %.300q, want %.300q", want.Index, id, got.Result, want.Result)
	got.Number, got.At, want.At, got.Result, want.Result = 0, time.Time{}, time.Time{}, nil, nil
	k.check(reflect.DeepEqual(got, want), "job %d of %s: %+v, want %+v", want.Index, id, got, want)
}

func (k *kit) expectNoJob(id string, index int64) {
	k.t.Helper()
	_, err := k.store.Job(ctx, id, index)
	var missing *bulk.NoJobError
	k.check(errors.As(err, &missing) && errors.Is(err, bulk.ErrNoJob), "Job(%s, %d): %v, want a *NoJobError", id, index, err)
	k.check(missing.ID == id && missing.Received == k.action(id).Received, "Job(%s, %d): %+v", id, index, missing)
}

// jobLife looks at one job between all the steps of its life.
func jobLife(k *kit) {
	config := unlimited()
	config.BackoffBase, config.BackoffCap = 4*time.Second, 8*time.Second
	k.open(config)
	s := targeted("a", "tenant", "api")
	k.create(s)
	k.upload("a", 1)
	k.expectJob("a", bulk.JobState{State: bulk.StatePending})
	k.transition("a", bulk.Transition{Kind: bulk.Seal, Total: 1})
	k.expectJob("a", bulk.JobState{State: bulk.StatePending})
	k.transition("a", bulk.Transition{Kind: bulk.Start})
	number := k.number("a")
	k.check(k.job("a", 0).Number == number, "the job's action has the number %d, want %d", k.job("a", 0).Number, number)

	settle := func(s bulk.Settlement, want bulk.JobState) {
		k.t.Helper()
		k.admitAll()
		k.expectJob("a", bulk.JobState{State: bulk.StateReady, Attempts: want.Attempts})
		j := k.lease(1)[0]
		k.expectJob("a", bulk.JobState{State: bulk.StateInFlight, Attempts: want.Attempts + 1, At: time.Now().Add(30 * time.Second)})
		k.settle(bulk.Settlement{Kind: bulk.Extended, LeaseFor: time.Minute}, j)
		k.expectJob("a", bulk.JobState{State: bulk.StateInFlight, Attempts: want.Attempts + 1, At: time.Now().Add(time.Minute)})
		k.settle(s, j)
	}
	settle(bulk.Settlement{Kind: bulk.Released}, bulk.JobState{})
	k.expectJob("a", bulk.JobState{State: bulk.StatePending})
	settle(bulk.Settlement{Kind: bulk.Throttled, RetryAfter: 50 * time.Second}, bulk.JobState{})
	k.expectJob("a", bulk.JobState{State: bulk.StateNonReady, Reason: bulk.APIThrottled, At: time.Now().Add(50 * time.Second)})
	k.advance(time.Minute)
	k.dispatch(1)
	k.expectJob("a", bulk.JobState{State: bulk.StatePending})
	settle(bulk.Settlement{Kind: bulk.FailedForNow, RetryAfter: 7 * time.Second}, bulk.JobState{})
	k.expectJob("a", bulk.JobState{State: bulk.StateNonReady, Reason: bulk.TransientError, Attempts: 1, At: time.Now().Add(7 * time.Second)})
	k.advance(time.Minute)
	k.dispatch(1)
	k.expectJob("a", bulk.JobState{State: bulk.StatePending, Attempts: 1})
	k.transition("a", bulk.Transition{Kind: bulk.Pause})
	k.expectJob("a", bulk.JobState{State: bulk.StatePending, Attempts: 1})
	k.transition("a", bulk.Transition{Kind: bulk.Resume})
	settle(bulk.Settlement{Kind: bulk.FailedForGood, Error: "no ü"}, bulk.JobState{Attempts: 1})
	k.expectJob("a", bulk.JobState{State: bulk.StateFailed, Attempts: 2, Error: "no ü", At: time.Now()})
}

// jobResults looks at the results of jobs, of an action that keeps them and of one that does not.
func jobResults(k *kit) {
	k.eachRestart(unlimited(), func(restart func()) {
		largest := slices.Repeat([]byte("x"), bulk.MaxEventResult)
		keeps := spec("keeps", "tenant")
		keeps.KeepResults = true
		k.run(keeps, 5)
		jobs := k.take(5)
		k.settle(bulk.Settlement{Kind: bulk.Succeeded, Result: []byte(`{"n":1}`)}, jobs[0])
		k.settle(bulk.Settlement{Kind: bulk.Succeeded, Result: largest}, jobs[1])
		k.settle(bulk.Settlement{Kind: bulk.Succeeded, ResultTruncated: true}, jobs[2])
		k.settle(bulk.Settlement{Kind: bulk.Succeeded}, jobs[3])
		k.settle(bulk.Settlement{Kind: bulk.FailedForGood, Error: "no"}, jobs[4])
		k.run(spec("drops", "tenant"), 1)
		k.settle(bulk.Settlement{Kind: bulk.Succeeded, Result: []byte(`{"n":1}`)}, k.take(1)[0])
		look := func() {
			k.t.Helper()
			succeeded := bulk.JobState{State: bulk.StateSucceeded, Attempts: 1}
			k.expectJob("drops", succeeded)
			succeeded.Result = []byte(`{"n":1}`)
			k.expectJob("keeps", succeeded)
			succeeded.Index, succeeded.Result = 1, largest
			k.expectJob("keeps", succeeded)
			succeeded.Index, succeeded.Result, succeeded.ResultTruncated = 2, nil, true
			k.expectJob("keeps", succeeded)
			succeeded.Index, succeeded.ResultTruncated = 3, false
			k.expectJob("keeps", succeeded)
			k.expectJob("keeps", bulk.JobState{Index: 4, State: bulk.StateFailed, Attempts: 1, Error: "no"})
		}
		look()
		restart()
		k.transition("keeps", bulk.Transition{Kind: bulk.Aggregate})
		k.transition("keeps", bulk.Transition{Kind: bulk.Complete})
		look()
		restart()
		look()
		k.transition("keeps", bulk.Transition{Kind: bulk.Forget})
		k.transition("drops", bulk.Transition{Kind: bulk.Aggregate})
		k.transition("drops", bulk.Transition{Kind: bulk.Complete})
		k.transition("drops", bulk.Transition{Kind: bulk.Forget})
	})
}

// jobEnded looks at jobs before and after the end of their action, a replay and a restart.
func jobEnded(k *kit) {
	k.eachRestart(unlimited(), func(restart func()) {
		k.fail("a", 1030, 1, 1025)
		look := func(failed bulk.JobState) {
			k.t.Helper()
			for _, index := range []int64{0, 2, 1024, 1029} {
				k.expectJob("a", bulk.JobState{Index: index, State: bulk.StateSucceeded, Attempts: 1})
			}
			k.expectJob("a", bulk.JobState{Index: 1025, State: bulk.StateFailed, Attempts: 1, Error: "error 1025"})
			k.expectJob("a", failed)
			k.expectNoJob("a", bulk.FirstJob)
		}
		dead := bulk.JobState{Index: 1, State: bulk.StateFailed, Attempts: 1, Error: "error 1"}
		look(dead)
		restart()
		look(dead)
		k.transition("a", bulk.Transition{Kind: bulk.Aggregate})
		k.transition("a", bulk.Transition{Kind: bulk.Complete})
		look(dead)
		k.transition("a", bulk.Transition{Kind: bulk.Replayed, Total: 2})
		dead.Error = ""
		look(dead)
		restart()
		look(dead)
		k.transition("a", bulk.Transition{Kind: bulk.Forget})
		_, err := k.store.Job(ctx, "a", 0)
		k.check(errors.Is(err, bulk.ErrNotFound), "Job of a forgotten action: %v, want ErrNotFound", err)
	})
}

// jobLine has jobs that return to their line in another order than that of their indexes.
func jobLine(k *kit) {
	k.open(unlimited())
	k.run(spec("a", "tenant"), 8)
	k.admit("a", 5)
	k.admit("a", 1)
	jobs := k.lease(4)
	for _, at := range []int{3, 0, 2} {
		k.settle(bulk.Settlement{Kind: bulk.Released}, jobs[at])
	}
	before := func(want map[int64]int64) {
		k.t.Helper()
		for index, n := range want {
			k.expectJob("a", bulk.JobState{Index: index, State: bulk.StatePending, Before: n})
		}
	}
	before(map[int64]int64{3: 0, 0: 1, 2: 2, 6: 3, 7: 4})
	k.expectJob("a", bulk.JobState{Index: 1, State: bulk.StateInFlight, Attempts: 1})
	for _, index := range []int64{4, 5} {
		k.expectJob("a", bulk.JobState{Index: index, State: bulk.StateReady})
	}
	k.transition("a", bulk.Transition{Kind: bulk.Pause}) // withdraws the ready jobs
	before(map[int64]int64{4: 0, 5: 1, 3: 2, 0: 3, 2: 4, 6: 5, 7: 6})
	k.transition("a", bulk.Transition{Kind: bulk.Resume})
	k.admit("a", 3)
	k.expectIndexes(k.lease(3), 4, 5, 3)
	before(map[int64]int64{0: 0, 2: 1, 6: 2, 7: 3})
}

// jobFarBehind returns jobs to the line so that no two follow one another.
func jobFarBehind(k *kit) {
	k.open(unlimited())
	const jobs = bulk.MaxReturned + 10
	k.run(spec("a", "tenant"), jobs+1)
	k.admit("a", jobs)
	var leased, order []bulk.Job
	for len(leased) < jobs {
		leased = append(leased, k.lease(1000)...)
	}
	for _, odd := range []int64{1, 0} {
		for _, j := range leased {
			if j.Index%2 == odd {
				order = append(order, j)
			}
		}
	}
	k.settle(bulk.Settlement{Kind: bulk.Released}, order...)
	for place, want := range map[int]int64{
		0: 0, 7: 7, bulk.MaxReturned - 1: bulk.MaxReturned - 1, bulk.MaxReturned: bulk.NotKnown, jobs - 1: bulk.NotKnown,
	} {
		k.expectJob("a", bulk.JobState{Index: order[place].Index, State: bulk.StatePending, Before: want})
	}
	k.expectJob("a", bulk.JobState{Index: jobs, State: bulk.StatePending, Before: jobs})
}

func jobCanceled(k *kit) {
	k.open(unlimited())
	k.run(spec("a", "tenant"), 8)
	k.admit("a", 6)
	jobs := k.lease(5)
	k.succeed(jobs[0])
	k.settle(bulk.Settlement{Kind: bulk.FailedForGood, Error: "bad"}, jobs[1])
	k.settle(bulk.Settlement{Kind: bulk.FailedForNow, RetryAfter: time.Hour}, jobs[2])
	k.transition("a", bulk.Transition{Kind: bulk.Cancel})
	look := func(inFlight bulk.JobState) {
		k.t.Helper()
		k.expectJob("a", bulk.JobState{Index: 0, State: bulk.StateSucceeded, Attempts: 1})
		k.expectJob("a", bulk.JobState{Index: 1, State: bulk.StateFailed, Attempts: 1, Error: "bad"})
		for _, index := range []int64{2, 5, 6, 7} {
			got := k.job("a", index)
			k.check(got.State == bulk.StateCanceled, "job %d is %s, want canceled", index, got.State)
		}
		k.expectJob("a", inFlight)
		k.expectNoJob("a", bulk.FirstJob)
		k.expectNoJob("a", 8)
	}
	running := bulk.JobState{Index: 4, State: bulk.StateInFlight, Attempts: 1}
	look(running)
	k.settle(bulk.Settlement{Kind: bulk.Released}, jobs[3])
	k.check(k.job("a", 3).State == bulk.StateCanceled, "a job that was handed back is %s", k.job("a", 3).State)
	look(running)
	k.succeed(jobs[4])
	k.transition("a", bulk.Transition{Kind: bulk.Drained})
	look(bulk.JobState{Index: 4, State: bulk.StateSucceeded, Attempts: 1})
}

// jobFirst ends jobs on both sides of the bounds of pages.
func jobFirst(k *kit) {
	k.open(unlimited())
	k.run(spec("a", "tenant"), 2100)
	first := func(want int64) {
		k.t.Helper()
		got := k.job("a", bulk.FirstJob).Index
		k.check(got == want, "the first job that has not ended is %d, want %d", got, want)
	}
	first(0)
	k.admit("a", 2050)
	jobs := k.lease(2050)
	k.succeed(jobs[1:1023]...)
	first(0)
	k.succeed(jobs[0])
	first(1023)
	k.succeed(jobs[1023])
	first(1024)
	k.succeed(jobs[1026:2050]...)
	k.succeed(jobs[1024])
	first(1025)
	k.succeed(jobs[1025])
	first(2050)
	k.check(k.job("a", bulk.FirstJob).State == bulk.StatePending, "the first job is not pending")
}

func jobMissing(k *kit) {
	k.open(unlimited())
	_, err := k.store.Job(ctx, "a", 0)
	k.check(errors.Is(err, bulk.ErrNotFound), "Job of an unknown action: %v, want ErrNotFound", err)
	k.create(spec("a", "tenant"))
	k.expectNoJob("a", 0)
	k.expectNoJob("a", bulk.FirstJob)
	k.upload("a", 3)
	for _, index := range []int64{3, 1 << 32, 1 << 62, -2} {
		k.expectNoJob("a", index)
	}
	k.expectJob("a", bulk.JobState{Index: 2, State: bulk.StatePending, Before: 2})
}

// checkJobs checks that the states of the single jobs are those of the model, and that they add
// up to the counts of their action.
func (m *machine) checkJobs(a *modelAction) {
	counts, before := bulk.Counts{Received: a.last.Received}, map[int64]bool{}
	for index, job := range a.jobs {
		got := m.job(a.ID, int64(index))
		replayed := got.State == bulk.StateFailed && a.replayed
		switch got.State {
		case bulk.StatePending:
			counts.Pending++
			before[got.Before] = true
			m.check(got.Before >= 0 && got.Before < a.last.Pending, "%d jobs before job %d of %s, of %d", got.Before, index, a.ID, a.last.Pending)
		case bulk.StateReady:
			counts.Ready++
		case bulk.StateNonReady:
			counts.NonReady[got.Reason]++
		case bulk.StateInFlight:
			counts.InFlight++
		}
		used := job.used
		if job.state == modelLeased {
			used++ // the present one
		}
		m.check(got.Attempts == used || job.crashes > 0 || job.state == modelCanceled || got.State.Ended() && got.Attempts == bulk.NotKnown,
			"job %d of %s is %s after %d attempts, want %d", index, a.ID, got.State, got.Attempts, used)
		want, final := map[modelState]bulk.State{
			modelLeased: bulk.StateInFlight, modelSucceeded: bulk.StateSucceeded, modelFailed: bulk.StateFailed, modelCanceled: bulk.StateCanceled,
		}[job.state]
		// Where the dead letters of a canceled action are gone, both are the same to a store.
		m.check(!final || got.State == want || job.state == modelCanceled && replayed, "job %d of %s is %s, want %s", index, a.ID, got.State, want)
	}
	want := a.last
	counts.Succeeded, counts.Failed, counts.Canceled = want.Succeeded, want.Failed, want.Canceled
	counts.Throttled, counts.Retried, counts.Batches = want.Throttled, want.Retried, want.Batches
	m.check(counts == want, "%s: its jobs are in the states %+v, want %+v", a.ID, counts, want)
	m.check(int64(len(before)) == want.Pending, "%s: %d places in line for %d pending jobs", a.ID, len(before), want.Pending)
}
