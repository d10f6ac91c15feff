package engine_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

// TestLimitsByKey runs an action in which one customer of a tenant has most jobs, in front. Each may have
// one in flight; so the other customers' jobs take as long as without the first.
func TestLimitsByKey(t *testing.T) {
	var mu sync.Mutex
	running, done := map[string]int{}, map[string]int{}
	mux := bulk.NewMux()
	mux.HandleFunc("work", func(_ context.Context, job *bulk.Job) ([]byte, error) {
		n, err := strconv.Atoi(string(job.Payload))
		if err != nil {
			return nil, err
		}
		key := "flood"
		if n >= 1000 {
			key = strconv.Itoa(n % 10)
		}
		mu.Lock()
		running[key]++
		if running[key] > 1 {
			t.Errorf("%d jobs of customer %s run at a time", running[key], key)
		}
		mu.Unlock()
		<-time.After(100 * time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		running[key]--
		done[key]++
		return nil, nil
	})
	inVirtualTime(t, bulk.Config{RequestsPerSecond: -1, Workers: 20}, mux, func(t *testing.T, r *rig) {
		tenant := bulk.Tenant{Keys: map[string]bulk.KeyLimit{`payload < 1000.0 ? "flood" : string(int(payload) % 10)`: {Concurrency: 1}}}
		if err := r.Set(t.Context(), bulk.SettingsChange{Name: "t", Tenant: &tenant}); err != nil {
			t.Fatal(err)
		}
		id := r.submit(bulk.Spec{Tenant: "t", Type: "work"}, 1100)
		pass(2 * time.Second)
		mu.Lock()
		for customer := range 10 {
			if n := done[strconv.Itoa(customer)]; n != 10 {
				t.Errorf("customer %d has %d of 10 jobs done after 2 s, want all", customer, n)
			}
		}
		if n := done["flood"]; n < 15 {
			t.Errorf("the flood has %d jobs done after 2 s, want nearly 10 a second", n)
		}
		mu.Unlock()
		if got := r.action(id); got.Failed+got.Throttled+got.Retried > 0 {
			t.Errorf("the action has %+v, want no attempt that failed", got.Counts)
		}
	})
}

// TestRealCosts has attempts that cost a tenth of what is charged when they start.
func TestRealCosts(t *testing.T) {
	mux := bulk.NewMux()
	mux.HandleFunc("work", func(_ context.Context, job *bulk.Job) ([]byte, error) {
		job.Cost = 10
		return nil, nil
	})
	inVirtualTime(t, bulk.Config{RequestsPerSecond: -1}, mux, func(t *testing.T, r *rig) {
		tenant := bulk.Tenant{Keys: map[string]bulk.KeyLimit{"type": {RequestsPerSecond: 100, Cost: "cost"}}}
		if err := r.Set(t.Context(), bulk.SettingsChange{Name: "t", Tenant: &tenant}); err != nil {
			t.Fatal(err)
		}
		id := r.submit(bulk.Spec{Tenant: "t", Type: "work", Cost: 100}, 1000)
		pass(10 * time.Second)
		if done := r.action(id).Succeeded; done < 80 || done > 120 {
			t.Errorf("%d attempts of a cost of 10 ended in 10 s, of which there may be 100 a second", done)
		}
	})
}

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
