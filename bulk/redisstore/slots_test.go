//go:build redis

package redisstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/internal/testkit/redistest"
)

// tenantOn returns a tenant of a shard.
func tenantOn(s *Store, shard int) string {
	for i := 0; ; i++ {
		if name := fmt.Sprint("tenant", i); s.shardOf(name) == shard {
			return name
		}
	}
}

func against(id, tenant string) bulk.Spec {
	return bulk.Spec{ID: id, Tenant: tenant, Type: bulk.WebhookType, Target: &bulk.Target{Name: "t", URL: "http://t/"}}
}

func concurrency(t *testing.T, s *Store, n int) {
	t.Helper()
	if err := s.Set(t.Context(), bulk.SettingsChange{Name: "t", Target: &bulk.TargetLimits{Concurrency: n}}); err != nil {
		t.Fatal(err)
	}
}

func sharded(t *testing.T) (*Store, *clock) {
	t.Helper()
	c := newClock()
	s := open(t, Options{URL: redistest.Start(t, redistest.Options{}).URL(), Shards: 3})
	s.now = c.now
	return s, c
}

// TestSlotsOfAShardThatHasEnded checks that shards with jobs get the slots of a shard that
// has no more jobs of a target.
func TestSlotsOfAShardThatHasEnded(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]time.Duration{"at once": 0, "later": 5 * time.Second, "much later": time.Hour} {
		t.Run(name, func(t *testing.T) {
			s, c := sharded(t)
			concurrency(t, s, 4)
			for shard := range 6 {
				id := fmt.Sprint("a", shard)
				start(t, s, against(id, tenantOn(s, shard%3)), 4)
				jobs := take(t, s, 4)
				if n, err := admit(t.Context(), s, 4); n != 0 || err != nil {
					t.Errorf("%d more were admitted, %v", n, err)
				}
				if _, err := s.Settle(t.Context(), settlements(bulk.Succeeded, jobs)); err != nil {
					t.Fatal(err)
				}
				forget(t, s, id)
				c.advance(wait)
				if wait == time.Hour { // the server's clock is not the test's
					n, err := s.db.Do(t.Context(), s.db.B().Del().Key(s.shards[shard%3]+"g:t").Build()).AsInt64()
					if err != nil || n != 1 {
						t.Fatalf("%d keys, %v", n, err)
					}
				}
			}
		})
	}
}

// TestSlotsOfJobsThatWereInFlightBefore checks that jobs in flight when a target gets its
// first limit hold slots until they land, and no longer.
func TestSlotsOfJobsThatWereInFlightBefore(t *testing.T) {
	t.Parallel()
	s, c := sharded(t)
	var jobs []bulk.Job
	for shard := range 3 {
		start(t, s, against(fmt.Sprint("a", shard), tenantOn(s, shard)), 50)
		jobs = append(jobs, take(t, s, 5)...)
	}
	concurrency(t, s, 6)
	if n, err := admit(t.Context(), s, 10); n != 0 || err != nil {
		t.Fatalf("%d were admitted beside 15 in flight, %v; want none", n, err)
	}
	flight := len(jobs)
	for round := range 60 {
		if _, err := s.Settle(t.Context(), settlements(bulk.Succeeded, jobs[:1])); err != nil {
			t.Fatal(err)
		}
		jobs = jobs[1:]
		c.advance(100 * time.Millisecond)
		if _, _, err := s.Dispatch(t.Context(), 100); err != nil {
			t.Fatal(err)
		}
		if _, err := admit(t.Context(), s, 10); err != nil {
			t.Fatal(err)
		}
		more, err := s.Lease(t.Context(), request(10))
		if err != nil {
			t.Fatal(err)
		}
		jobs = append(jobs, more...)
		if flight = max(flight-1, 6); len(jobs) > flight {
			t.Fatalf("%d in flight in round %d, want at most %d", len(jobs), round, flight)
		}
		if round > 20 && len(jobs) < 5 {
			t.Fatalf("%d in flight in round %d while jobs wait, of 6 that may be", len(jobs), round)
		}
	}
}

// TestSlotsOfATypeThatIsIdle checks that an idle type holds no slots of a target.
func TestSlotsOfATypeThatIsIdle(t *testing.T) {
	t.Parallel()
	s, c := sharded(t)
	concurrency(t, s, 4)
	start(t, s, against("idle", tenantOn(s, 0)), 9)
	if n, err := admit(t.Context(), s, 9); n != 4 || err != nil {
		t.Fatalf("%d were admitted, %v", n, err)
	}
	c.advance(5 * time.Second)
	start(t, s, against("busy", tenantOn(s, 1)), 4)
	n, err := admit(t.Context(), s, 9)
	if n != 4 || err != nil {
		t.Errorf("%d were admitted on the other shard, %v; want all", n, err)
	}
	jobs, err := s.Lease(t.Context(), request(9))
	if err != nil || len(jobs) != 4 {
		t.Errorf("%d were leased, %v; want 4", len(jobs), err)
	}
}

// TestLimitBelowWhatIsInFlight checks that a target whose limit falls below what one shard has in
// flight goes on when those jobs have landed, though no other shard asks for their slots.
func TestLimitBelowWhatIsInFlight(t *testing.T) {
	t.Parallel()
	s, c := sharded(t)
	concurrency(t, s, 8)
	start(t, s, against("a", tenantOn(s, 0)), 20)
	jobs := take(t, s, 8)
	concurrency(t, s, 1)
	if _, err := s.Settle(t.Context(), settlements(bulk.Succeeded, jobs)); err != nil {
		t.Fatal(err)
	}
	c.advance(time.Second)
	if n, err := admit(t.Context(), s, 20); n != 1 || err != nil {
		t.Errorf("%d were admitted, %v; want 1", n, err)
	}
}
