package pebblestore

import (
	"sync/atomic"
	"time"
)

// clock is the store's time, in milliseconds since 1970. It never goes back while the
// store is open: if the machine's clock is set back, it continues as before until the
// store is opened again; if that is set forward, it follows.
type clock struct{ anchor atomic.Pointer[anchor] }

// anchor is a moment for which the store's time is known.
type anchor struct {
	at    time.Time // with the monotonic reading
	store int64
}

func (c *clock) now() int64 {
	at := time.Now()
	return c.read(at, at.UnixMilli())
}

// read returns the time when the machine's clock shows wall.
func (c *clock) read(at time.Time, wall int64) int64 {
	for {
		a := c.anchor.Load()
		if a != nil {
			if now := a.store + at.Sub(a.at).Milliseconds(); now >= wall {
				return now
			}
		}
		if c.anchor.CompareAndSwap(a, &anchor{at, wall}) {
			return wall
		}
	}
}

// moment returns a time of the store as a time.Time.
func moment(ms int64) time.Time { return time.UnixMilli(ms) }

// until returns a time of the store; the zero time for 0.
func until(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}
