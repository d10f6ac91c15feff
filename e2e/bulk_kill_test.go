package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

// The embedded server is killed while its limits delay jobs. Remote workers see that no
// window has more attempts than the limits allow, that each lease holds until its
// deadline, and that each job is counted once.
func TestBulkLimitsOverKills(t *testing.T) {
	t.Parallel()
	plan := bulkPlan{
		phases: [][]string{{"remote"}, {"webhook", "echo"}}, tenants: 4, jobs: 500,
		limit: 600, tenantLimit: 120, keyLimit: 60, leaseFor: 2 * time.Second,
	}
	if long() {
		plan.jobs, plan.limit = 3_000, 1_600
		plan.tenantLimit, plan.keyLimit = 350, 180
	}
	s := startServer(t)
	l := newBulkLoad(t, plan, s)
	l.run(10*time.Minute, func() {
		s.kill()
		<-time.After(rand.N(300 * time.Millisecond))
		s.start()
	})
	l.check()
}

// enqueuing has the acknowledged jobs of callers that enqueue jobs one at a time.
type enqueuing struct {
	s     *server
	mu    sync.Mutex
	told  map[string]string // payload by the job's id
	ended chan struct{}
}

// call enqueues jobs until the end, each once.
func (e *enqueuing) call(caller int) {
	for n := 0; ; n++ {
		select {
		case <-e.ended:
			return
		default:
		}
		payload := fmt.Sprintf(`"%d of %d"`, n, caller)
		a, err := e.s.do("POST", "/v1/jobs", "application/json", fmt.Appendf(nil, `{"tenant":"t","type":"remote","payload":%s}`, payload))
		var job struct{ ID string }
		if err != nil || a.status != http.StatusCreated || a.json(&job) != nil {
			<-time.After(10 * time.Millisecond) // it is down
			continue
		}
		e.mu.Lock()
		if other := e.told[job.ID]; other != "" {
			e.s.t.Errorf("%s and %s have the id %s", payload, other, job.ID)
		}
		e.told[job.ID] = payload
		e.mu.Unlock()
	}
}

// await waits until more jobs are acknowledged.
func (e *enqueuing) await(more int) {
	count := func() int {
		e.mu.Lock()
		defer e.mu.Unlock()
		return len(e.told)
	}
	before := count()
	until.True(e.s.t, "jobs are enqueued", func() bool { return count() >= before+more })
}

// Callers enqueue jobs one at a time while the embedded server is killed. Each acknowledged job
// is there, with its payload, and no job has the id of another.
func TestBulkEnqueueOverKills(t *testing.T) {
	t.Parallel()
	kills := 3
	if long() {
		kills = 20
	}
	s := startServer(t)
	e := &enqueuing{s: s, told: map[string]string{}, ended: make(chan struct{})}
	var callers sync.WaitGroup
	for caller := range 16 {
		callers.Go(func() { e.call(caller) })
	}
	for range kills {
		e.await(200)
		s.kill()
		s.start()
	}
	close(e.ended)
	callers.Wait()
	t.Logf("%d jobs were acknowledged", len(e.told))
	until.True(t, "every acknowledged job comes", func() bool {
		var leased struct{ Jobs []remoteJob }
		s.call("POST", "/v1/leases", `{"types":["remote"],"max":1000,"wait_ms":1000,"lease_ms":600000}`, http.StatusOK, &leased)
		outcomes := make([]string, len(leased.Jobs))
		for i, j := range leased.Jobs {
			if want := e.told[j.ID]; want != "" && want != string(j.Payload) {
				t.Errorf("%s has the payload %s, want %s", j.ID, j.Payload, want)
			}
			delete(e.told, j.ID)
			outcomes[i] = fmt.Sprintf(`{"lease":%q,"status":"succeeded"}`, j.Lease)
		}
		if len(outcomes) > 0 {
			s.call("POST", "/v1/leases/ack", fmt.Sprintf(`{"outcomes":[%s]}`, strings.Join(outcomes, ",")), http.StatusOK, nil)
		}
		return len(e.told) == 0
	})
}
