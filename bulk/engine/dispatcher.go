package engine

import (
	"context"
	"time"

	"github.com/sluice-project/sluice/lifecycle"
)

// dispatcher returns jobs that are due, or whose lease has expired, to the front of
// their action's line. From there the fetcher admits them like any others, so the limits
// apply to them too.
func (e *Engine) dispatcher(ctx context.Context) error {
	var backoff backoff
	for {
		began := time.Now()
		moved, next, err := e.store.Dispatch(ctx, e.config.DispatchBatch)
		if err != nil && !retriable(err) {
			return err
		}
		if !lifecycle.Sleep(ctx, nil, backoff.after(e.log, "dispatch", err)) {
			return ctx.Err()
		}
		e.metrics.dispatched(moved, time.Since(began))
		wait := e.config.DispatchInterval
		switch {
		case moved > 0:
			e.fetch.Wake()
			e.watch.Wake()
			if moved == e.config.DispatchBatch {
				wait = 0
			}
		case !next.IsZero():
			wait = min(wait, max(time.Until(next), time.Millisecond))
		}
		if !lifecycle.Sleep(ctx, e.dispatch, wait) {
			return ctx.Err()
		}
	}
}
