package turns

import (
	"container/heap"
	"context"
	"sync"
)

// Queue is an amount that requests take from and give back, and those that wait for it. It is safe for concurrent use.
type Queue struct {
	size int64

	mu      sync.Mutex
	free    int64 // negative if a request needed more than it took
	now     int64 // virtual
	arrived int64 // how many have waited so far
	waiting waiters
}

// Flow is the requests of one client at one Queue. The zero value is one that has sent none.
type Flow struct {
	finish int64 // virtual
}

// NewQueue returns a queue of the given size, in any unit.
func NewQueue(size int64) *Queue { return &Queue{size: size, free: size} }

// Take waits until at least the given least amount is free, and takes up to want, but no more than a quarter of what is
// free beyond the least, so that later requests find some too. It returns the amount, which the caller gives back. It never
// waits for more than the size. Its error is that of the context. Whoever calls it bounds how many wait.
func (q *Queue) Take(ctx context.Context, least, want int64) (int64, error) {
	return q.take(ctx, &Flow{}, 0, &waiter{least: least, want: want})
}

// TakeFor is Take for a request of a flow, at a cost to it. It takes n, or the whole size if that is less.
func (q *Queue) TakeFor(ctx context.Context, of *Flow, cost, n int64) (int64, error) {
	return q.take(ctx, of, cost, &waiter{least: n})
}

func (q *Queue) take(ctx context.Context, of *Flow, cost int64, w *waiter) (int64, error) {
	if q.enter(of, cost, w) {
		return w.got, nil
	}
	select {
	case <-w.ready:
		return w.got, nil
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.place < 0 { // it was served at the same time
		q.free += w.got
	} else {
		heap.Remove(&q.waiting, w.place)
	}
	q.serve()
	return 0, ctx.Err()
}

// enter reports whether a request is served at once. If not, it waits.
func (q *Queue) enter(of *Flow, cost int64, w *waiter) bool {
	w.least = min(w.least, q.size)
	q.mu.Lock()
	defer q.mu.Unlock()
	w.start = max(q.now, of.finish)
	w.finish = w.start + cost
	of.finish = w.finish
	if len(q.waiting) == 0 && q.grant(w) {
		return true
	}
	q.arrived++
	w.arrival, w.ready = q.arrived, make(chan struct{})
	heap.Push(&q.waiting, w)
	q.serve() // it may pass the others
	return w.place < 0
}

// Change gives n back, or takes -n without waiting.
func (q *Queue) Change(n int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.free += n
	q.serve()
}

// Contended reports whether a request waits.
func (q *Queue) Contended() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting) > 0
}

// Used returns the amount that is taken.
func (q *Queue) Used() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.size - q.free
}

// grant gives a request its share if enough is free.
func (q *Queue) grant(w *waiter) bool {
	if q.free < w.least {
		return false
	}
	w.got = max(w.least, min(w.want, q.free/4))
	q.free -= w.got
	q.now = max(q.now, w.start)
	return true
}

// serve grants requests their shares in order, as long as enough is free. One that needs much is not passed by those after
// it that need less: it could wait for ever.
func (q *Queue) serve() {
	for len(q.waiting) > 0 && q.grant(q.waiting[0]) {
		close(heap.Pop(&q.waiting).(*waiter).ready)
	}
}

// waiter is a request that waits.
type waiter struct {
	least, want, got       int64
	start, finish, arrival int64
	place                  int // in the heap; -1: it was served
	ready                  chan struct{}
}

// waiters is a heap: the earliest finish is first, and of several the one that came first.
type waiters []*waiter

func (w waiters) Len() int { return len(w) }

func (w waiters) Less(i, j int) bool {
	if w[i].finish != w[j].finish {
		return w[i].finish < w[j].finish
	}
	return w[i].arrival < w[j].arrival
}

func (w waiters) Swap(i, j int) {
	w[i], w[j] = w[j], w[i]
	w[i].place, w[j].place = i, j
}

// Push implements heap.Interface.
func (w *waiters) Push(x any) {
	added := x.(*waiter)
	added.place = len(*w)
	*w = append(*w, added)
}

// Pop implements heap.Interface.
func (w *waiters) Pop() any {
	last := len(*w) - 1
	x := (*w)[last]
	(*w)[last] = nil
	*w = (*w)[:last]
	x.place = -1
	return x
}
