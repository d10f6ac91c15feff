package kafka

import (
	"container/list"
	"context"
	"sync"
)

// budget is an amount of memory that is shared, first come, first served.
type budget struct {
	size int64

	mu      sync.Mutex
	free    int64 // negative if a taker needed more than it took
	waiting list.List
}

// taker waits for memory.
type taker struct {
	least, want int64
	got         int64
	ready       chan struct{}
}

func newBudget(size int64) *budget { return &budget{size: size, free: size} }

// take waits until at least the given least amount is free, and takes up to want, but no more than
// a quarter of the free memory beyond the least, so that later takers find some too. It returns the
// amount, which the caller gives back. It never waits for more than the budget.
func (b *budget) take(ctx context.Context, least, want int64) (int64, error) {
	t := &taker{least: min(least, b.size), want: want}
	b.mu.Lock()
	if b.waiting.Len() == 0 && b.grant(t) {
		b.mu.Unlock()
		return t.got, nil
	}
	t.ready = make(chan struct{})
	place := b.waiting.PushBack(t)
	b.mu.Unlock()
	select {
	case <-t.ready:
		return t.got, nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-t.ready: // it came at the same time
		b.give(t.got)
	default:
		b.waiting.Remove(place)
		b.serve()
	}
	return 0, ctx.Err()
}

// grant gives a taker its share if enough is free.
func (b *budget) grant(t *taker) bool {
	if b.free < t.least {
		return false
	}
	t.got = max(t.least, min(t.want, b.free/4))
	b.free -= t.got
	return true
}

// serve grants waiting takers their shares in order, as long as enough is free.
func (b *budget) serve() {
	for place := b.waiting.Front(); place != nil; place = b.waiting.Front() {
		t := place.Value.(*taker)
		if !b.grant(t) {
			return
		}
		b.waiting.Remove(place)
		close(t.ready)
	}
}

// change gives n back, or takes -n without waiting.
func (b *budget) change(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.give(n)
}

func (b *budget) give(n int64) {
	b.free += n
	b.serve()
}

// contended reports whether a taker waits.
func (b *budget) contended() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waiting.Len() > 0
}

// used returns the amount that is taken.
func (b *budget) used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.size - b.free
}
