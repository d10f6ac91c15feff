package redisstore

import (
	"context"
	"sync"

	"github.com/sluice-project/sluice/room"
)

// maxGathered is how many calls one script serves. It bounds for how long the script holds the server:
// about a millisecond.
const maxGathered = 64

// gather makes one call of many: those with the same key that come while one is in progress go into
// the next, in their order. So nobody waits for company, and under load each call of the server
// serves many. An error of a call is also that of all who wait with its key by then: while the server
// does not answer, nobody waits for more than one timeout.
type gather[K comparable, In, Out any] struct {
	// run returns as many results as it gets calls.
	run func(ctx context.Context, key K, calls []In) ([]Out, error)

	mu sync.Mutex
	// queues has the keys that a goroutine serves, with what waits.
	queues  map[K][]*gathered[In, Out]
	closed  bool
	serving sync.WaitGroup
}

// gathered are calls that are made as one. Results and err are set when done is closed.
type gathered[In, Out any] struct {
	calls   []In
	results []Out
	err     error
	done    chan struct{}
}

func newGather[K comparable, In, Out any](run func(context.Context, K, []In) ([]Out, error)) *gather[K, In, Out] {
	return &gather[K, In, Out]{run: run, queues: map[K][]*gathered[In, Out]{}}
}

// do makes a call. A caller whose ctx ends leaves, and the call is made all the same.
func (g *gather[K, In, Out]) do(ctx context.Context, key K, call In) (out Out, err error) {
	with, at, err := g.join(key, call)
	if err != nil {
		return out, err
	}
	select {
	case <-ctx.Done():
		return out, ctx.Err()
	case <-with.done:
	}
	if with.err != nil {
		return out, with.err
	}
	return with.results[at], nil
}

// join puts a call into the last of the calls that wait, and returns its index there.
func (g *gather[K, In, Out]) join(key K, call In) (with *gathered[In, Out], at int, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, 0, room.ErrClosed
	}
	queue, served := g.queues[key]
	if n := len(queue); n == 0 || len(queue[n-1].calls) == maxGathered {
		queue = append(queue, &gathered[In, Out]{done: make(chan struct{})})
		g.queues[key] = queue
	}
	with = queue[len(queue)-1]
	with.calls = append(with.calls, call)
	if !served {
		g.serving.Go(func() { g.serve(key) })
	}
	return with, len(with.calls) - 1, nil
}

// serve makes calls until none waits. No caller's ctx ends them.
func (g *gather[K, In, Out]) serve(key K) {
	for next := g.next(key); next != nil; next = g.next(key) {
		next.results, next.err = g.run(context.Background(), key, next.calls)
		close(next.done)
		if next.err != nil {
			g.fail(key, next.err)
		}
	}
}

// next takes the first that wait; nil: there are none, and the key is served no longer.
func (g *gather[K, In, Out]) next(key K) *gathered[In, Out] {
	g.mu.Lock()
	defer g.mu.Unlock()
	queue := g.queues[key]
	if len(queue) == 0 {
		delete(g.queues, key)
		return nil
	}
	g.queues[key] = queue[1:]
	return queue[0]
}

// fail gives an error to all who wait.
func (g *gather[K, In, Out]) fail(key K, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, with := range g.queues[key] {
		with.err = err
		close(with.done)
	}
	g.queues[key] = nil
}

// close lets nobody join, and waits for the calls in progress.
func (g *gather[K, In, Out]) close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.serving.Wait()
}
