package bulk

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-project/sluice/lifecycle"
)

const (
	// scheduleInterval is how often schedules are looked at when none is due and
	// nothing wakes the scheduler: what other instances set, or left behind, is
	// found then.
	scheduleInterval = 5 * time.Second
	// scheduleRetry is when they are looked at again after another instance was
	// faster, or something failed.
	scheduleRetry = time.Second
	// schedulePause is the least time between two looks.
	schedulePause = 10 * time.Millisecond
)

// scheduler makes an action of each run of a schedule that is due, by the clock
// of this instance. A run takes three steps: its time is put into the schedule,
// by compare-and-set, so that it begins once; the action is made, whose id
// follows from that time, so that all who make it make the same; and that it was
// made is put into the schedule. Whoever finds a run that has begun goes on with
// it, after a crash or beside an instance that is slow.
func (e *Engine) scheduler(ctx context.Context) error {
	var trouble trouble
	for {
		began := time.Now()
		wait, err := e.scheduleOnce(ctx, began.UTC())
		if err != nil && !retriable(err) {
			return err
		}
		// With very large schedules a look takes long; it gets a fifth of the time.
		pause := max(min(max(schedulePause, 4*time.Since(began)), scheduleInterval), trouble.after(e.log, "schedule", err))
		if !lifecycle.Sleep(ctx, nil, pause) || !lifecycle.Sleep(ctx, e.schedule, wait) {
			return ctx.Err()
		}
	}
}

// scheduleOnce attends to all schedules, some side by side, and returns when to
// look again.
func (e *Engine) scheduleOnce(ctx context.Context, now time.Time) (wait time.Duration, err error) {
	schedules, err := e.store.Schedules(ctx)
	if err != nil {
		return scheduleRetry, err
	}
	var mu sync.Mutex
	wait = scheduleInterval
	var group errgroup.Group
	group.SetLimit(sideBySide)
	for _, s := range schedules {
		group.Go(func() error {
			again, err := e.attend(ctx, s, now)
			if err != nil {
				again = now.Add(scheduleRetry)
			}
			mu.Lock()
			if !again.IsZero() {
				wait = min(wait, max(0, time.Until(again)))
			}
			mu.Unlock()
			switch {
			case err == nil || errors.Is(err, ErrConflict) || errors.Is(err, ErrNoSchedule):
				return nil // somebody else was faster
			case retriable(err):
				if ctx.Err() == nil {
					e.log.Error("schedule", "schedule", s.Name, "error", err)
				}
				return nil
			}
			return err
		})
	}
	return wait, group.Wait()
}

// attend does what is to be done of one schedule, and returns when there will be
// more; zero if that is not known.
func (e *Engine) attend(ctx context.Context, s Schedule, now time.Time) (again time.Time, err error) {
	if !s.Pending.IsZero() {
		if s, err = e.finishRun(ctx, s); err != nil {
			return again, err
		}
	}
	switch {
	case s.Removing:
		return again, e.store.RemoveSchedule(ctx, s.Name)
	case s.Paused || s.NextRunAt.After(now) || s.NextRunAt.IsZero():
		return s.NextRunAt, nil
	}
	timing, err := s.timing()
	if err != nil {
		return again, fmt.Errorf("schedule %q: %w", s.Name, err)
	}
	d := timing.dueAt(s.NextRunAt, now, s.CatchUp)
	s.NextRunAt = d.next
	skip := false
	if !d.run.IsZero() {
		if skip, err = e.overlaps(ctx, &s); err != nil {
			return again, err
		}
		if skip {
			s.LastSkippedAt = d.run
		} else {
			s.Pending = d.run
		}
	}
	if s, err = e.store.PutSchedule(ctx, s); err != nil {
		return again, err
	}
	e.metrics.missedRuns(d.missed)
	if skip {
		e.metrics.run(runSkipped)
	}
	if !s.Pending.IsZero() {
		s, err = e.finishRun(ctx, s)
	}
	return s.NextRunAt, err
}

// overlaps tells whether a run must not start because the one before has not
// finished.
func (e *Engine) overlaps(ctx context.Context, s *Schedule) (bool, error) {
	if s.Overlap == OverlapAllow || s.LastAction == "" {
		return false, nil
	}
	last, err := e.store.Action(ctx, s.LastAction)
	if errors.Is(err, ErrNotFound) { // its retention is over
		return false, nil
	}
	return err == nil && last.FinishedAt.IsZero(), err
}

// finishRun makes the action of the run that has begun, and notes that it was
// made, or why it cannot be.
func (e *Engine) finishRun(ctx context.Context, s Schedule) (Schedule, error) {
	id := RunID(s.Name, s.Pending)
	err := e.makeRun(ctx, id, &s)
	var refused *RunError
	outcome := runStarted
	switch {
	case errors.As(err, &refused):
		outcome, s.LastError = runFailed, fmt.Sprintf("%.1000s", refused.Why)
		e.log.Error("a scheduled run could not be made", "schedule", s.Name, "action", id, "error", refused.Why)
	case err != nil:
		return s, fmt.Errorf("action %s: %w", id, err)
	default:
		s.LastRunAt, s.LastAction, s.LastError = s.Pending, id, ""
	}
	s.Pending = time.Time{}
	if s, err = e.store.PutSchedule(ctx, s); err == nil {
		e.metrics.run(outcome)
	}
	return s, err
}

// makeRun creates, fills and seals the action of a run: as far as it has not been
// done. A *RunError says why it cannot be done.
func (e *Engine) makeRun(ctx context.Context, id string, s *Schedule) error {
	refused := func(why string) error { return &RunError{Schedule: s.Name, Why: why} }
	spec := s.Spec
	spec.ID = id
	action, _, err := e.Create(ctx, spec)
	var wrong *SpecError
	var exists *ExistsError
	switch {
	case errors.As(err, &wrong), errors.As(err, &exists):
		return refused(err.Error())
	case err != nil:
		return err
	}
	total := int64(len(s.Jobs))
	if action.Status == Created && action.Received < total {
		if _, err = e.Append(ctx, id, 0, s.Jobs); err != nil {
			return e.moved(ctx, id, err, refused)
		}
	}
	if action.Status == Created {
		if _, err = e.Seal(ctx, id, total); err != nil {
			return e.moved(ctx, id, err, refused)
		}
	}
	return nil
}

// moved tells what an error means: nothing, if the action was sealed or canceled
// meanwhile; that the run cannot be made, if it has jobs of somebody else's.
func (e *Engine) moved(ctx context.Context, id string, err error, refused func(string) error) error {
	var move *MoveError
	if !errors.As(err, &move) {
		return err
	}
	action, again := e.store.Action(ctx, id)
	if again != nil {
		return again
	}
	if action.Status != Created {
		return nil
	}
	return refused(err.Error())
}
