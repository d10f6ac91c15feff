package api

import (
	"context"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

// Engine is what the edge needs of bulk's engine. See bulk.Store and bulk.Action
// for what each method promises.
type Engine interface {
	Create(ctx context.Context, spec bulk.Spec) (action bulk.Action, created bool, err error)
	Append(ctx context.Context, id string, offset int64, payloads [][]byte) (received int64, err error)
	Seal(ctx context.Context, id string, total int64) (bulk.Action, error)
	Action(ctx context.Context, id string) (bulk.Action, error)
	Actions(ctx context.Context, filter bulk.ActionFilter) ([]bulk.Action, error)
	Pause(ctx context.Context, id string) (bulk.Action, error)
	Resume(ctx context.Context, id string) (bulk.Action, error)
	Cancel(ctx context.Context, id string) (bulk.Action, error)
	// Watch calls f at once and then on every change, looked for at each
	// interval, until the action is final, f fails or ctx ends.
	Watch(ctx context.Context, id string, interval time.Duration, f func(bulk.Action) error) error
	// EstimatedFinish is zero if it is unknown.
	EstimatedFinish(id string) time.Time

	DeadLetters(ctx context.Context, id string, from int64, limit int) ([]bulk.DeadLetter, error)
	// Replay makes a new action of the dead letters of a finished one.
	Replay(ctx context.Context, id string) (bulk.Action, error)

	// Lease waits up to wait for the first job.
	Lease(ctx context.Context, request bulk.LeaseRequest, wait time.Duration) ([]bulk.Job, error)
	// Settle returns a verdict for each report, in their order.
	Settle(ctx context.Context, reports []bulk.Report) ([]bulk.Verdict, error)

	// PutSchedule tells whether the schedule is a new one.
	PutSchedule(ctx context.Context, schedule bulk.Schedule) (stored bulk.Schedule, created bool, err error)
	Schedule(ctx context.Context, name string) (bulk.Schedule, error)
	Schedules(ctx context.Context) ([]bulk.Schedule, error)
	RemoveSchedule(ctx context.Context, name string) error
	PauseSchedule(ctx context.Context, name string) (bulk.Schedule, error)
	ResumeSchedule(ctx context.Context, name string) (bulk.Schedule, error)
	// RunNow returns the action of the run.
	RunNow(ctx context.Context, name string) (bulk.Action, error)

	Settings(ctx context.Context) (bulk.Settings, error)
	Set(ctx context.Context, change bulk.SettingsChange) error
	// FoundRate is the rate that was found of a target which is set to auto.
	FoundRate(ctx context.Context, target string) (float64, error)
}
