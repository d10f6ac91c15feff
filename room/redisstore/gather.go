package redisstore

import (
	"context"
	"sync"

	"github.com/sluice-project/sluice/room"
)

// maxGathered is how many calls one script serves. It bounds for how long the script holds the server:
// about a millisecond.
const maxGathered = 64

// gather makes one call of many: those of a room that come while one is in progress go into
// the next, in their order, as long as their terms are the same. So nobody waits for company, and under load each call
// of the server serves many. An error of a call is also that of all who wait for their room by then: while the server
// does not answer, nobody waits for more than one timeout.
type gather[Terms comparable, In, Out any] struct {
	// run returns as many results as it gets calls.
	run func(ctx context.Context, terms Terms, calls []In) ([]Out, error)

	mu sync.Mutex
	// queues has the rooms that a goroutine serves, with what waits.
	queues  map[string][]*gathered[Terms, In, Out]
	closed  bool
	serving sync.WaitGroup
}

// gathered are calls that are made as one. Results and err are set when done is closed.
type gathered[Terms, In, Out any] struct {
	terms   Terms
	calls   []In
	results []Out
	err     error
	done    chan struct{}
}

func newGather[Terms comparable, In, Out any](run func(context.Context, Terms, []In) ([]Out, error)) *gather[Terms, In, Out] {
	return &gather[Terms, In, Out]{run: run, queues: map[string][]*gathered[Terms, In, Out]{}}
}

// do makes a call. A caller whose ctx ends leaves, and the call is made all the same.
func (g *gather[Terms, In, Out]) do(ctx context.Context, name string, terms Terms, call In) (out Out, err error) {
	with, at, err := g.join(name, &terms, call)
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
func (g *gather[Terms, In, Out]) join(name string, terms *Terms, call In) (with *gathered[Terms, In, Out], at int, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, 0, room.ErrClosed
	}
	queue, served := g.queues[name]
	if n := len(queue); n == 0 || len(queue[n-1].calls) == maxGathered || queue[n-1].terms != *terms {
		queue = append(queue, &gathered[Terms, In, Out]{terms: *terms, done: make(chan struct{})})
		g.queues[name] = queue
	}
	with = queue[len(queue)-1]
	with.calls = append(with.calls, call)
	if !served {
		g.serving.Go(func() { g.serve(name) })
	}
	return with, len(with.calls) - 1, nil
}

// serve makes calls until none waits. No caller's ctx ends them.
func (g *gather[Terms, In, Out]) serve(name string) {
	for next := g.next(name); next != nil; next = g.next(name) {
		next.results, next.err = g.run(context.Background(), next.terms, next.calls)
		close(next.done)
		if next.err != nil {
			g.fail(name, next.err)
		}
	}
}

// next takes the first that wait; nil: there are none, and the room is served no longer.
func (g *gather[Terms, In, Out]) next(name string) *gathered[Terms, In, Out] {
	g.mu.Lock()
	defer g.mu.Unlock()
	queue := g.queues[name]
	if len(queue) == 0 {
		delete(g.queues, name)
		return nil
	}
	g.queues[name] = queue[1:]
	return queue[0]
}

// fail gives an error to all who wait.
func (g *gather[Terms, In, Out]) fail(name string, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, with := range g.queues[name] {
		with.err = err
		close(with.done)
	}
	g.queues[name] = nil
}

// close lets nobody join, and waits for the calls in progress.
func (g *gather[Terms, In, Out]) close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.serving.Wait()
}
