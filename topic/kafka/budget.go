package kafka

import (
	"container/list"
	"context"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
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

const (
	// decodeCost is the memory that one element of a decoded request takes, with what its handler
	// remembers of it; answerCost is what the answer to it takes.
	decodeCost, answerCost = 256, 128
	// smallAnswer is the part of each answer that takes no memory from the budget, so that
	// heartbeats and produced records are never acknowledged late because consumers are slow.
	smallAnswer = 32 << 10
	// largeAtOnce is how many answers are built at once that turn out to be larger than their
	// requests suggest.
	largeAtOnce = 2
)

// allowance is the memory of one answer, from when it is built until it is sent. Only the sender of
// its connection uses it.
//
// The memory for the elements of a request is taken before the answer is built. An answer with more
// than that waits for its turn to be built, and then takes memory without waiting, so that no two
// answers wait for each other.
type allowance struct {
	server *Server
	ctx    context.Context
	// used is the size of the answer so far; held is what it has of the budget.
	used, held int64
	turn       bool
}

// reserve waits for the memory of the answer to a request with the given number of elements.
func (a *allowance) reserve(elements int) (err error) {
	a.used = int64(elements) * answerCost
	if a.used > smallAnswer {
		a.held, err = a.server.answers.take(a.ctx, a.used, a.used)
	}
	return err
}

// await waits until there is memory for an answer of n bytes, and takes none.
func (a *allowance) await(n int64) error {
	if n <= smallAnswer {
		return nil
	}
	got, err := a.server.answers.take(a.ctx, n, n)
	a.server.answers.change(got)
	return err
}

// add takes n more bytes for the answer. If the answer becomes too large, the error is a
// POLICY_VIOLATION, and the answer has to do without them.
func (a *allowance) add(n int64) error {
	if most := a.server.options.MaxAnswerBytes; a.used+n > most {
		return refuse(kerr.PolicyViolation, "the answer to one request may have %d bytes: ask for less at a time", most)
	}
	a.used += n
	if a.used <= smallAnswer+a.held {
		return nil
	}
	if err := a.takeTurn(); err != nil {
		return err
	}
	if beyond := a.used - a.held; beyond > 0 {
		a.server.answers.change(-beyond)
		a.held += beyond
	}
	return nil
}

// takeTurn waits until the answer may be built without waiting any more. Nothing of the budget is
// held while it waits for its turn, so that those with a turn get memory.
func (a *allowance) takeTurn() (err error) {
	if a.turn {
		return nil
	}
	a.server.answers.change(a.held)
	a.held = 0
	if _, err = a.server.turns.take(a.ctx, 1, 1); err != nil {
		return fmt.Errorf("turn of a large answer: %w", err)
	}
	a.turn = true
	if a.held, err = a.server.answers.take(a.ctx, a.used, a.used); err != nil {
		return fmt.Errorf("memory for an answer: %w", err)
	}
	return nil
}

// built ends the turn of an answer, whose encoding has the given size.
func (a *allowance) built(size int) {
	if a.turn {
		a.turn = false
		a.server.turns.change(1)
	}
	if held := max(int64(size)-smallAnswer, 0); held != a.held {
		a.server.answers.change(a.held - held)
		a.held = held
	}
}

// release gives back all memory, once the answer is sent or will not be.
func (a *allowance) release() { a.built(0) }
