package engine_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/engine"
)

func (r *rig) setTenant(tenant bulk.Tenant) {
	r.t.Helper()
	if err := r.Set(r.t.Context(), bulk.SettingsChange{Name: "t", Tenant: &tenant}); err != nil {
		r.t.Fatal(err)
	}
}

func exceeds(err error, quota string) bool {
	refused, is := errors.AsType[*bulk.QuotaError](err)
	return is && refused.Quota == quota && refused.Tenant == "t"
}

// TestAStreamEndsAtAQuota: the done jobs of a stream count until it ends, so it ends before its window
// when the tenant can have no more.
func TestAStreamEndsAtAQuota(t *testing.T) {
	inVirtualTime(t, bulk.Config{StreamWindow: time.Hour}, bulk.NewMux(), func(t *testing.T, r *rig) {
		pass(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour)))
		r.setTenant(bulk.Tenant{MaxJobs: 10})
		var first engine.Enqueued
		for i := range 10 {
			first = r.enqueue(oneJob(i))
		}
		pass(time.Second)
		if a := r.action(first.Action); a.Succeeded != 10 || !a.Open {
			t.Fatalf("the stream has %+v, open: %v; want 10 done jobs, and open", a.Counts, a.Open)
		}
		if _, err := r.Enqueue(t.Context(), oneJob(10)); !exceeds(err, bulk.MaxJobsQuota) {
			t.Errorf("the job beyond the quota: %v", err)
		}
		if a := r.finish(first.Action); a.Status != bulk.Completed || a.Total != 10 {
			t.Errorf("the stream is %s with %d jobs, want COMPLETED with 10", a.Status, a.Total)
		}
		if next := r.enqueue(oneJob(10)); next.Action == first.Action || next.Index != 0 {
			t.Errorf("the next job is %+v, want the first of another stream", next)
		}
	})
}

// TestJobsThatFitAreEnqueued: of callers that share a write, those whose jobs fit are not refused.
func TestJobsThatFitAreEnqueued(t *testing.T) {
	inVirtualTime(t, bulk.Config{}, bulk.NewMux(), func(t *testing.T, r *rig) {
		r.setTenant(bulk.Tenant{MaxJobs: 20})
		var callers sync.WaitGroup
		var mu sync.Mutex
		stored := map[string]bool{}
		for i := range 50 {
			callers.Go(func() {
				enqueued, err := r.Enqueue(context.Background(), oneJob(i))
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					stored[enqueued.ID()] = true
				case !exceeds(err, bulk.MaxJobsQuota):
					t.Error(err)
				}
			})
		}
		callers.Wait()
		if len(stored) < 10 {
			t.Errorf("%d jobs were enqueued where 20 fit, want at least half of them", len(stored))
		}
	})
}

// TestARefusedJobLeavesNothing: a job that has an action of its own is not half stored.
func TestARefusedJobLeavesNothing(t *testing.T) {
	inVirtualTime(t, bulk.Config{}, bulk.NewMux(), func(t *testing.T, r *rig) {
		r.setTenant(bulk.Tenant{MaxBytes: 1})
		later, unique := oneJob(100), oneJob(100)
		later.RunAt, unique.Unique = time.Now().Add(time.Minute), "once"
		for range 3 {
			for _, job := range []engine.NewJob{later, unique} {
				if _, err := r.Enqueue(t.Context(), job); !exceeds(err, bulk.MaxBytesQuota) {
					t.Errorf("the job beyond the quota: %v", err)
				}
			}
		}
		if all, err := r.Actions(t.Context(), bulk.ActionFilter{}); err != nil || len(all) > 0 {
			t.Errorf("%d actions, %v; want none", len(all), err)
		}
		r.setTenant(bulk.Tenant{})
		for _, job := range []engine.NewJob{later, unique} {
			if enqueued := r.enqueue(job); enqueued.Duplicate {
				t.Errorf("%+v: the refused job counts as enqueued", enqueued)
			}
		}
	})
}

// TestARunWaitsForItsQuota: a run that has no room is made once there is some, and once only.
func TestARunWaitsForItsQuota(t *testing.T) {
	inVirtualTime(t, bulk.Config{}, handled(func(context.Context, *bulk.Job) ([]byte, error) { return nil, nil }), func(t *testing.T, r *rig) {
		for _, quota := range []bulk.Tenant{{MaxJobs: 1}, {MaxActions: 1}} {
			if _, _, err := r.Create(t.Context(), bulk.Spec{ID: "other", Tenant: "t", Type: "echo"}); err != nil {
				t.Fatal(err)
			}
			r.setTenant(quota)
			s := every("daily", "@daily")
			s.Spec.Tenant = "t"
			r.putSchedule(s)
			if _, err := r.RunNow(t.Context(), "daily"); err == nil {
				t.Errorf("with %+v the run has room", quota)
			}
			pass(time.Minute)
			if a := r.scheduled("daily"); a.LastAction != "" || a.Pending.IsZero() {
				t.Errorf("with %+v the run has started as %q, pending since %v", quota, a.LastAction, a.Pending)
			}
			r.setTenant(bulk.Tenant{})
			pass(time.Minute)
			s = r.scheduled("daily")
			if s.LastAction == "" || !s.Pending.IsZero() {
				t.Fatalf("with room, the run has started as %q, pending since %v", s.LastAction, s.Pending)
			}
			if a := r.finish(s.LastAction); a.Total != 2 {
				t.Errorf("the run has %d jobs, want 2", a.Total)
			}
			if err := r.RemoveSchedule(t.Context(), "daily"); err != nil {
				t.Fatal(err)
			}
			for _, kind := range []bulk.TransitionKind{bulk.Cancel, bulk.Forget} {
				if _, err := r.Store().Transition(t.Context(), "other", bulk.Transition{Kind: kind}); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}
