package bulk

import (
	"time"
)

// maxRetryAfter bounds the delay that a target or handler may ask for.
const maxRetryAfter = 24 * time.Hour

// RetryDelay returns the delay before the attempt that follows a transient error:
// exponential backoff with jitter. It doubles from base with each attempt, up to limit.
// Jitter, from 0 up to 1, spreads it over its upper half, so that jobs that failed
// together are not retried together, and none is retried sooner than half of base.
func RetryDelay(base, limit time.Duration, attempts int, jitter float64) time.Duration {
	delay := base
	for range attempts - 1 {
		if delay >= limit/2 {
			delay = limit
			break
		}
		delay *= 2
	}
	delay = min(delay, limit)
	return delay/2 + time.Duration(jitter*float64(delay-delay/2))
}

// BoundRetryAfter bounds a delay that a target or handler asked for to 0 … 24 h.
func BoundRetryAfter(asked time.Duration) time.Duration {
	return min(max(asked, 0), maxRetryAfter)
}
