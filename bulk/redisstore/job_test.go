//go:build redis

package redisstore

import (
	"context"
	"testing"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/internal/testkit/redistest"
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
