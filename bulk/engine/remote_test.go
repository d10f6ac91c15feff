package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/bulktest"
	"github.com/sluice-project/sluice/bulk/engine"
)

func (r *rig) lease(most int, leaseFor, wait time.Duration) []bulk.Job {
	r.t.Helper()
	jobs, err := r.Lease(context.Background(), bulk.LeaseRequest{Types: []string{"remote"}, Max: most, LeaseFor: leaseFor}, wait)
	if err != nil {
		r.t.Fatal(err)
	}
	return jobs
}

func (r *rig) settle(report engine.Report) bulk.Verdict {
	r.t.Helper()
	verdicts, err := r.Settle(context.Background(), []engine.Report{report})
	if err != nil || len(verdicts) != 1 {
		r.t.Fatal(verdicts, err)
	}
	return verdicts[0]
}

func TestARemoteWorkerWaitsForJobs(t *testing.T) {
	inVirtualTime(t, bulk.Config{}, bulk.NewMux(), func(t *testing.T, r *rig) {
		began := time.Now()
		if jobs := r.lease(10, 0, 0); len(jobs) != 0 || time.Since(began) != 0 {
			t.Errorf("without waiting: %d jobs after %s", len(jobs), time.Since(began))
		}
		if jobs := r.lease(10, 0, 7*time.Second); len(jobs) != 0 || time.Since(began) != 7*time.Second {
			t.Errorf("nothing came: %d jobs after %s, want none after 7s", len(jobs), time.Since(began))
		}
		time.AfterFunc(3*time.Second, func() { r.submit(bulk.Spec{ID: "a", Type: "remote"}, 5) })
		began = time.Now()
		jobs := r.lease(3, 0, time.Minute)
		if waited := time.Since(began); len(jobs) == 0 || len(jobs) > 3 || waited < 3*time.Second || waited > 3500*time.Millisecond {
			t.Fatalf("%d jobs after %s, want some of 3 soon after 3s", len(jobs), waited)
		}
		if j := jobs[0]; j.ID() != "a-0" || string(j.Payload) != "0" || j.Attempt != 1 || j.Spec.Type != "remote" ||
			time.Until(j.Deadline).Round(time.Second) != 30*time.Second {
			t.Errorf("the first job is %+v", j)
		}
		ctx, cancel := context.WithTimeout(r.t.Context(), time.Second)
		defer cancel()
		if _, err := r.Lease(ctx, bulk.LeaseRequest{Types: []string{"no such"}, Max: 1}, time.Hour); err == nil {
			t.Error("the caller went away, and no error")
		}
	})
}

func TestRemoteReports(t *testing.T) {
	inVirtualTime(t, bulk.Config{}, bulk.NewMux(), func(t *testing.T, r *rig) {
		id := r.submit(bulk.Spec{Type: "remote", Aggregate: []string{"sum:n"}}, 4)
		var jobs []bulk.Job
		for len(jobs) < 4 {
			jobs = append(jobs, r.lease(4, time.Minute, time.Second)...)
		}
		for _, c := range []struct {
			name   string
			report engine.Report
			want   bulk.Verdict
		}{
			{"succeeded", engine.Report{Lease: jobs[0].Lease, Kind: bulk.Succeeded, Result: []byte(`{"n":"2.50"}`)}, bulk.Accepted},
			{"again", engine.Report{Lease: jobs[0].Lease, Kind: bulk.Succeeded, Result: []byte(`{"n":"2.50"}`)}, bulk.Duplicate},
			{"failed for good", engine.Report{Lease: jobs[1].Lease, Kind: bulk.FailedForGood, Error: "no"}, bulk.Accepted},
			{"failed for now", engine.Report{Lease: jobs[2].Lease, Kind: bulk.FailedForNow, Error: "later", RetryAfter: 5 * time.Second}, bulk.Accepted},
			{"throttled", engine.Report{Lease: jobs[3].Lease, Kind: bulk.Throttled, RetryAfter: 5 * time.Second}, bulk.Accepted},
			{"no such lease", engine.Report{Lease: bulk.LeaseID{Action: 99, Index: 1, Fence: 1}, Kind: bulk.Succeeded}, bulk.Unknown},
			{"no such job", engine.Report{Lease: bulk.LeaseID{Action: jobs[0].Lease.Action, Index: 99, Fence: 1}, Kind: bulk.Succeeded}, bulk.Unknown},
		} {
			if got := r.settle(c.report); got != c.want {
				t.Errorf("%s: %s, want %s", c.name, got, c.want)
			}
		}
		jobs = r.lease(4, time.Minute, 10*time.Second)
		for len(jobs) < 2 {
			jobs = append(jobs, r.lease(4, time.Minute, 10*time.Second)...)
		}
		for _, j := range jobs {
			if want := map[int64]int{2: 2, 3: 1}[j.Index]; j.Attempt != want {
				t.Errorf("job %d is in attempt %d, want %d", j.Index, j.Attempt, want)
			}
			r.settle(engine.Report{Lease: j.Lease, Kind: bulk.Succeeded, Result: []byte(`{"n":1}`)})
		}
		a := r.finish(id)
		bulktest.RequireCounts(t, a, bulk.Completed, 3, 1)
		if string(a.Result["sum:n"]) != `"4.50"` {
			t.Errorf("the sum is %s", a.Result["sum:n"])
		}
	})
}

func TestARemoteLeaseIsExtendedOrExpires(t *testing.T) {
	inVirtualTime(t, bulk.Config{}, bulk.NewMux(), func(t *testing.T, r *rig) {
		r.submit(bulk.Spec{Type: "remote"}, 1)
		first := r.lease(1, 10*time.Second, time.Minute)[0]
		for range 5 {
			pass(8 * time.Second)
			if got := r.settle(engine.Report{Lease: first.Lease, Kind: bulk.Extended, LeaseFor: 10 * time.Second}); got != bulk.Accepted {
				t.Fatalf("extended: %s", got)
			}
			if jobs := r.lease(1, 10*time.Second, 0); len(jobs) > 0 {
				t.Fatal("it was leased twice")
			}
		}
		began := time.Now()
		second := r.lease(1, 10*time.Second, time.Minute)[0]
		if waited := time.Since(began); waited < 10*time.Second || waited > 11*time.Second {
			t.Errorf("it came again after %s, want 10 s", waited)
		}
		if second.Attempt != 2 || second.Lease == first.Lease {
			t.Errorf("the second lease is %+v", second)
		}
		for _, kind := range []bulk.SettlementKind{bulk.Succeeded, bulk.Extended} {
			if got := r.settle(engine.Report{Lease: first.Lease, Kind: kind, LeaseFor: time.Minute}); got != bulk.Expired {
				t.Errorf("a late report of the first: %s, want expired", got)
			}
		}
		if got := r.settle(engine.Report{Lease: second.Lease, Kind: bulk.Succeeded}); got != bulk.Accepted {
			t.Errorf("the second: %s", got)
		}
	})
}

// A remote worker learns at the next extension that its action was canceled, and hands the job back.
func TestRemoteWorkerLearnsOfCancel(t *testing.T) {
	inVirtualTime(t, bulk.Config{}, bulk.NewMux(), func(t *testing.T, r *rig) {
		id := r.submit(bulk.Spec{Type: "remote"}, 1)
		lease := r.lease(1, 0, time.Second)[0].Lease
		if v := r.settle(engine.Report{Lease: lease, Kind: bulk.Extended}); v != bulk.Accepted {
			t.Errorf("before: %s", v)
		}
		if _, err := r.Cancel(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if v := r.settle(engine.Report{Lease: lease, Kind: bulk.Extended}); v != bulk.WasCanceled || v.String() != "canceled" {
			t.Errorf("extended after the cancel: %s, want canceled", v)
		}
		if v := r.settle(engine.Report{Lease: lease, Kind: bulk.Released}); v != bulk.Accepted {
			t.Errorf("handed back: %s", v)
		}
		if a := r.finish(id); a.Canceled != 1 {
			t.Errorf("%+v, want one canceled", a.Counts)
		}
	})
}

// The workforce of a type counts the workers of this process, and the jobs that others have or wait for.
func TestWorkforces(t *testing.T) {
	inVirtualTime(t, bulk.Config{Workers: 3}, bulk.NewMux(), func(t *testing.T, r *rig) {
		r.submit(bulk.Spec{ID: "a", Type: "remote"}, 5)
		if jobs := r.lease(2, 0, time.Minute); len(jobs) != 2 {
			t.Fatalf("%d jobs", len(jobs))
		}
		all, err := r.Workforces(context.Background())
		if err != nil || len(all) != 2 {
			t.Fatal(all, err)
		}
		if want := (engine.Workforce{Type: "echo", Workers: 3, Here: 3}); all[0] != want {
			t.Errorf("%+v, want %+v", all[0], want)
		}
		if got := all[1]; got.Type != "remote" || got.Workers != 2 || got.Here != 0 || got.InFlight != 2 || got.Waiting+got.Ready != 3 {
			t.Errorf("%+v, want 2 workers that have 2 of 5 jobs", got)
		}
	})
}
