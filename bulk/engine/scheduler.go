package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/lifecycle"
)

const (
	// scheduleInterval is how often schedules are read when none is due and nothing
	// wakes the scheduler, to find changes and unfinished runs of other instances.
	scheduleInterval = 5 * time.Second
	// scheduleRetry is the delay after a conflict with another instance, or an error.
	scheduleRetry = time.Second
	// schedulePause is the minimum time between two reads.
	schedulePause = 10 * time.Millisecond
)

// scheduler creates an action for each run of a schedule that is due, by the clock of
// this instance. A run takes three steps. First its time is put into the schedule, by
// compare-and-set, so that it begins once. Then the action is created, with an id that
// follows from that time, so that creating it is idempotent. Last, the schedule records
// that the run has started. Any instance completes a run that has begun, after a crash
// or if another instance is slow.
func (e *Engine) scheduler(ctx context.Context) error {
	var backoff backoff
	for {
		began := time.Now()
		wait, err := e.scheduleOnce(ctx, began.UTC())
		if err != nil && !retriable(err) {
			return err
		}
		// Reading very large schedules takes long: it may use a fifth of the time.
		pause := max(min(max(schedulePause, 4*time.Since(began)), scheduleInterval), backoff.after(e.log, "schedule", err))
		if !lifecycle.Sleep(ctx, nil, pause) || !lifecycle.Sleep(ctx, e.schedule, wait) {
			return ctx.Err()
		}
	}
}

// scheduleOnce attends to all schedules, some concurrently, and returns how long to wait.
func (e *Engine) scheduleOnce(ctx context.Context, now time.Time) (wait time.Duration, err error) {
	schedules, err := e.store.Schedules(ctx)
	if err != nil {
		return scheduleRetry, err
	}
	var mu sync.Mutex
	wait = scheduleInterval
	var group errgroup.Group
	group.SetLimit(maxConcurrent)
	for _, s := range schedules {
		group.Go(func() error {
			again, err := e.attend(ctx, s, now)
			if err != nil {
				again = now.Add(scheduleRetry)
				if errors.As(err, new(*bulk.QuotaError)) { // it may be so for hours
					again = now.Add(scheduleInterval)
				}
			}
			mu.Lock()
			if !again.IsZero() {
				wait = min(wait, max(0, time.Until(again)))
			}
			mu.Unlock()
			switch {
			case err == nil || errors.Is(err, bulk.ErrConflict) || errors.Is(err, bulk.ErrNoSchedule):
				return nil // another instance was faster
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

// attend starts or completes the run of one schedule, and returns when to attend to it
// again; zero if that is not known.
func (e *Engine) attend(ctx context.Context, s bulk.Schedule, now time.Time) (again time.Time, err error) {
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
	timing, err := timingOf(&s)
	if err != nil {
		return again, fmt.Errorf("schedule %q: %w", s.Name, err)
	}
	d := dueAt(&timing, s.NextRunAt, now, s.CatchUp)
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

// overlaps reports whether a run must not start because the previous one has not
// finished.
func (e *Engine) overlaps(ctx context.Context, s *bulk.Schedule) (bool, error) {
	if s.Overlap == bulk.OverlapAllow || s.LastAction == "" {
		return false, nil
	}
	last, err := e.store.Action(ctx, s.LastAction)
	if errors.Is(err, bulk.ErrNotFound) { // its retention is over
		return false, nil
	}
	return err == nil && last.FinishedAt.IsZero(), err
}

// finishRun creates the action of the run that has begun, and records that it started,
// or why it cannot.
func (e *Engine) finishRun(ctx context.Context, s bulk.Schedule) (bulk.Schedule, error) {
	id := bulk.RunID(s.Name, s.Pending)
	err := e.makeRun(ctx, id, &s)
	var refused *bulk.RunError
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

// makeRun creates, fills and seals the action of a run, unless that was done before. A
// *RunError is permanent.
func (e *Engine) makeRun(ctx context.Context, id string, s *bulk.Schedule) error {
	refused := func(why string) error { return &bulk.RunError{Schedule: s.Name, Why: why} }
	spec := s.Spec
	spec.ID = id
	action, _, err := e.Create(ctx, spec)
	var wrong *bulk.SpecError
	var exists *bulk.ExistsError
	var denied *bulk.DeniedError
	switch {
	case errors.As(err, &wrong), errors.As(err, &exists), errors.As(err, &denied):
		return refused(err.Error())
	case err != nil:
		return err
	}
	total := int64(len(s.Jobs))
	if action.Status == bulk.Created && action.Received < total {
		if _, err = e.Append(ctx, id, 0, s.Jobs); err != nil {
			return e.moved(ctx, id, err, refused)
		}
	}
	if action.Status == bulk.Created {
		if _, err = e.Seal(ctx, id, total); err != nil {
			return e.moved(ctx, id, err, refused)
		}
	}
	return nil
}

// moved interprets an error of a transition: none if the action was sealed or canceled
// by another caller; else the run cannot start, as the action has other jobs.
func (e *Engine) moved(ctx context.Context, id string, err error, refused func(string) error) error {
	var transition *bulk.TransitionError
	if !errors.As(err, &transition) {
		return err
	}
	action, again := e.store.Action(ctx, id)
	if again != nil {
		return again
	}
	if action.Status != bulk.Created {
		return nil
	}
	return refused(err.Error())
}
