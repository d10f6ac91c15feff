package api

import (
	"context"
	"time"
)

// gate lets a bounded number in at one time; others wait for their turn.
type gate struct {
	slots chan struct{}
	wait  time.Duration
}

func newGate(slots int, wait time.Duration) *gate {
	return &gate{slots: make(chan struct{}, slots), wait: wait}
}

// enter returns what leaves the gate again, or false if there was no room in
// time or ctx ended.
func (g *gate) enter(ctx context.Context) (leave func(), ok bool) {
	leave = func() { <-g.slots }
	select {
	case g.slots <- struct{}{}:
		return leave, true
	default:
	}
	if g.wait <= 0 {
		return nil, false
	}
	timer := time.NewTimer(g.wait)
	defer timer.Stop()
	select {
	case g.slots <- struct{}{}:
		return leave, true
	case <-timer.C:
	case <-ctx.Done():
	}
	return nil, false
}
