package retry

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// Policy says how often and when a request is made again.
type Policy struct {
	// Attempts is how often it is made at most; 1: once.
	Attempts int
	// Base is the pause after the first failure; it doubles up to Cap.
	Base, Cap time.Duration
}

// Default is for requests to a server that may be restarted meanwhile.
var Default = Policy{Attempts: 12, Base: 100 * time.Millisecond, Cap: 5 * time.Second}

// MaxAfter bounds what is believed of a Retry-After.
const MaxAfter = 30 * time.Second

// Do calls f until it succeeds, fails for good, or was called often enough. Passing tells of
// an error whether trying again may help, and what pause the server asks for.
func (p Policy) Do(ctx context.Context, passing func(error) (after time.Duration, ok bool), f func(context.Context) error) error {
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
		if failed >= p.Attempts {
			return fmt.Errorf("gave up after %d attempts: %w", failed, err)
		}
		if !Sleep(ctx, p.Delay(failed, after)) {
			return err
		}
	}
}

// Delay is the time before the next attempt after so many failed ones: the base,
// doubled for each up to the cap, between half and all of it by chance, and at
// least what the server asked for.
func (p Policy) Delay(failed int, after time.Duration) time.Duration {
	full := p.Cap
	if shift := failed - 1; shift < 20 {
		full = min(p.Cap, p.Base<<shift)
	}
	half := full / 2
	return max(half+rand.N(half+1), min(after, MaxAfter))
}

// Sleep waits; it returns false if ctx ended first.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
