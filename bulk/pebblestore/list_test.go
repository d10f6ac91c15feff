package pebblestore

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

// TestListBesideChanges lists while actions finish and are forgotten: each action that stays is
// listed once and in order, and none that had finished before is listed as unfinished.
func TestListBesideChanges(t *testing.T) {
	const actions = 3 * holdMost
	s := openBench(t, bulk.Config{RequestsPerSecond: -1})
	ctx := context.Background()
	ids, index := make([]string, actions), map[string]int{}
	for i := range ids {
		ids[i] = fmt.Sprint("a", i)
		index[ids[i]] = i
		if _, _, err := s.Create(ctx, bulk.Spec{ID: ids[i], Tenant: "t", Type: "echo"}); err != nil {
			t.Fatal(err)
		}
	}
	// Every third action is forgotten, every third stays finished, the others stay created.
	var finished atomic.Int64 // actions of which all before are changed
	var changing sync.WaitGroup
	changing.Go(func() {
		for i, id := range ids {
			kinds := []bulk.TransitionKind{bulk.Cancel, bulk.Forget}[:[]int{2, 1, 0}[i%3]]
			for _, kind := range kinds {
				if _, err := s.Transition(ctx, id, bulk.Transition{Kind: kind}); err != nil {
					t.Error(id, kind, err)
				}
			}
			finished.Store(int64(i + 1))
		}
	})
	defer changing.Wait()
	for changed := int64(0); changed < actions; {
		changed = finished.Load()
		listed, err := s.Actions(ctx, bulk.ActionFilter{})
		if err != nil {
			t.Fatal(err)
		}
		last, seen := -1, map[string]bool{}
		for _, a := range listed {
			at, known := index[a.ID]
			if !known || at <= last {
				t.Fatalf("%s is listed after %s", a.ID, ids[last])
			}
			last, seen[a.ID] = at, true
			if int64(at) < changed && (at%3 == 0 || at%3 == 1 && a.FinishedAt.IsZero()) {
				t.Fatalf("%s is listed as %s, finished at %v", a.ID, a.Status, a.FinishedAt)
			}
		}
		for i, id := range ids {
			if i%3 != 0 && !seen[id] {
				t.Fatalf("%s is not listed", id)
			}
		}
	}
}

// BenchmarkInsertBesideList measures how long one insert takes while 100,000 finished actions
// are listed, over and over. The metric list/insert is how many inserts a listing takes.
func BenchmarkInsertBesideList(b *testing.B) {
	const actions = 100_000
	s := openBench(b, bulk.Config{RequestsPerSecond: -1})
	ctx := context.Background()
	eachOf(b, actions, func(i int) error {
		id := fmt.Sprint("old", i)
		_, _, err := s.Create(ctx, bulk.Spec{ID: id, Tenant: "t", Type: "echo"})
		if err == nil {
			_, err = s.Transition(ctx, id, bulk.Transition{Kind: bulk.Cancel})
		}
		return err
	})
	stop, lists := make(chan struct{}), 0
	var listing sync.WaitGroup
	var spent time.Duration
	listing.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			began := time.Now()
			if _, err := s.Actions(ctx, bulk.ActionFilter{Tenant: "nobody"}); err != nil {
				b.Error(err)
			}
			spent += time.Since(began)
			lists++
		}
	})
	var slowest time.Duration
	b.ResetTimer()
	for i := range b.N {
		began := time.Now()
		if _, _, err := s.Create(ctx, bulk.Spec{ID: fmt.Sprint("new", b.N, ".", i), Tenant: "t", Type: "echo"}); err != nil {
			b.Fatal(err)
		}
		slowest = max(slowest, time.Since(began))
	}
	b.StopTimer()
	close(stop)
	listing.Wait()
	b.ReportMetric(float64(spent)/float64(lists)/float64(slowest), "list/slowest-insert")
}

// BenchmarkListOfTenant lists the few actions of one tenant among 10,000 finished ones.
func BenchmarkListOfTenant(b *testing.B) {
	const actions, tenants, of = 10_000, 1000, 10
	s := openBench(b, bulk.Config{RequestsPerSecond: -1})
	ctx := context.Background()
	eachOf(b, actions, func(i int) error {
		id := fmt.Sprint("old", i)
		_, _, err := s.Create(ctx, bulk.Spec{ID: id, Tenant: fmt.Sprint("tenant-", i%tenants), Type: "webhook", Target: &bulk.Target{Name: "mail", URL: "https://mail.example/send"}})
		if err == nil {
			_, err = s.Transition(ctx, id, bulk.Transition{Kind: bulk.Cancel})
		}
		return err
	})
	for b.Loop() {
		found, err := s.Actions(ctx, bulk.ActionFilter{Tenant: "tenant-7"})
		if err != nil || len(found) != of {
			b.Fatal(len(found), err)
		}
	}
}
