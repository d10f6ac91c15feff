package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

// runner is what the commands need of a bulk engine in this process.
type runner interface {
	Create(ctx context.Context, spec bulk.Spec) (action bulk.Action, created bool, err error)
	Append(ctx context.Context, id string, offset int64, payloads [][]byte) (received int64, err error)
	Seal(ctx context.Context, id string, total int64) (bulk.Action, error)
	Cancel(ctx context.Context, id string) (bulk.Action, error)
	Action(ctx context.Context, id string) (bulk.Action, error)
	Actions(ctx context.Context, filter bulk.ActionFilter) ([]bulk.Action, error)
	DeadLetters(ctx context.Context, id string, from int64, limit int) ([]bulk.DeadLetter, error)
	Settings(ctx context.Context) (bulk.Settings, error)
	// Jain is the mean of Jain's index over full windows of tenants that were
	// backlogged throughout; windows is 0 where there was none.
	Jain() (index float64, windows int)
	// Start begins to run what was sealed, before and after.
	Start(ctx context.Context) error
	// Failed is closed when the engine cannot go on; Err tells why.
	Failed() <-chan struct{}
	Err() error
	// Stop drains: no further job starts, those in flight finish or are handed
	// back before ctx ends. What is asked and read still works.
	Stop(ctx context.Context) error
	// Close makes everything durable and releases the data directory.
	Close() error
}

// lookEvery is how often a run is looked at.
const lookEvery = 100 * time.Millisecond

// follow looks at actions until all have finished, and shows each look. It
// returns their last state, in the order of ids, also with an error: that of
// ctx, or of the runner.
func follow(ctx context.Context, r runner, ids []string, every time.Duration, see func(time.Time, []bulk.Action)) ([]bulk.Action, error) {
	actions := make([]bulk.Action, len(ids))
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		left, err := look(ctx, r, ids, actions)
		if err != nil {
			return actions, err
		}
		see(time.Now(), actions)
		if left == 0 {
			return actions, nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return actions, ctx.Err()
		case <-r.Failed():
			return actions, fmt.Errorf("the engine stopped: %w", r.Err())
		}
	}
}

// look brings actions up to date and counts those that have not finished. Those
// that have are not read again.
func look(ctx context.Context, r runner, ids []string, actions []bulk.Action) (left int, err error) {
	unfinished, err := r.Actions(ctx, bulk.ActionFilter{Unfinished: true})
	if err != nil {
		return 0, err
	}
	now := make(map[string]*bulk.Action, len(unfinished))
	for i := range unfinished {
		now[unfinished[i].ID] = &unfinished[i]
	}
	for i, id := range ids {
		if ended(&actions[i]) {
			continue
		}
		if a := now[id]; a != nil {
			actions[i] = *a
		} else if actions[i], err = r.Action(ctx, id); err != nil {
			return 0, fmt.Errorf("action %s: %w", id, err)
		}
		if !ended(&actions[i]) {
			left++
		}
	}
	return left, nil
}

// ended tells whether nothing of the action will change any more.
func ended(a *bulk.Action) bool { return a.Status.Final() && !a.FinishedAt.IsZero() }

// Bounds of what is read of the jobs that failed.
const (
	letterPage   = 1000
	mostLetters  = 100_000
	mostMessages = 1000
)

// failures are the messages of the jobs that failed, with how often each came.
type failures struct {
	Messages map[string]int64
	// Read counts the dead letters that were looked at; no more than mostLetters.
	Read int64
}

// readFailures goes through the dead letters of actions.
func readFailures(ctx context.Context, r runner, actions []bulk.Action, see func(*bulk.DeadLetter)) (*failures, error) {
	result := &failures{Messages: map[string]int64{}}
	for i := range actions {
		if actions[i].Failed == 0 {
			continue
		}
		err := eachLetter(ctx, r, actions[i].ID, func(letter *bulk.DeadLetter) bool {
			if see != nil {
				see(letter)
			}
			result.count(letter.Error)
			return result.Read < mostLetters
		})
		if err != nil {
			return nil, err
		}
	}
	return result, nil
}

func (f *failures) count(message string) {
	f.Read++
	message = printable(message)
	if _, known := f.Messages[message]; !known && len(f.Messages) == mostMessages {
		message = "(other messages)"
	}
	f.Messages[message]++
}

func eachLetter(ctx context.Context, r runner, id string, see func(*bulk.DeadLetter) bool) error {
	from := int64(0)
	for {
		letters, err := r.DeadLetters(ctx, id, from, letterPage)
		if err != nil {
			return fmt.Errorf("failed jobs of action %s: %w", id, err)
		}
		for i := range letters {
			if !see(&letters[i]) {
				return nil
			}
			from = letters[i].Index + 1
		}
		if len(letters) < letterPage {
			return nil
		}
	}
}

// interrupted tells whether an error is the end of the command's context.
func interrupted(err error) bool { return errors.Is(err, context.Canceled) }
