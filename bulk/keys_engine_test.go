package bulk_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

// TestCustomersOfATenant runs the jobs of two customers of a tenant at the tenant's rate: the one with
// 10,000 actions, or with 10,000 jobs, has half of it while the other waits; another tenant has its own.
func TestCustomersOfATenant(t *testing.T) {
	for _, c := range []struct{ actions, jobs int }{{10_000, 1}, {1, 10_000}} {
		t.Run(fmt.Sprintf("%d actions of %d", c.actions, c.jobs), func(t *testing.T) {
			var mu sync.Mutex
			ran := map[string]int{}
			mux := bulk.NewMux()
			mux.HandleFunc("work", func(_ context.Context, job *bulk.Job) ([]byte, error) {
				mu.Lock()
				defer mu.Unlock()
				ran[job.Spec.Tenant+"/"+job.Spec.Key]++
				return nil, nil
			})
			config := bulk.Config{RequestsPerSecond: 40, Types: map[string]bulk.TypeConfig{"work": {Workers: 20}}}
			inVirtualTime(t, config, mux, func(t *testing.T, r *rig) {
				for range c.actions {
					r.submit(bulk.Spec{Tenant: "t", Type: "work", Key: "whale"}, c.jobs)
				}
				pass(5 * time.Second)
				r.submit(bulk.Spec{Tenant: "t", Type: "work", Key: "minnow"}, 1000)
				r.submit(bulk.Spec{Tenant: "u", Type: "work"}, 1000)
				pass(3 * time.Second) // what is ready was divided before
				mu.Lock()
				clear(ran)
				mu.Unlock()
				pass(30 * time.Second)
				mu.Lock()
				defer mu.Unlock()
				for who, want := range map[string]int{"t/whale": 300, "t/minnow": 300, "u/": 600} {
					if got := ran[who]; got < want*95/100 || got > want*105/100 {
						t.Errorf("%s ran %d jobs, want %d of %v", who, got, want, ran)
					}
				}
			})
		})
	}
}
