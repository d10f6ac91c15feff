//go:build redis

package redisstore

import (
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/storetest"
	"github.com/sluice-project/sluice/internal/testkit/redistest"
)

// TestWorkersOfAllInstances: each instance knows how many workers all of them have, and forgets
// those of one that asks for jobs no more.
func TestWorkersOfAllInstances(t *testing.T) {
	server, c := redistest.Start(t, redistest.Options{}), newClock()
	var stores []*Store
	for _, name := range []string{"one", "two"} {
		stores = append(stores, instance(t, server.URL(), name, 2, c, unlimited()))
	}
	start(t, stores[0], bulk.Spec{ID: "a", Tenant: "t", Type: "echo"}, 10)
	know := func(s *Store, want int64) {
		t.Helper()
		b, err := storetest.Backlog(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		if got := b.Types["echo"].Workers; got != want {
			t.Errorf("%d workers are known, want %d", got, want)
		}
	}
	ask := func(s *Store, workers int64) {
		t.Helper()
		if _, err := s.Lease(t.Context(), bulk.LeaseRequest{Types: []string{"echo"}, Workers: workers, Max: 1, LeaseFor: time.Minute}); err != nil {
			t.Fatal(err)
		}
	}
	ask(stores[0], 10)
	ask(stores[1], 7)
	know(stores[0], 17)
	know(stores[1], 17)
	c.advance(knownFor / 2)
	ask(stores[1], 8)
	c.advance(knownFor/2 + time.Second)
	know(stores[0], 8)
}
