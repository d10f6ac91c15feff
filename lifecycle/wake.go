package lifecycle

import (
	"context"
	"sync"
	"time"
)

// Sleep pauses a loop for d, or until wake, which may be nil, receives. It returns
// false if ctx has ended.
func Sleep(ctx context.Context, wake <-chan struct{}, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-wake:
	case <-timer.C:
	}
	return ctx.Err() == nil
}

// Signal wakes one loop, which receives from it, for example in Sleep. A signal that
// comes while the loop is busy wakes it at its next pause; further ones until then
// have no effect.
type Signal chan struct{}

// NewSignal returns a signal that nothing has woken yet.
func NewSignal() Signal { return make(Signal, 1) }

// Wake wakes the loop. It does not block.
func (s Signal) Wake() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// Broadcast wakes all goroutines that wait at that moment. The zero value is ready
// to use.
type Broadcast struct {
	mu sync.Mutex
	c  chan struct{}
}

// Wait returns a channel that the next Wake closes. A waiter that checks a condition
// must call Wait before the check, or it may miss the wake-up between the two.
func (b *Broadcast) Wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.c == nil {
		b.c = make(chan struct{})
	}
	return b.c
}

// Wake wakes all goroutines that wait.
func (b *Broadcast) Wake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.c != nil {
		close(b.c)
		b.c = nil
	}
}
