package bulk

import (
	"log/slog"
	"math/rand/v2"
	"time"
)

const (
	// troubleBase and troubleCap bound the pause of a loop whose store fails: it
	// doubles from the one to the other, with jitter, so that instances do not all
	// ask at once when the store is back.
	troubleBase = 100 * time.Millisecond
	troubleCap  = 3 * time.Second
	// troubleTold is how often a loop tells that its store still fails.
	troubleTold = time.Minute
)

// trouble is how a loop gets on with its store. The zero value is well.
type trouble struct {
	failed      int // turns, one after the other
	since, told time.Time
}

// after notes how a turn of a loop ended, and returns how long to pause for it: 0 if it
// went well. What it logs is the first failure, one now and then, and the end of them.
func (t *trouble) after(log *slog.Logger, loop string, err error, args ...any) time.Duration {
	now := time.Now()
	if err == nil {
		if t.failed > 0 {
			log.Info(loop+" goes on", append(args, "failed_for", now.Sub(t.since).Round(time.Millisecond))...)
			*t = trouble{}
		}
		return 0
	}
	if t.failed == 0 {
		t.since = now
	}
	t.failed++
	if t.failed == 1 || now.Sub(t.told) >= troubleTold {
		t.told = now
		log.Error(loop, append(args, "error", err, "times", t.failed)...)
	}
	return RetryDelay(troubleBase, troubleCap, t.failed, rand.Float64())
}
