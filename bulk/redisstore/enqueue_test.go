//go:build redis

package redisstore

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/internal/testkit/redistest"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

// TestEnqueueAtSeveralInstances enqueues jobs of several tenants at three instances, over the
// end of several windows: no two jobs have one id, and each stream ends with all of its jobs.
func TestEnqueueAtSeveralInstances(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	config := unlimited()
	config.StreamWindow = time.Second
	var engines []*bulk.Engine
	for n := range 3 {
		s := open(t, Options{URL: server.URL(), Shards: 5, Bulk: config, Instance: fmt.Sprint(n)})
		engines = append(engines, run(t, s, config, bulk.NewMux()))
	}
	var mu sync.Mutex
	jobs, streams, keyed := map[string]bool{}, map[string]int64{}, map[string]int{}
	var callers sync.WaitGroup
	began := time.Now()
	for caller := range 12 {
		callers.Go(func() {
			for n := 0; n < 50 || time.Since(began) < 2500*time.Millisecond; n++ {
				job := bulk.NewJob{Tenant: fmt.Sprint("t", n%4), Type: "echo", Payload: fmt.Append(nil, n)}
				if n%10 == 9 {
					job.Unique = fmt.Sprint(n)
				}
				enqueued, err := engines[(caller+n)%3].Enqueue(t.Context(), job)
				mu.Lock()
				switch {
				case err != nil:
					t.Error(err)
				case job.Unique != "":
					if keyed[enqueued.ID()] += 0; !enqueued.Duplicate {
						keyed[enqueued.ID()]++
					}
				case jobs[enqueued.ID()]:
					t.Errorf("two jobs have the id %s", enqueued.ID())
				default:
					jobs[enqueued.ID()] = true
					streams[enqueued.Action]++
				}
				mu.Unlock()
				if t.Failed() {
					return
				}
			}
		})
	}
	callers.Wait()
	t.Logf("%d jobs in %d streams, and %d with a key", len(jobs), len(streams), len(keyed))
	if len(streams) < 8 {
		t.Errorf("%d streams, want some windows of 4 tenants", len(streams))
	}
	for id, times := range keyed {
		if times != 1 {
			t.Errorf("%s was enqueued %d times", id, times)
		}
	}
	for id, count := range streams {
		until.True(t, id+" completes", func() bool {
			a, err := engines[0].Action(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			if a.Status == bulk.Completed && (a.Total != count || a.Succeeded != count) {
				t.Fatalf("%s has completed with a total of %d, %d succeeded; want %d", id, a.Total, a.Succeeded, count)
			}
			return a.Status == bulk.Completed
		})
	}
}
