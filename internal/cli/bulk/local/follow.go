package local

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

// PollInterval is the interval between two polls of a run.
const PollInterval = 100 * time.Millisecond

// Follow polls actions until all have finished, and shows each state. It returns their last state,
// in the order of ids, also with an error: that of ctx, or of the engine.
func Follow(ctx context.Context, r Engine, ids []string, every time.Duration, see func(time.Time, []bulk.Action)) ([]bulk.Action, error) {
	actions := make([]bulk.Action, len(ids))
	return actions, Poll(ctx, r, every, func() (int, error) {
		left, err := Refresh(ctx, r, ids, actions)
		if err == nil {
			see(time.Now(), actions)
		}
		return left, err
	})
}

// Poll calls look at intervals until nothing is left, or the engine, if there is one, has failed.
func Poll(ctx context.Context, r Engine, every time.Duration, look func() (left int, err error)) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	var failed <-chan struct{}
	if r != nil {
		failed = r.Failed()
	}
	for {
		if left, err := look(); err != nil || left == 0 {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		case <-failed:
			return fmt.Errorf("the engine stopped: %w", r.Err())
		}
	}
}

// Refresh updates the actions and counts those that have not finished. Finished actions are not
// read again.
func Refresh(ctx context.Context, r Engine, ids []string, actions []bulk.Action) (left int, err error) {
	unfinished, err := r.Actions(ctx, bulk.ActionFilter{Unfinished: true})
	if err != nil {
		return 0, err
	}
	now := make(map[string]*bulk.Action, len(unfinished))
	for i := range unfinished {
		now[unfinished[i].ID] = &unfinished[i]
	}
	for i, id := range ids {
		if Ended(&actions[i]) {
			continue
		}
		if a := now[id]; a != nil {
			actions[i] = *a
		} else if actions[i], err = r.Action(ctx, id); err != nil {
			return 0, fmt.Errorf("action %s: %w", id, err)
		}
		if !Ended(&actions[i]) {
			left++
		}
	}
	return left, nil
}

// Ended reports whether the action will not change any more.
func Ended(a *bulk.Action) bool { return a.Status.Final() && !a.FinishedAt.IsZero() }
