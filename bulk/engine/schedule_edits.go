package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

// changeAttempts bounds the attempts to change a schedule that others change too.
const changeAttempts = 20

// Schedules returns all schedules, by name.
func (e *Engine) Schedules(ctx context.Context) ([]bulk.Schedule, error) {
	return e.store.Schedules(ctx)
}

// Schedule returns one schedule, or ErrNoSchedule.
func (e *Engine) Schedule(ctx context.Context, name string) (bulk.Schedule, error) {
	all, err := e.store.Schedules(ctx)
	if err != nil {
		return bulk.Schedule{}, err
	}
	at := slices.IndexFunc(all, func(s bulk.Schedule) bool { return s.Name == name && !s.Removing })
	if at < 0 {
		return bulk.Schedule{}, bulk.ErrNoSchedule
	}
	return all[at], nil
}

// PutSchedule creates a schedule, or replaces the requested fields of an existing one,
// which keeps its pause and its history. If cron and the time zone stay the same, so does
// the time of the next run; if all fields stay the same, nothing changes. A wrong field
// is a *ScheduleError or a *SpecError, a target that is not for the tenant a *DeniedError; too many schedules or bytes of jobs is ErrFull.
func (e *Engine) PutSchedule(ctx context.Context, s bulk.Schedule) (stored bulk.Schedule, created bool, err error) {
	if err := e.checkSpec(ctx, &s.Spec); err != nil {
		return s, false, err
	}
	if s, err = NormalizeSchedule(s); err != nil {
		return s, false, err
	}
	for range changeAttempts {
		stored, created, err = e.putSchedule(ctx, s)
		if !errors.Is(err, bulk.ErrConflict) {
			break
		}
	}
	e.schedule.Wake()
	return stored, created, err
}

func (e *Engine) putSchedule(ctx context.Context, s bulk.Schedule) (stored bulk.Schedule, created bool, err error) {
	all, err := e.store.Schedules(ctx)
	if err != nil {
		return s, false, err
	}
	size, old := s.Size(), bulk.Schedule{}
	for _, other := range all {
		if other.Name == s.Name {
			old = other
		} else {
			size += other.Size()
		}
	}
	if size > bulk.MaxSchedulesBytes {
		return s, false, fmt.Errorf("%w: the jobs of all schedules would have %d bytes, more than 64 MiB", bulk.ErrFull, size)
	}
	// A run that has begun uses the fields of when it began.
	if !old.Pending.IsZero() {
		if old, err = e.finishRun(ctx, old); err != nil {
			return s, false, err
		}
	}
	now := time.Now().UTC()
	next := old
	switch {
	case old.Removing:
		if err := e.store.RemoveSchedule(ctx, s.Name); err != nil && !errors.Is(err, bulk.ErrNoSchedule) {
			return s, false, err
		}
		next, created = bulk.Schedule{CreatedAt: now}, true
	case old.Revision == 0:
		next, created = bulk.Schedule{CreatedAt: now}, true
	case asksSame(&old, &s):
		return old, false, nil
	}
	changed := next.Cron != s.Cron || next.TimeZone != s.TimeZone
	next.Name, next.Cron, next.TimeZone, next.Spec, next.Jobs = s.Name, s.Cron, s.TimeZone, s.Spec, s.Jobs
	next.Overlap, next.CatchUp, next.UpdatedAt = s.Overlap, s.CatchUp, now
	if changed {
		next.Since = now.Truncate(time.Second)
		if err := plan(&next, now); err != nil {
			return s, false, err
		}
	}
	stored, err = e.store.PutSchedule(ctx, next)
	return stored, created, err
}

// plan sets when the next run after a time is due.
func plan(s *bulk.Schedule, after time.Time) error {
	timing, err := timingOf(s)
	if err == nil {
		s.NextRunAt = time.Time{}
		if !s.Paused {
			s.NextRunAt = timing.Next(after)
		}
	}
	return err
}

// changeSchedule changes a schedule, and repeats that if others change it too. It
// completes a run that has begun first.
func (e *Engine) changeSchedule(ctx context.Context, name string, change func(*bulk.Schedule) error) (s bulk.Schedule, err error) {
	for range changeAttempts {
		if s, err = e.Schedule(ctx, name); err != nil {
			return s, err
		}
		if !s.Pending.IsZero() {
			if s, err = e.finishRun(ctx, s); errors.Is(err, bulk.ErrConflict) {
				continue
			} else if err != nil {
				return s, err
			}
		}
		if err = change(&s); errors.Is(err, bulk.ErrNoChange) {
			return s, nil
		} else if err != nil {
			return s, err
		}
		if s, err = e.store.PutSchedule(ctx, s); !errors.Is(err, bulk.ErrConflict) {
			break
		}
	}
	return s, err
}

// PauseSchedule starts no further run until the schedule is resumed. Started runs
// continue.
func (e *Engine) PauseSchedule(ctx context.Context, name string) (bulk.Schedule, error) {
	return e.changeSchedule(ctx, name, func(s *bulk.Schedule) error {
		if s.Paused {
			return bulk.ErrNoChange
		}
		s.Paused = true
		return plan(s, time.Now())
	})
}

// ResumeSchedule continues a paused schedule, at its next time. Runs that were due during
// the pause are not caught up.
func (e *Engine) ResumeSchedule(ctx context.Context, name string) (bulk.Schedule, error) {
	defer e.schedule.Wake()
	return e.changeSchedule(ctx, name, func(s *bulk.Schedule) error {
		if !s.Paused {
			return bulk.ErrNoChange
		}
		s.Paused = false
		return plan(s, time.Now())
	})
}

// RemoveSchedule removes a schedule, or returns ErrNoSchedule. Started runs continue; a
// run that has begun to start is completed first.
func (e *Engine) RemoveSchedule(ctx context.Context, name string) error {
	// Marked first, so that no run begins before the removal.
	_, err := e.changeSchedule(ctx, name, func(s *bulk.Schedule) error {
		s.Removing = true
		return nil
	})
	if err != nil {
		return err
	}
	if err = e.store.RemoveSchedule(ctx, name); errors.Is(err, bulk.ErrNoSchedule) {
		return nil // a scheduler has completed it
	}
	return err
}

// RunNow starts a run at once, also of a paused schedule, and returns its action. The
// times of other runs do not change. If the previous run has not finished and runs must
// not overlap, it returns an *UnfinishedError; if the run cannot start, a *RunError.
func (e *Engine) RunNow(ctx context.Context, name string) (bulk.Action, error) {
	asked := ""
	s, err := e.changeSchedule(ctx, name, func(s *bulk.Schedule) error {
		overlaps, err := e.overlaps(ctx, s)
		if err == nil && overlaps {
			err = &bulk.UnfinishedError{Schedule: name, Action: s.LastAction}
		}
		at := time.Now().UTC().Truncate(time.Millisecond)
		for at.Nanosecond() == 0 || !at.After(s.LastRunAt) {
			at = maxTime(at, s.LastRunAt).Truncate(time.Millisecond).Add(time.Millisecond)
		}
		s.Pending, asked = at, bulk.RunID(name, at)
		return err
	})
	if err != nil {
		return bulk.Action{}, err
	}
	if s, err = e.finishRun(ctx, s); errors.Is(err, bulk.ErrConflict) {
		s, err = e.Schedule(ctx, name) // A scheduler was faster.
	}
	if err != nil {
		return bulk.Action{}, err
	}
	action, err := e.store.Action(ctx, asked)
	if errors.Is(err, bulk.ErrNotFound) {
		err = &bulk.RunError{Schedule: name, Why: s.LastError}
	}
	return action, err
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// asksSame reports whether two normalized schedules have equal requested fields.
func asksSame(s, other *bulk.Schedule) bool {
	return s.Name == other.Name && s.Cron == other.Cron && s.TimeZone == other.TimeZone && s.Overlap == other.Overlap &&
		s.CatchUp == other.CatchUp && s.Spec.Equal(other.Spec) && slices.EqualFunc(s.Jobs, other.Jobs, bytes.Equal)
}
