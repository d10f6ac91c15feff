package watch

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/until"
	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
)

// fake is an engine whose visitors are set by the test.
type fake struct {
	mu       sync.Mutex
	results  map[int64]engine.Result
	otherway engine.Result // for those without a result of their own
	asked    map[int64]int
	claimed  map[int64]int
	largest  int
	mixed    bool // a batch had tickets of several rooms
	delay    time.Duration
}

func newFake() *fake {
	return &fake{results: map[int64]engine.Result{}, asked: map[int64]int{}, claimed: map[int64]int{}, otherway: waiting(500)}
}

func waiting(position int64) engine.Result {
	return engine.Result{Answer: engine.Answer{State: room.Waiting, Position: position, NextPoll: time.Second}}
}

func (f *fake) set(number int64, result engine.Result) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.results[number] = result
}

func (f *fake) count(number int64) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked[number]
}

// roomOf returns the room of a test's ticket.
func roomOf(number int64) string { return []string{"shop", "bank"}[number%2] }

func (f *fake) AskAll(ctx context.Context, name string, askers []engine.Asker, claim bool) []engine.Result {
	f.mu.Lock()
	delay := f.delay
	f.mu.Unlock()
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.largest = max(f.largest, len(askers))
	results := make([]engine.Result, len(askers))
	for i, asker := range askers {
		number := asker.Ticket.Number
		f.mixed = f.mixed || roomOf(number) != name
		f.asked[number]++
		if claim {
			f.claimed[number]++
		}
		result, known := f.results[number]
		if !known {
			result = f.otherway
		}
		result.Answer.ID = number
		results[i] = result
	}
	return results
}

// start starts a hub that is stopped when the test ends.
func start(t testing.TB, engine Engine, options ...Option) *Hub {
	h := New(engine, options...)
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), until.Limit)
		defer cancel()
		if err := h.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return h
}
