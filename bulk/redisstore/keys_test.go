//go:build redis

package redisstore

import (
	"fmt"
	"testing"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/storetest"
	"github.com/sluice-project/sluice/internal/testkit/redistest"
)

// TestKeysTakeTurnsOverInstances: two instances admit the jobs of a tenant in turn, one job at a time.
// Each charges keys what the other has admitted. A third, which starts later, divides evenly, too.
func TestKeysTakeTurnsOverInstances(t *testing.T) {
	server, c := redistest.Start(t, redistest.Options{}), newClock()
	var stores []*Store
	for _, name := range []string{"one", "two"} {
		stores = append(stores, instance(t, server.URL(), name, 2, c, unlimited()))
	}
	for i := range 20 {
		start(t, stores[0], bulk.Spec{ID: fmt.Sprint("many", i), Tenant: "t", Type: "echo", Key: "many"}, 3)
	}
	admitOne := func(s *Store) (key string) {
		t.Helper()
		var grants []bulk.Grant
		if err := s.Fetch(t.Context(), func(b *bulk.Backlog) {
			grants, _ = bulk.Divide(b, bulk.Free{Total: 1, Types: map[string]int64{"echo": 1}})
		}); err != nil {
			t.Fatal(err)
		}
		if n, err := s.Admit(t.Context(), grants); err != nil || n != 1 {
			t.Fatalf("%d admitted, %v; want 1", n, err)
		}
		jobs, err := s.Lease(t.Context(), request(1))
		if err != nil || len(jobs) != 1 {
			t.Fatalf("%d leased, %v; want 1", len(jobs), err)
		}
		return jobs[0].Spec.Key
	}
	for range 5 {
		admitOne(stores[0])
	}
	if _, err := storetest.Backlog(t.Context(), stores[1]); err != nil { // what it sees first may cost a key a turn
		t.Fatal(err)
	}
	start(t, stores[1], bulk.Spec{ID: "few", Tenant: "t", Type: "echo", Key: "few"}, 30)
	order := []int{0, 1, 1, 0, 0, 0, 1, 1, 1, 1, 0, 1, 0, 1, 0, 0}
	had := map[string]int{}
	for i, at := range order {
		had[admitOne(stores[at])]++
		if d := had["many"] - had["few"]; d > 1 || d < -1 {
			t.Fatalf("after %d jobs: %v, want turns", i+1, had)
		}
	}
	third := instance(t, server.URL(), "three", 2, c, unlimited())
	clear(had)
	for range 10 {
		had[admitOne(third)]++
	}
	if d := had["many"] - had["few"]; d > 2 || d < -2 {
		t.Errorf("an instance that started later has admitted %v, want about 5 and 5", had)
	}
}
