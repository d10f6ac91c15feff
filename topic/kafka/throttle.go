package kafka

import (
	"math"
	"time"

	"github.com/sluice-project/sluice/topic/kafka/auth"
)

// An account that has used more than its quota has to wait: the answer says how long and is sent at once, and the connection's
// next request is read when that is over (KIP-219), whether the client waits by itself or not.

// meter returns what counts the bytes of a rate; nil if the client has no quota.
func (c *call) meter(rate string) auth.Meter {
	if c.principal == nil {
		return nil
	}
	return c.principal.Meter(rate, c.client)
}

// mayAnswer returns how many bytes of records an answer may have; 0 means none at all.
func mayAnswer(m auth.Meter) int64 {
	if m == nil {
		return math.MaxInt64
	}
	return m.Allowance()
}

// spend counts bytes of a request, and returns how many milliseconds the answer tells the client to wait.
func (c *call) spend(m auth.Meter, bytes int64) (millis int32) {
	if m == nil {
		return 0
	}
	wait := m.Spend(bytes)
	if wait <= 0 {
		return 0
	}
	c.session.throttle(wait)
	c.session.server.metrics.throttled.WithLabelValues(requestName(c.key)).Inc()
	return int32((wait + time.Millisecond - 1) / time.Millisecond)
}

// throttle makes the reader wait before the next request, unless it already waits for longer.
func (c *connection) throttle(wait time.Duration) {
	until := time.Now().Add(wait).UnixNano()
	for before := c.throttled.Load(); before < until && !c.throttled.CompareAndSwap(before, until); {
		before = c.throttled.Load()
	}
}

// awaitThrottle waits until the next request may be read.
func (c *connection) awaitThrottle() error {
	for {
		wait := time.Until(time.Unix(0, c.throttled.Load()))
		if wait <= 0 {
			return nil
		}
		over := time.NewTimer(wait)
		select {
		case <-over.C:
		case <-c.server.draining:
			over.Stop()
			return errDraining
		case <-c.ctx.Done():
			over.Stop()
			return c.ctx.Err()
		}
	}
}
