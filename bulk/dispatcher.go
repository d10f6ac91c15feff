package bulk

import (
	"context"
	"time"

	"github.com/sluice-project/sluice/lifecycle"
)

// dispatcher returns jobs that are due, or whose lease has expired, to the front
// of their action's line, from where the fetcher admits them as any other: so
// they too pass the limits, and are turned back by none.
func (e *Engine) dispatcher(ctx context.Context) error {
	var trouble trouble
	for {
		began := time.Now()
		moved, next, err := e.store.Dispatch(ctx, e.config.DispatchBatch)
		if err != nil && !retriable(err) {
			return err
		}
		if !lifecycle.Sleep(ctx, nil, trouble.after(e.log, "dispatch", err)) {
			return ctx.Err()
		}
		e.metrics.dispatched(moved, time.Since(began))
		wait := e.config.DispatchInterval
		switch {
		case moved > 0:
			e.fetch.wake()
			e.watch.wake()
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
