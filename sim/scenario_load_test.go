package sim

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/bulktest"
)

// The load test of the seed: 15,000 jobs of three tenants at ten requests per second each. Ideal is
// 500 seconds; the seed took 720, with 1.45 throttles per job.
const (
	loadTenants = 3
	loadJobs    = 5000
	loadRate    = 10
	loadIdeal   = loadJobs / loadRate * time.Second
	loadMost    = loadIdeal + loadIdeal/100
)

// targetPhase is the offset of the target's windows from the engine's.
const targetPhase = 450 * time.Millisecond

var phases = []time.Duration{0, 300 * time.Millisecond, 700 * time.Millisecond}

// runLoad submits the load and returns how long it took and how many throttles there were. Every
// job must succeed.
func runLoad(w *world) (took time.Duration, throttled int64) {
	began := time.Now()
	var ids []string
	for tenant := range loadTenants {
		ids = append(ids, w.submit(bulk.Spec{Tenant: fmt.Sprint("tenant-", tenant), Type: "call"}, loadJobs))
	}
	for _, id := range ids {
		a := w.finish(id)
		if a.Status != bulk.Completed || a.Succeeded != loadJobs {
			w.t.Errorf("action %s is %s with %+v, want %d jobs succeeded", id, a.Status, a.Counts, loadJobs)
		}
		throttled += a.Throttled
	}
	return time.Since(began), throttled
}

// With our own limits no job is ever throttled: each window's full budget is admitted, and no
// window is left unused.
func TestLoadAtOwnLimits(t *testing.T) {
	for _, phase := range phases {
		t.Run(fmt.Sprint("from ", phase), func(t *testing.T) {
			target := bulktest.NewTarget(bulktest.TargetOptions{Rate: loadRate, Key: bulktest.ByTenant})
			mux := bulk.NewMux()
			mux.Handle("call", target)
			simulate(t, bulk.Config{}, phase, mux, func(w *world) {
				for tenant := range loadTenants {
					w.set(bulk.SettingsChange{Name: fmt.Sprint("tenant-", tenant), Tenant: &bulk.Tenant{RequestsPerSecond: loadRate}})
				}
				took, throttled := runLoad(w)
				t.Logf("%s, ideal %s; %d throttles", took, loadIdeal, throttled)
				if took > loadMost || throttled != 0 {
					t.Errorf("took %s with %d throttles, want at most %s and none", took, throttled, loadMost)
				}
				if attempts := target.Total().Attempts; attempts != loadTenants*loadJobs {
					t.Errorf("%d attempts for %d jobs", attempts, loadTenants*loadJobs)
				}
			})
		})
	}
}

// If only the target knows its limit, and answers 429 above it, congestion control finds the rate:
// few jobs are throttled, and no time is lost.
func TestLoadAtThrottlingTarget(t *testing.T) {
	for i, phase := range phases {
		for j, latency := range []time.Duration{0, 5 * time.Millisecond, 50 * time.Millisecond} {
			for k, workers := range []int{10, 100} {
				if os.Getenv("SLUICE_LONG") == "" && (i+j+k)%2 != 0 {
					continue // every second one, as on a chessboard: each pair of values occurs
				}
				t.Run(fmt.Sprintf("from %s, %s, %d workers", phase, latency, workers), func(t *testing.T) {
					mux := bulk.NewMux()
					mux.Handle("call", bulktest.NewTarget(bulktest.TargetOptions{Rate: loadRate, Key: bulktest.ByTenant, Latency: latency, Phase: targetPhase}))
					simulate(t, bulk.Config{Workers: workers}, phase, mux, func(w *world) {
						took, throttled := runLoad(w)
						perJob := float64(throttled) / (loadTenants * loadJobs)
						t.Logf("%s, ideal %s; %.3f throttles per job", took, loadIdeal, perJob)
						if took > loadMost || perJob > 0.3 {
							t.Errorf("took %s with %.3f throttles per job, want at most %s and 0.3", took, perJob, loadMost)
						}
					})
				})
			}
		}
	}
}

// A target that recovers soon gets its full rate: ten seconds after throttling it accepts a hundred
// times as much.
func TestTargetRecovers(t *testing.T) {
	target := bulktest.NewTarget(bulktest.TargetOptions{Rate: 10, Latency: 5 * time.Millisecond})
	mux := bulk.NewMux()
	mux.Handle("call", target)
	simulate(t, bulk.Config{Workers: 50}, 0, mux, func(w *world) {
		id := w.submit(bulk.Spec{Tenant: "tenant", Type: "call"}, 20_000)
		time.Sleep(10 * time.Second)
		target.SetRate(1000) // a hundred times the rate
		w.finish(id)
		took := time.Since(w.began)
		t.Logf("%s", took)
		if took > 60*time.Second {
			t.Errorf("took %s, want less than a minute: 20 s at the new rate, and the time to find it", took)
		}
	})
}
