package engine

import (
	"sync"
	"time"
)

// storeClock estimates the store's time between its replies. The estimate is never ahead
// of the store's clock unless that jumps back: a reply takes some time, so the store's
// time is at least what the reply says. It runs on this process's monotonic clock, so
// setting the machine's clock does not change it.
type storeClock struct {
	mu     sync.Mutex
	offset time.Duration
	known  bool
	at     time.Time
	start  time.Time
}

// clockMemory is how long the fastest reply counts: after that the clocks may have drifted
// apart, or the store's may have jumped.
const clockMemory = 2 * time.Second

// clockJump is how far the store's time must be behind the estimate to mean that its clock
// was set back: no reply takes that long.
const clockJump = 10 * time.Second

// observe records the store's time from a reply that was received just now.
func (c *storeClock) observe(store time.Time) {
	if store.IsZero() {
		return
	}
	received := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		c.start = received
	}
	offset := store.Sub(c.start.Round(0)) - received.Sub(c.start)
	if !c.known || offset > c.offset || c.offset-offset > clockJump || received.Sub(c.at) > clockMemory {
		c.offset, c.at, c.known = offset, received, true
	}
}

// now returns the estimate; ok is false if no reply was observed yet.
func (c *storeClock) now() (now time.Time, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		return time.Time{}, false
	}
	return c.start.Round(0).Add(time.Since(c.start) + c.offset), true
}
