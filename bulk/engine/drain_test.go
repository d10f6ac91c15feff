package engine_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/bulktest"
)

func TestStopWaitsForWhatRunsAndReleasesWhatDoesNot(t *testing.T) {
	var mu sync.Mutex
	ran := map[int64]int{}
	started := 0
	mux := handled(func(_ context.Context, job *bulk.Job) ([]byte, error) {
		mu.Lock()
		started++
		ran[job.Index]++
		mu.Unlock()
		pass(10 * time.Second)
		return nil, nil
	})
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, bulk.Config{Workers: 3}, mux)
		id := r.submit(bulk.Spec{Type: "send"}, 50)
		pass(5 * time.Second)
		began := time.Now()
		if err := r.Stop(context.Background()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < 4*time.Second || took > 6*time.Second {
			t.Errorf("stopping took %s, want the 5 s that jobs needed", took)
		}
		a := r.action(id)
		if started != 3 || a.Succeeded != 3 || a.InFlight != 0 {
			t.Errorf("%d jobs were started: %+v", started, a.Counts)
		}
		r.Restart(t, mux)
		a = r.finish(id)
		bulktest.RequireCounts(t, a, bulk.Completed, 50, 0)
		for index, n := range ran {
			if n != 1 {
				t.Errorf("job %d ran %d times", index, n)
			}
		}
	})
}

func TestStopEndsTheContextOfWhatTakesTooLong(t *testing.T) {
	for name, c := range map[string]struct {
		grace    time.Duration
		deadline time.Duration // of Stop's context
		want     time.Duration
	}{
		"after the grace":                  {20 * time.Second, time.Hour, 20 * time.Second},
		"when the caller has no more time": {20 * time.Second, 2 * time.Second, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			runs := 0
			mux := handled(func(ctx context.Context, _ *bulk.Job) ([]byte, error) {
				if runs++; runs == 1 {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return nil, nil
			})
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, bulk.Config{ShutdownGrace: c.grace, JobTimeout: time.Hour, MaxAttempts: 1}, mux)
				id := r.submit(bulk.Spec{Type: "send"}, 1)
				pass(5 * time.Second)
				ctx, cancel := context.WithTimeout(context.Background(), c.deadline)
				defer cancel()
				began := time.Now()
				if err := r.Stop(ctx); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took != c.want {
					t.Errorf("stopping took %s, want %s", took, c.want)
				}
				if a := r.action(id); a.Pending+a.Ready != 1 || a.InFlight != 0 {
					t.Errorf("the job was not handed back: %+v", a.Counts)
				}
				r.Restart(t, mux)
				bulktest.RequireCounts(t, r.finish(id), bulk.Completed, 1, 0) // no attempt was used
			})
		})
	}
}

func TestStopLeavesAHandlerThatIgnoresItsContext(t *testing.T) {
	runs := 0
	var hang chan struct{}
	mux := handled(func(context.Context, *bulk.Job) ([]byte, error) {
		if runs++; runs == 1 {
			<-hang
		}
		return []byte("1"), nil
	})
	synctest.Test(t, func(t *testing.T) {
		hang = make(chan struct{})
		r := newRig(t, bulk.Config{ShutdownGrace: 10 * time.Second, MaxAttempts: 1}, mux)
		id := r.submit(bulk.Spec{Type: "send", Aggregate: []string{"count"}}, 1)
		pass(time.Second)
		began := time.Now()
		err := r.Stop(context.Background())
		if err == nil || !strings.Contains(err.Error(), "send worker") {
			t.Errorf("stop: %v, want an error that names the worker", err)
		}
		if took := time.Since(began); took < 10*time.Second || took > 13*time.Second {
			t.Errorf("stopping took %s, want the grace and a moment", took)
		}
		if a := r.action(id); a.Pending+a.Ready != 1 || a.InFlight != 0 {
			t.Errorf("the job was not handed back: %+v", a.Counts)
		}
		r.Close(t)
		close(hang) // the handler returns when the store is closed
		synctest.Wait()
		r.Restart(t, mux)
		a := r.finish(id)
		bulktest.RequireCounts(t, a, bulk.Completed, 1, 0)
		if string(a.Result["count"]) != "1" {
			t.Errorf("the result is %s", a.Result)
		}
	})
}
