//go:build redis

package redisstore

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/storetest"
	"github.com/sluice-project/sluice/internal/testkit/redistest"
)

// TestOneShardFails checks that a shard that fails does not delay the others: their jobs are
// leased, settled and dispatched.
func TestOneShardFails(t *testing.T) {
	t.Parallel()
	s, c := sharded(t)
	for shard := range 3 {
		start(t, s, bulk.Spec{ID: fmt.Sprint("a", shard), Tenant: tenantOn(s, shard), Type: "echo"}, 20)
	}
	jobs := take(t, s, 15)
	if _, err := admit(t.Context(), s, 5); err != nil {
		t.Fatal(err)
	}
	inFlight := func(id string) int64 { return action(t, s, id).InFlight }
	stuck := int(inFlight("a0"))
	key := s.shards[0] + "shard"
	rename := func(from, to string) {
		if err := s.db.Do(t.Context(), s.db.B().Rename().Key(from).Newkey(to).Build()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	rename(key, key+"?")
	if err := s.db.Do(t.Context(), s.db.B().Set().Key(key).Value("no JSON").Build()).Error(); err != nil {
		t.Fatal(err)
	}
	list := settlements(bulk.FailedForNow, jobs)
	if _, err := s.Settle(t.Context(), list); err == nil {
		t.Error("all was settled while a shard fails")
	}
	if a, b := inFlight("a1"), inFlight("a2"); a != 0 || b != 0 {
		t.Errorf("%d and %d are in flight where the shards work", a, b)
	}
	more, err := s.Lease(t.Context(), request(100))
	if err != nil || len(more) < 10 || slices.ContainsFunc(more, func(j bulk.Job) bool { return j.Spec.ID == "a0" }) {
		t.Errorf("%d jobs leased, %v", len(more), err)
	}
	c.advance(5 * time.Minute)
	moved, _, err := s.Dispatch(t.Context(), 1000)
	if want := len(more) + len(jobs) - stuck; err == nil || moved != want {
		t.Errorf("%d were dispatched, %v; want %d, and an error", moved, err, want)
	}
	rename(key+"?", key)
	verdicts, err := s.Settle(t.Context(), list)
	if err != nil || len(verdicts) != 15 || slices.Contains(verdicts, bulk.Accepted) {
		t.Errorf("late: %v, %v", verdicts, err)
	}
	if moved, _, err := s.Dispatch(t.Context(), 1000); err != nil || moved != stuck {
		t.Errorf("%d were dispatched, %v; want those of the shard that failed", moved, err)
	}
}

// TestAnInstanceWithOldSettings checks that an instance that does not know of a changed
// setting turns no job back, and starts none beyond the setting.
func TestAnInstanceWithOldSettings(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 3} {
		t.Run(fmt.Sprint(shards), func(t *testing.T) {
			t.Parallel()
			c, url := newClock(), redistest.Start(t, redistest.Options{}).URL()
			s, other := open(t, Options{URL: url, Shards: shards}), open(t, Options{URL: url})
			s.now, other.now = c.now, c.now
			tenant := tenantOn(s, 0)
			start(t, s, bulk.Spec{ID: "a", Tenant: tenant, Type: "echo"}, 50)
			if n, err := admit(t.Context(), s, 50); n != 50 || err != nil {
				t.Fatalf("%d were admitted, %v", n, err)
			}
			if err := other.Set(t.Context(), bulk.SettingsChange{Name: tenant, Tenant: &bulk.Tenant{RequestsPerSecond: 20}}); err != nil {
				t.Fatal(err)
			}
			if jobs, err := s.Lease(t.Context(), request(50)); err != nil || len(jobs) > 20 {
				t.Errorf("%d jobs leased, %v; want at most 20", len(jobs), err)
			}
			if a := action(t, s, "a"); a.NonReadyTotal() != 0 {
				t.Errorf("%d were turned back: %+v", a.NonReadyTotal(), a.Counts)
			}
			if _, err := storetest.Backlog(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Lease(t.Context(), request(50)); err != nil {
				t.Fatal(err)
			}
			if a := action(t, s, "a"); a.InFlight != 20 {
				t.Errorf("%d in flight, want 20", a.InFlight)
			}
		})
	}
}

// TestManySettings checks that a shard has exactly the limits and weights that were sent to
// it.
func TestManySettings(t *testing.T) {
	t.Parallel()
	s, _ := sharded(t)
	values, revision := s.settings.get()
	tenants := map[string]bulk.Tenant{}
	for i := range 3000 {
		tenants[fmt.Sprint("t", i)] = bulk.Tenant{Weight: 2, RequestsPerSecond: float64(i % 2)}
	}
	values.tenants = values.tenants.with(tenants)
	revision++
	if err := s.push(t.Context(), &values, revision, pending{}); err != nil {
		t.Fatal(err)
	}
	limits, weights := int64(0), int64(0)
	for _, base := range s.shards {
		n, err1 := s.db.Do(t.Context(), s.db.B().Hlen().Key(base+"limits").Build()).AsInt64()
		w, err2 := s.db.Do(t.Context(), s.db.B().Hlen().Key(base+"weights").Build()).AsInt64()
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		limits, weights = limits+n-1, weights+w // without the revision
	}
	if limits != 1500 || weights != 3000 {
		t.Errorf("the shards know %d limits and %d weights, want 1500 and 3000", limits, weights)
	}
}
