//go:build redis

package redisstore

import (
	"context"
	"fmt"
	"testing"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/engine"
	"github.com/sluice-project/sluice/internal/testkit/redistest"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

// TestAJobIsSoughtInSteps: a script looks through a bounded number of pages and runs, and a search
// for the first job that has not ended continues in the next.
func TestAJobIsSoughtInSteps(t *testing.T) {
	t.Parallel()
	s := open(t, Options{URL: redistest.Start(t, redistest.Options{}).URL(), Shards: 1})
	start(t, s, bulk.Spec{ID: "a", Tenant: "t", Type: "echo"}, 5000)
	ctx := context.Background()
	jobs := take(t, s, 4100)
	settled(t, s, jobs[:4097])
	for _, most := range []int{1, 2, 3, bulk.MaxReturned} {
		if j, err := s.job(ctx, "a", bulk.FirstJob, most); err != nil || j.Index != 4097 || j.State != bulk.StateInFlight {
			t.Errorf("with %d pages at a time: %+v, %v; want job 4097", most, j, err)
		}
	}
	// 4099 and 4097 return in this order: two runs.
	if _, err := s.Settle(ctx, settlements(bulk.Released, []bulk.Job{jobs[4099], jobs[4097]})); err != nil {
		t.Fatal(err)
	}
	for most, want := range map[int]int64{1: bulk.NotKnown, 2: 1} {
		if j, err := s.job(ctx, "a", 4097, most); err != nil || j.Before != want || j.State != bulk.StatePending {
			t.Errorf("with %d runs: %+v, %v; want %d before it", most, j, err, want)
		}
	}
}

// TestWhyOverShards explains jobs of tenants on several shards, by a limit that all share, and
// changes the actions that match, on whichever shard they are.
func TestWhyOverShards(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := open(t, Options{URL: redistest.Start(t, redistest.Options{}).URL(), Shards: 3})
	limit := bulk.SettingsChange{Name: "slow", Target: &bulk.TargetLimits{RequestsPerSecond: bulk.MinRate}}
	if err := s.Set(ctx, limit); err != nil {
		t.Fatal(err)
	}
	mux := bulk.NewMux()
	mux.HandleFunc(bulk.WebhookType, func(context.Context, *bulk.Job) ([]byte, error) { return nil, nil })
	e := run(t, s, unlimited(), mux)
	const tenants = 6
	for i := range tenants {
		target := &bulk.Target{Name: "slow", URL: "http://slow/"}
		upload(t, s, bulk.Spec{ID: fmt.Sprint("a", i), Tenant: fmt.Sprint("t", i), Type: bulk.WebhookType, Target: target}, 3)
		if _, err := e.Seal(ctx, fmt.Sprint("a", i), 3); err != nil {
			t.Fatal(err)
		}
	}
	for i := range tenants {
		until.Succeeds(t, "the explanation", func() error {
			x, err := e.Why(ctx, fmt.Sprint("a", i), 2)
			if err == nil && (x.Reason != engine.WhyTargetLimit || x.Place < 1 || x.Place > 2 || x.EarliestStart.IsZero()) {
				err = fmt.Errorf("%q (%s), place %d, from %v on", x.Reason, x.Text, x.Place, x.EarliestStart)
			}
			return err
		})
	}
	got, err := e.Change(ctx, engine.Change{Do: engine.DoPause, Target: "slow", Limit: tenants})
	if err != nil || got.Changed != tenants {
		t.Errorf("%+v, %v; want %d paused", got, err, tenants)
	}
	for i := range tenants {
		if x, err := e.Why(ctx, fmt.Sprint("a", i), 2); err != nil || x.Reason != engine.WhyPaused {
			t.Errorf("%q, %v; want %s", x.Reason, err, engine.WhyPaused)
		}
	}
}
