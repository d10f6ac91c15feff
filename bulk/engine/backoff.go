package engine

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

const (
	// backoffBase and backoffCap bound the pause of a loop whose store fails. The
	// pause doubles from base to cap, with jitter, so that instances do not all
	// call the store at once when it is back.
	backoffBase = 100 * time.Millisecond
	backoffCap  = 3 * time.Second
	// backoffLogged is how often a loop logs that its store still fails.
	backoffLogged = time.Minute
)

// backoff paces a loop whose store fails. The zero value is ready.
type backoff struct {
	failed        int // consecutive failures
	since, logged time.Time
}

// after records the result of one iteration of a loop and returns how long to pause: 0 after
// a success. It logs the first failure, one failure a minute, and the recovery, but not that
// the iteration was interrupted.
func (t *backoff) after(log *slog.Logger, loop string, err error, args ...any) time.Duration {
	now := time.Now()
	if err == nil {
		if t.failed > 0 {
			log.Info(loop+" goes on", append(args, "failed_for", now.Sub(t.since).Round(time.Millisecond))...)
			*t = backoff{}
		}
		return 0
	}
	if errors.Is(err, context.Canceled) {
		return backoffBase
	}
	if t.failed == 0 {
		t.since = now
	}
	t.failed++
	if t.failed == 1 || now.Sub(t.logged) >= backoffLogged {
		t.logged = now
		log.Error(loop, append(args, "error", err, "times", t.failed)...)
	}
	return bulk.RetryDelay(backoffBase, backoffCap, t.failed, rand.Float64())
}
