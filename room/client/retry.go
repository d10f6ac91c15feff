package client

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// retry says how often and when a request is made again.
type retry struct {
	attempts  int
	base, cap time.Duration
}

var defaultRetry = retry{attempts: 12, base: 100 * time.Millisecond, cap: 5 * time.Second}

// maxRetryAfter bounds what is believed of a Retry-After.
const maxRetryAfter = 30 * time.Second

// do calls f until it succeeds, fails for good, or was called often enough.
func (r retry) do(ctx context.Context, f func(context.Context) error) error {
	for failed := 0; ; {
		err := f(ctx)
		if err == nil {
			return nil
		}
		after, ok := passing(err)
		if !ok || ctx.Err() != nil {
			return err
		}
		failed++
		if failed >= r.attempts {
			return fmt.Errorf("gave up after %d attempts: %w", failed, err)
		}
		if !sleep(ctx, r.delay(failed, after)) {
			return err
		}
	}
}

// delay is the time before the next attempt after so many failed ones: the base,
// doubled for each up to the cap, between half and all of it by chance, and at
// least what the server asked for.
func (r retry) delay(failed int, after time.Duration) time.Duration {
	full := r.cap
	if shift := failed - 1; shift < 20 {
		full = min(r.cap, r.base<<shift)
	}
	half := full / 2
	return max(half+rand.N(half+1), min(after, maxRetryAfter))
}

// sleep waits; it returns false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
