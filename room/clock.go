package room

import (
	"sync"
	"time"
)

// storeClock estimates the store's time between its replies. It is never ahead
// of it, as long as the store's clock does not jump back: a reply was under way for
// some time, so the store's time is at least what the reply says. It runs on this
// process's monotonic clock, so setting that of the machine does not move it.
type storeClock struct {
	mu     sync.Mutex
	offset time.Duration
	known  bool
	at     time.Time
	start  time.Time
}

// clockMemory is for how long one reply that was faster than others is believed:
// then the clocks may have drifted apart, or the store's may have jumped.
const clockMemory = 2 * time.Second

// clockJump is by how much the store's time is behind what was believed when its
// clock was set back: replies come faster.
const clockJump = 10 * time.Second

// observe notes the store's time of a reply that was received just now.
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

// now is the estimate; ok is false if no reply was observed yet.
func (c *storeClock) now() (now time.Time, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		return time.Time{}, false
	}
	return c.start.Round(0).Add(time.Since(c.start) + c.offset), true
}
