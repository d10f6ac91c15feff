package sim

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/bulktest"
)

// A whale has a million jobs waiting when a small tenant arrives with a hundred. The small tenant's
// fair share is half of the capacity: ten jobs per second. Alone at that share it would take ten
// seconds; together with the whale it may take a fifth longer, whether the rate limit or the
// workers are scarce.
func TestNewcomerBesideWhale(t *testing.T) {
	const alone = 10 * time.Second
	bottlenecks := map[string]struct {
		config  bulk.Config
		latency time.Duration
	}{
		"rate limit": {bulk.Config{RequestsPerSecond: 20}, 10 * time.Millisecond},
		"workers":    {bulk.Config{RequestsPerSecond: -1, Workers: 10}, 500 * time.Millisecond},
	}
	for name, bottleneck := range bottlenecks {
		for _, phase := range []time.Duration{0, 400 * time.Millisecond, 950 * time.Millisecond} {
			t.Run(fmt.Sprint(name, " from ", phase), func(t *testing.T) {
				mux := bulk.NewMux()
				mux.HandleFunc("call", func(context.Context, *bulk.Job) ([]byte, error) {
					time.Sleep(bottleneck.latency)
					return nil, nil
				})
				simulate(t, bottleneck.config, phase, mux, func(w *world) {
					whale := w.submit(bulk.Spec{Tenant: "whale", Type: "call"}, 1_000_000)
					time.Sleep(30 * time.Second)
					began := time.Now()
					w.finish(w.submit(bulk.Spec{Tenant: "small", Type: "call"}, 100))
					took := time.Since(began)
					t.Logf("%s beside the whale, %s alone: %.3f", took, alone, took.Seconds()/alone.Seconds())
					if took > alone*12/10 {
						t.Errorf("took %s beside the whale, more than 1.2 times %s", took, alone)
					}
					if _, err := w.engine.Cancel(context.Background(), whale); err != nil {
						t.Fatal(err)
					}
				})
			})
		}
	}
}

// Seven equal tenants are backlogged all the time. In every full second each completes as many jobs
// as the others: Jain's index is at least 0.99 if a tenant's share is at least ten; below that,
// counts differ by at most one.
func TestEqualTenants(t *testing.T) {
	cases := map[string]struct {
		config  bulk.Config
		latency time.Duration
	}{
		"rate limit": {bulk.Config{RequestsPerSecond: 100}, 5 * time.Millisecond},
		"workers":    {bulk.Config{RequestsPerSecond: -1, Workers: 20}, 200 * time.Millisecond},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			mux := bulk.NewMux()
			mux.HandleFunc("call", func(context.Context, *bulk.Job) ([]byte, error) {
				time.Sleep(c.latency)
				return nil, nil
			})
			simulate(t, c.config, 0, mux, func(w *world) {
				var ids []string
				for tenant := range 7 {
					ids = append(ids, w.submit(bulk.Spec{Tenant: fmt.Sprint("tenant-", tenant), Type: "call"}, 2000+tenant))
				}
				for _, id := range ids {
					w.finish(id)
				}
				f := w.engine.Fairness()
				t.Logf("Jain %.4f over %d windows, %s", f.Jain, f.Windows, time.Since(w.began))
				if f.Windows < 20 || f.Jain < 0.99 {
					t.Errorf("Jain's index is %.4f over %d windows, want at least 0.99 over at least 20", f.Jain, f.Windows)
				}
			})
		})
	}
}

// Ten equal tenants call one target that answers 429 above a hundred requests per second of all of
// them together, which the engine has to find out. It shares the found rate evenly.
func TestEqualTenantsAtThrottlingTarget(t *testing.T) {
	for _, rate := range []int{100, 25} {
		t.Run(fmt.Sprint(rate, " requests a second"), func(t *testing.T) {
			mux := bulk.NewMux()
			mux.Handle("call", bulktest.NewTarget(bulktest.TargetOptions{Rate: rate, Latency: 5 * time.Millisecond, Phase: targetPhase}))
			simulate(t, bulk.Config{Workers: 30}, 0, mux, func(w *world) {
				var ids []string
				together := time.Now().Add(time.Second) // so that none has a head start
				for tenant := range 10 {
					ids = append(ids, w.submit(bulk.Spec{Tenant: fmt.Sprint("tenant-", tenant), Type: "call", RunAt: together}, 10*rate))
				}
				time.Sleep(51 * time.Second)
				least, most := int64(1<<62), int64(0)
				for _, id := range ids {
					a, err := w.engine.Action(context.Background(), id)
					if err != nil {
						t.Fatal(err)
					}
					least, most = min(least, a.Succeeded), max(most, a.Succeeded)
				}
				var throttled int64
				for _, id := range ids {
					throttled += w.finish(id).Throttled
				}
				took := time.Since(together)
				t.Logf("after 50 s from %d to %d; %s, ideal 1m40s; %.3f throttles per job", least, most, took, float64(throttled)/float64(100*rate))
				if float64(least) < 0.9*float64(most) || took > 105*time.Second {
					t.Errorf("after 50 s one tenant has %d and another %d; all took %s", least, most, took)
				}
			})
		})
	}
}

// One tenant's workers are slow, the other's are not, and the limit is more than both need. Jobs
// that are ready for the slow workers take no more of the limit than those workers can start, even
// with short windows: the other tenant gets the rest.
func TestSlowWorkersHoldNoLimit(t *testing.T) {
	for _, window := range []time.Duration{time.Second, 100 * time.Millisecond} {
		t.Run(fmt.Sprint("windows of ", window), func(t *testing.T) {
			mux := bulk.NewMux()
			for name, latency := range map[string]time.Duration{"slow": 100 * time.Millisecond, "fast": time.Millisecond} {
				mux.HandleFunc(name, func(context.Context, *bulk.Job) ([]byte, error) {
					time.Sleep(latency)
					return nil, nil
				})
			}
			simulate(t, bulk.Config{RequestsPerSecond: 300, Window: window, Workers: 10}, 0, mux, func(w *world) {
				slow := w.submit(bulk.Spec{Tenant: "slow", Type: "slow"}, 5000)
				fast := w.submit(bulk.Spec{Tenant: "fast", Type: "fast"}, 20_000)
				time.Sleep(20 * time.Second)
				for id, least := range map[string]int64{slow: 20 * 85, fast: 20 * 175} {
					a, err := w.engine.Action(context.Background(), id)
					if err != nil {
						t.Fatal(err)
					}
					t.Logf("%s: %d", a.Tenant, a.Succeeded)
					if a.Succeeded < least {
						t.Errorf("%s has %d after 20 s, want at least %d", a.Tenant, a.Succeeded, least)
					}
					if _, err := w.engine.Cancel(context.Background(), id); err != nil {
						t.Fatal(err)
					}
				}
			})
		})
	}
}
