package retry

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// Policy bounds how often and how soon a request is repeated.
type Policy struct {
	// Attempts is the most attempts, the first one included.
	Attempts int
	// Base is the delay after the first failure; it doubles up to Cap.
	Base, Cap time.Duration
}

// Default is for requests to a server that may restart in the meantime.
var Default = Policy{Attempts: 12, Base: 100 * time.Millisecond, Cap: 5 * time.Second}

// MaxAfter is the most of a Retry-After that is honoured.
const MaxAfter = 30 * time.Second

// Do calls f until it succeeds, fails with a permanent error, or has used all attempts.
// Passing reports whether an error is transient, and the delay that the server asks for.
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
		select {
		case <-time.After(p.Delay(failed, after)):
		case <-ctx.Done():
			return err
		}
	}
}

// Delay returns the time before the next attempt after that many failed ones: the base,
// doubled for each up to the cap, of which half is random, and at least the delay that
// the server asked for.
func (p Policy) Delay(failed int, after time.Duration) time.Duration {
	full := p.Cap
	if shift := failed - 1; shift < 20 {
		full = min(p.Cap, p.Base<<shift)
	}
	half := full / 2
	return max(half+rand.N(half+1), min(after, MaxAfter))
}
