package txn_test

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/topic/storetest"
	"github.com/sluice-project/sluice/topic/txn"
)

// lateWorld has a sweep that acts late on what it has read, and counts the markers of each decision.
type lateWorld struct {
	*world
	act, first, again chan struct{}

	mu        sync.Mutex
	decisions []uint64 // in the order of their first markers
	markers   map[uint64]int
}

func (w *lateWorld) Coordinates(string) bool { <-w.act; return true }

// Mark keeps the first two markers of the first decision waiting.
func (w *lateWorld) Mark(_ context.Context, _ string, _ int32, m txn.Marker) error {
	w.mu.Lock()
	if w.markers[m.Revision]++; w.markers[m.Revision] == 1 {
		w.decisions = append(w.decisions, m.Revision)
	}
	first, count := m.Revision == w.decisions[0], w.markers[m.Revision]
	w.mu.Unlock()
	switch {
	case first && count == 1:
		<-w.first
	case first:
		<-w.again
	}
	return nil
}

// The sweep has read that a transaction is decided, and ends it once more when it has ended: the id's next transaction is answered
// when its own markers are written.
func TestTheNextTransactionDoesNotShareTheEndOfTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &lateWorld{
			world: &world{chance: chance{Rand: rand.New(rand.NewPCG(1, 1))}, Meta: storetest.NewMemory().Meta()},
			act:   make(chan struct{}), first: make(chan struct{}), again: make(chan struct{}), markers: map[uint64]int{},
		}
		c := txn.New(w, w, slog.New(slog.DiscardHandler))
		c.Start()
		synctest.Wait() // the first look finds nothing
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Error(err)
			}
		}
		p, err := c.Init(t.Context(), "id", time.Minute, nil)
		must(err)
		must(c.AddPartitions(t.Context(), "id", p, map[string][]int32{"orders": {0}}))
		var ending sync.WaitGroup
		time.Sleep(500 * time.Millisecond)
		ending.Go(func() { must(c.End(t.Context(), "id", p, true)) })
		time.Sleep(600 * time.Millisecond) // the sweep reads the record
		close(w.first)
		ending.Wait()
		close(w.act)
		synctest.Wait() // the sweep ends the transaction once more, and that waits
		must(c.AddPartitions(t.Context(), "id", p, map[string][]int32{"orders": {0}}))
		must(c.End(t.Context(), "id", p, true))
		if w.markers[w.decisions[0]] != 2 || len(w.decisions) != 2 {
			t.Errorf("markers %v of decisions %d; want two of the first, and those of the next", w.markers, w.decisions)
		}
		close(w.again)
		must(c.Stop(t.Context()))
	})
}
