package bulk

import (
	"sync"
)

// signal wakes one loop; waking it twice wakes it once.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

func (s signal) wake() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// broadcast wakes everybody who waits.
type broadcast struct {
	mu *sync.Mutex
	c  chan struct{}
}

func newBroadcast() broadcast { return broadcast{mu: new(sync.Mutex), c: make(chan struct{})} }

func (b *broadcast) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.c
}

func (b *broadcast) wake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.c)
	b.c = make(chan struct{})
}
