package api

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/bulk/engine"
	"github.com/sluice-project/sluice/internal/edge"
)

// scoped is an engine as the sender of a request sees it: actions and schedules of tenants beyond the sender's limits
// do not exist, and nothing is created for them; jobs of types beyond them are not leased. Lists are filtered where
// their pages are made, by sees.
type scoped struct{ Engine }

// sees reports whether a tenant is within the limits of the sender.
func sees(ctx context.Context, tenant string) bool { return access.From(ctx).Tenant(tenant) }

// limited reports whether the sender has some tenants only.
func limited(ctx context.Context) bool {
	p := access.From(ctx)
	return p != nil && len(p.Tenants) > 0
}

// mayChange returns the problem of creating or changing something of a tenant beyond the limits.
func mayChange(ctx context.Context, tenant string) error {
	if sees(ctx, tenant) {
		return nil
	}
	return edge.Refuse(http.StatusForbidden, wire.CodeForbidden, fmt.Sprintf("the token %s is not for the tenant %q: name one that it is for", access.From(ctx).Name, tenant))
}

// hide is [edge.HideCursor], and reveal [edge.RevealCursor], for those who have some tenants only.
func hide(ctx context.Context, cursor *string) *string {
	return edge.HideCursor(ctx, limited(ctx), cursor)
}

func reveal(ctx context.Context, cursor string) (string, error) {
	return edge.RevealCursor(ctx, limited(ctx), cursor)
}

// reach returns bulk.ErrNotFound for an action beyond the limits.
func (s scoped) reach(ctx context.Context, id string) error {
	if !limited(ctx) {
		return nil // no read for those who see all
	}
	_, err := s.Action(ctx, id)
	return err
}

// Action implements Engine.
func (s scoped) Action(ctx context.Context, id string) (bulk.Action, error) {
	action, err := s.Engine.Action(ctx, id)
	if err == nil && !sees(ctx, action.Tenant) {
		return bulk.Action{}, bulk.ErrNotFound
	}
	return action, err
}

// about makes a call about an action or a schedule that the caller can reach.
func about[T any](ctx context.Context, id string, reach func(context.Context, string) error, call func(context.Context, string) (T, error)) (T, error) {
	if err := reach(ctx, id); err != nil {
		var none T
		return none, err
	}
	return call(ctx, id)
}

// Pause implements Engine.
func (s scoped) Pause(ctx context.Context, id string) (bulk.Action, error) {
	return about(ctx, id, s.reach, s.Engine.Pause)
}

// Resume implements Engine.
func (s scoped) Resume(ctx context.Context, id string) (bulk.Action, error) {
	return about(ctx, id, s.reach, s.Engine.Resume)
}

// Cancel implements Engine.
func (s scoped) Cancel(ctx context.Context, id string) (bulk.Action, error) {
	return about(ctx, id, s.reach, s.Engine.Cancel)
}

// Replay implements Engine.
func (s scoped) Replay(ctx context.Context, id string, only bulk.FailureFilter) (bulk.Action, error) {
	return about(ctx, id, s.reach, func(ctx context.Context, id string) (bulk.Action, error) { return s.Engine.Replay(ctx, id, only) })
}

// Append implements Engine.
func (s scoped) Append(ctx context.Context, id string, offset int64, payloads [][]byte) (received int64, err error) {
	return about(ctx, id, s.reach, func(ctx context.Context, id string) (int64, error) { return s.Engine.Append(ctx, id, offset, payloads) })
}

// Seal implements Engine.
func (s scoped) Seal(ctx context.Context, id string, total int64) (bulk.Action, error) {
	return about(ctx, id, s.reach, func(ctx context.Context, id string) (bulk.Action, error) { return s.Engine.Seal(ctx, id, total) })
}

// DeadLetters implements Engine.
func (s scoped) DeadLetters(ctx context.Context, id string, from int64, limit int) ([]bulk.DeadLetter, error) {
	return about(ctx, id, s.reach, func(ctx context.Context, id string) ([]bulk.DeadLetter, error) {
		return s.Engine.DeadLetters(ctx, id, from, limit)
	})
}

// Why implements Engine. It does not name other tenants.
func (s scoped) Why(ctx context.Context, id string, index int64) (engine.Explanation, error) {
	x, err := about(ctx, id, s.reach, func(ctx context.Context, id string) (engine.Explanation, error) { return s.Engine.Why(ctx, id, index) })
	x.HeldBy = slices.DeleteFunc(x.HeldBy, func(held engine.TenantJobs) bool { return !sees(ctx, held.Tenant) })
	return x, err
}

// Watch implements Engine.
func (s scoped) Watch(ctx context.Context, id string, interval time.Duration, f func(bulk.Action) error) error {
	if err := s.reach(ctx, id); err != nil {
		return err
	}
	return s.Engine.Watch(ctx, id, interval, f)
}

// Create implements Engine.
func (s scoped) Create(ctx context.Context, spec bulk.Spec) (bulk.Action, bool, error) {
	if err := mayChange(ctx, spec.Tenant); err != nil {
		return bulk.Action{}, false, err
	}
	return s.Engine.Create(ctx, spec)
}

// Enqueue implements Engine.
func (s scoped) Enqueue(ctx context.Context, job engine.NewJob) (engine.Enqueued, error) {
	if err := mayChange(ctx, job.Tenant); err != nil {
		return engine.Enqueued{}, err
	}
	return s.Engine.Enqueue(ctx, job)
}

// Change implements Engine. Those who do not see all tenants name one, or an action.
func (s scoped) Change(ctx context.Context, change engine.Change) (engine.Changed, error) {
	err := mayChange(ctx, change.Tenant)
	if change.Action != "" {
		err = s.reach(ctx, change.Action)
	}
	if err != nil {
		return engine.Changed{}, err
	}
	if change.After, err = reveal(ctx, change.After); err != nil {
		return engine.Changed{}, err
	}
	done, err := s.Engine.Change(ctx, change)
	done.Next = *hide(ctx, &done.Next)
	return done, err
}

// Lease implements Engine.
func (s scoped) Lease(ctx context.Context, request bulk.LeaseRequest, wait time.Duration) ([]bulk.Job, error) {
	for _, name := range request.Types {
		if p := access.From(ctx); !p.Type(name) {
			return nil, edge.Refuse(http.StatusForbidden, wire.CodeForbidden, fmt.Sprintf("the token %s is not for jobs of type %q", p.Name, name))
		}
	}
	return s.Engine.Lease(ctx, request, wait)
}

// Schedule implements Engine.
func (s scoped) Schedule(ctx context.Context, name string) (bulk.Schedule, error) {
	schedule, err := s.Engine.Schedule(ctx, name)
	if err == nil && !sees(ctx, schedule.Spec.Tenant) {
		return bulk.Schedule{}, bulk.ErrNoSchedule
	}
	return schedule, err
}

// Schedules implements Engine.
func (s scoped) Schedules(ctx context.Context) ([]bulk.Schedule, error) {
	all, err := s.Engine.Schedules(ctx)
	return slices.DeleteFunc(slices.Clone(all), func(schedule bulk.Schedule) bool { return !sees(ctx, schedule.Spec.Tenant) }), err
}

// PutSchedule implements Engine.
func (s scoped) PutSchedule(ctx context.Context, schedule bulk.Schedule) (stored bulk.Schedule, created bool, err error) {
	if err := mayChange(ctx, schedule.Spec.Tenant); err != nil {
		return bulk.Schedule{}, false, err
	}
	if limited(ctx) {
		if had, err := s.Engine.Schedule(ctx, schedule.Name); err == nil && !sees(ctx, had.Spec.Tenant) {
			return bulk.Schedule{}, false, edge.Refuse(http.StatusForbidden, wire.CodeForbidden, "a schedule of another tenant has this name: choose another")
		}
	}
	return s.Engine.PutSchedule(ctx, schedule)
}

// reachSchedule is reach for a schedule.
func (s scoped) reachSchedule(ctx context.Context, name string) error {
	if !limited(ctx) {
		return nil // no read for those who see all
	}
	_, err := s.Schedule(ctx, name)
	return err
}

// PauseSchedule implements Engine.
func (s scoped) PauseSchedule(ctx context.Context, name string) (bulk.Schedule, error) {
	return about(ctx, name, s.reachSchedule, s.Engine.PauseSchedule)
}

// ResumeSchedule implements Engine.
func (s scoped) ResumeSchedule(ctx context.Context, name string) (bulk.Schedule, error) {
	return about(ctx, name, s.reachSchedule, s.Engine.ResumeSchedule)
}

// RunNow implements Engine.
func (s scoped) RunNow(ctx context.Context, name string) (bulk.Action, error) {
	return about(ctx, name, s.reachSchedule, s.Engine.RunNow)
}

// RemoveSchedule implements Engine.
func (s scoped) RemoveSchedule(ctx context.Context, name string) error {
	_, err := about(ctx, name, s.reachSchedule, func(ctx context.Context, name string) (struct{}, error) {
		return struct{}{}, s.Engine.RemoveSchedule(ctx, name)
	})
	return err
}
