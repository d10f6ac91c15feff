package engine_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/bulktest"
)

// TestTargetThatDies: a target fails for a minute. Few attempts are made while it does, no job
// pays for them with its attempts, and 5 s after it has recovered it has its full rate.
func TestTargetThatDies(t *testing.T) {
	for name, failure := range map[string]time.Duration{"refuses": time.Millisecond, "hangs": 30 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const jobs, outage, recovery = 30_000, time.Minute, 5 * time.Second
			var dies, passed, wasted, rateBefore, rateAfter atomic.Int64
			mux := bulk.NewMux()
			mux.HandleFunc(bulk.WebhookType, func(ctx context.Context, _ *bulk.Job) ([]byte, error) {
				if at := dies.Load(); at != 0 && time.Since(time.Unix(0, at)) > 0 && time.Since(time.Unix(0, at)) < outage {
					wasted.Add(1)
					select {
					case <-time.After(failure):
					case <-ctx.Done():
					}
					return nil, bulk.ErrUnreachable
				}
				pass(10 * time.Millisecond)
				passed.Add(1)
				return nil, nil
			})
			config := bulk.Config{RequestsPerSecond: -1, JobTimeout: time.Minute}
			inVirtualTime(t, config, mux, func(t *testing.T, r *rig) {
				if err := r.Set(context.Background(), bulk.SettingsChange{Name: "api", Target: &bulk.TargetLimits{RequestsPerSecond: 500}}); err != nil {
					t.Fatal(err)
				}
				id := r.submit(bulk.Spec{Target: &bulk.Target{Name: "api", URL: "http://api.example/"}, MaxAttempts: 2}, jobs)
				pass(10 * time.Second)
				before := passed.Load()
				pass(5 * time.Second)
				rateBefore.Store(passed.Load() - before)
				dies.Store(time.Now().UnixNano())
				pass(outage * 3 / 4)
				requireDown(t, r)
				if a := r.action(id); r.HeldBack(&a) == 0 {
					t.Error("no jobs are held back")
				}
				pass(outage/4 + recovery)
				before = passed.Load()
				pass(5 * time.Second)
				rateAfter.Store(passed.Load() - before)
				a := r.finish(id)
				bulktest.RequireCounts(t, a, bulk.Completed, jobs, 0)
				t.Logf("%d attempts wasted of %d jobs; %d and %d jobs in 5 s", wasted.Load(), jobs, rateBefore.Load(), rateAfter.Load())
				if wasted.Load() > jobs/100 {
					t.Errorf("%d attempts were wasted of %d jobs, want at most one in a hundred", wasted.Load(), jobs)
				}
				if rateAfter.Load() < rateBefore.Load()*95/100 {
					t.Errorf("%d jobs in the 5 s after the recovery, %d before", rateAfter.Load(), rateBefore.Load())
				}
			})
		})
	}
}

// requireDown checks that the target is taken for down, and that a metric shows it.
func requireDown(t *testing.T, r *rig) {
	t.Helper()
	if since := r.FoundLoad("api").DownSince; since.IsZero() {
		t.Error("the target is not taken for down")
	}
	const down = `
# HELP bulk_action_target_down 1 while this instance takes a target of webhooks for down, and holds its jobs back.
# TYPE bulk_action_target_down gauge
bulk_action_target_down{target="api"} 1
`
	if err := testutil.CollectAndCompare(r.Collector(), strings.NewReader(down), "bulk_action_target_down"); err != nil {
		t.Error(err)
	}
}

// TestWrongTargetIsNotDown: where a target has never answered, or answers with errors, jobs use
// up their attempts and fail.
func TestWrongTargetIsNotDown(t *testing.T) {
	for name, failure := range map[string]error{"never answered": bulk.ErrUnreachable, "answers errors": errBroken} {
		t.Run(name, func(t *testing.T) {
			mux := bulk.NewMux()
			mux.HandleFunc(bulk.WebhookType, func(context.Context, *bulk.Job) ([]byte, error) { return nil, failure })
			inVirtualTime(t, bulk.Config{}, mux, func(t *testing.T, r *rig) {
				a := r.finish(r.submit(bulk.Spec{Target: &bulk.Target{Name: "api", URL: "http://api.example/"}, MaxAttempts: 2}, 100))
				bulktest.RequireCounts(t, a, bulk.Completed, 0, 100)
			})
		})
	}
}
