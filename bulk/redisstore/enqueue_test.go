//go:build redis

package redisstore

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/engine"
	"github.com/sluice-project/sluice/internal/testkit/redistest"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

// enqueuedJobs has what was enqueued: the ids of jobs, how many each stream has, and how often
// a job with a key was enqueued.
type enqueuedJobs struct {
	mu      sync.Mutex
	jobs    map[string]bool
	streams map[string]int64
	keyed   map[string]int
}

// enqueue enqueues the nth job of a caller; each tenth has a key that all callers use.
func (e *enqueuedJobs) enqueue(t *testing.T, to *engine.Engine, n int) {
	job := engine.NewJob{Tenant: fmt.Sprint("t", n%4), Type: "echo", Payload: fmt.Append(nil, n)}
	if n%10 == 9 {
		job.Unique = fmt.Sprint(n)
	}
	enqueued, err := to.Enqueue(t.Context(), job)
	e.mu.Lock()
	defer e.mu.Unlock()
	switch id := enqueued.ID(); {
	case err != nil:
		t.Error(err)
	case job.Unique != "":
		if e.keyed[id] += 0; !enqueued.Duplicate {
			e.keyed[id]++
		}
	case e.jobs[id]:
		t.Errorf("two jobs have the id %s", id)
	default:
		e.jobs[id] = true
		e.streams[enqueued.Action]++
	}
}

// several reports whether there are streams of some windows of 4 tenants.
func (e *enqueuedJobs) several() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.streams) >= 10
}

// TestEnqueueAtSeveralInstances enqueues jobs of several tenants at three instances, over the
// end of several windows: no two jobs have one id, and each stream ends with all of its jobs.
func TestEnqueueAtSeveralInstances(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	config := unlimited()
	config.StreamWindow = time.Second
	var engines []*engine.Engine
	for n := range 3 {
		s := open(t, Options{URL: server.URL(), Shards: 5, Bulk: config, Instance: fmt.Sprint(n)})
		engines = append(engines, run(t, s, config, bulk.NewMux()))
	}
	e := &enqueuedJobs{jobs: map[string]bool{}, streams: map[string]int64{}, keyed: map[string]int{}}
	var callers sync.WaitGroup
	began := time.Now()
	for caller := range 12 {
		callers.Go(func() {
			for n := 0; (n < 50 || !e.several() && time.Since(began) < until.Limit) && !t.Failed(); n++ {
				e.enqueue(t, engines[(caller+n)%3], n)
			}
		})
	}
	callers.Wait()
	t.Logf("%d jobs in %d streams, and %d with a key", len(e.jobs), len(e.streams), len(e.keyed))
	if !e.several() {
		t.Errorf("%d streams, want some windows of 4 tenants", len(e.streams))
	}
	for id, times := range e.keyed {
		if times != 1 {
			t.Errorf("%s was enqueued %d times", id, times)
		}
	}
	for id, count := range e.streams {
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
