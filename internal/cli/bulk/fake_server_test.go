package bulk

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/bulk/client"
	"github.com/sluice-project/sluice/bulk/engine"
	"github.com/sluice-project/sluice/internal/cli/bulk/localtest"
)

// fakeServer simulates a server.
type fakeServer struct {
	*localtest.Fake
	// scheduleServer is nil: the commands on schedules are tested against bulk itself.
	scheduleServer
	// breakAfter makes an upload fail once, after that many Appends.
	breakAfter int64
	appends    atomic.Int64
	// targets are the limits that were set. The found rate of every target is 41.5.
	targets map[string]wire.TargetLimits
	// tenants are the settings that were set.
	tenants map[string]wire.Tenant
}

func (f *fakeServer) Tenant(_ context.Context, name string) (wire.Tenant, error) {
	tenant := f.tenants[name]
	tenant.Weight = cmp.Or(tenant.Weight, 1)
	return tenant, nil
}

func (f *fakeServer) SetTenant(ctx context.Context, name string, tenant wire.Tenant) (wire.Tenant, error) {
	if f.tenants == nil {
		f.tenants = map[string]wire.Tenant{}
	}
	f.tenants[name] = tenant
	return f.Tenant(ctx, name)
}

func (f *fakeServer) Target(_ context.Context, name string) (wire.TargetLimits, error) {
	limits := f.targets[name]
	if limits.RequestsPerSecond == wire.Auto {
		limits.FoundRequestsPerSecond = 41.5
	}
	return limits, nil
}

func (f *fakeServer) SetTarget(ctx context.Context, name string, limits wire.TargetLimits) (wire.TargetLimits, error) {
	if f.targets == nil {
		f.targets = map[string]wire.TargetLimits{}
	}
	f.targets[name] = limits
	return f.Target(ctx, name)
}

// Enqueue is tested against bulk itself.
func (f *fakeServer) Enqueue(context.Context, wire.NewJob) (wire.Enqueued, error) {
	return wire.Enqueued{}, errors.ErrUnsupported
}

func (f *fakeServer) connect(string, *http.Client) (server, error) { return f, nil }

func wireAction(a bulk.Action) wire.Action {
	w := wire.Action{
		ID: a.ID, Tenant: a.Tenant, Type: a.Type, Class: a.Class.String(), Key: a.Key, Status: string(a.Status), Paused: a.Paused,
		Received: a.Received, Pending: a.Pending, InFlight: a.InFlight, Succeeded: a.Succeeded, Failed: a.Failed,
		Canceled: a.Canceled, Throttled: a.Throttled, Retried: a.Retried, Result: a.Result, Error: a.Error, CreatedAt: a.CreatedAt,
	}
	if a.Status != bulk.Created {
		w.Total = &a.Total
	}
	if a.Target != nil {
		w.Target = &wire.Target{Name: a.Target.Name, URL: a.Target.URL}
	}
	if !a.FinishedAt.IsZero() {
		w.FinishedAt = &a.FinishedAt
	}
	return w
}

func (f *fakeServer) Reach(context.Context) error { return nil }

func (f *fakeServer) Create(ctx context.Context, body wire.NewAction) (wire.Created, error) {
	if a, err := f.Fake.Action(ctx, body.ID); body.ID != "" && err == nil {
		return wire.Created{ID: a.ID, Status: string(a.Status)}, nil
	}
	class, err := bulk.ParseClass(body.Class)
	if err != nil {
		return wire.Created{}, err
	}
	spec := bulk.Spec{ID: body.ID, Tenant: body.Tenant, Type: body.Type, Class: class, Key: body.Key, Aggregate: body.Aggregate, Events: body.Events}
	if body.Target != nil {
		spec.Target = &bulk.Target{URL: body.Target.URL}
	}
	a, _, err := f.Fake.Create(ctx, spec)
	return wire.Created{ID: a.ID, Status: string(a.Status)}, err
}

func (f *fakeServer) UploadChunk(ctx context.Context, id string, offset int64, payloads [][]byte) (int64, error) {
	if f.appends.Add(1) == f.breakAfter {
		return 0, errors.New("the connection broke")
	}
	return f.Fake.Append(ctx, id, offset, payloads)
}

func (f *fakeServer) Seal(ctx context.Context, id string, total int64) (wire.Action, error) {
	a, err := f.Fake.Seal(ctx, id, total)
	return wireAction(a), err
}

func (f *fakeServer) Action(ctx context.Context, id string) (wire.Action, error) {
	a, err := f.Fake.Action(ctx, id)
	return wireAction(a), err
}

func (f *fakeServer) Actions(ctx context.Context, filter client.ActionFilter) (wire.Actions, error) {
	all, err := f.Fake.Actions(ctx, bulk.ActionFilter{})
	page := wire.Actions{}
	passed := filter.After == ""
	for i := range all {
		if passed && (filter.Tenant == "" || all[i].Tenant == filter.Tenant) {
			if len(page.Actions) == filter.Limit {
				page.Next = &page.Actions[filter.Limit-1].ID
				break
			}
			page.Actions = append(page.Actions, wireAction(all[i]))
		}
		passed = passed || all[i].ID == filter.After
	}
	return page, err
}

func (f *fakeServer) Watch(ctx context.Context, id string, see func(wire.Action) error) error {
	for {
		a, err := f.Action(ctx, id)
		if err != nil {
			return err
		}
		if err := see(a); err != nil || a.FinishedAt != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(500 * time.Millisecond):
		}
	}
}

func (f *fakeServer) wireMove(id string, kind bulk.TransitionKind) (wire.Action, error) {
	a, err := f.Move(id, bulk.Transition{Kind: kind})
	return wireAction(a), err
}

func (f *fakeServer) Pause(_ context.Context, id string) (wire.Action, error) {
	return f.wireMove(id, bulk.Pause)
}

func (f *fakeServer) Resume(_ context.Context, id string) (wire.Action, error) {
	return f.wireMove(id, bulk.Resume)
}

func (f *fakeServer) Cancel(_ context.Context, id string) (wire.Action, error) {
	return f.wireMove(id, bulk.Cancel)
}

// Change changes three actions at a time, of eight that match; the last of them is not changed.
func (f *fakeServer) Change(_ context.Context, change wire.Change) (wire.Changed, error) {
	next := change.After + "3"
	switch {
	case change.Tenant == "nobody":
		return wire.Changed{}, nil
	case change.After == "33":
		return wire.Changed{Matched: 2, Changed: 1, Jobs: 1000}, nil
	}
	return wire.Changed{Matched: 3, Changed: 3, Jobs: 6000, Next: &next}, nil
}

// Streams are the actions of low class.
func (f *fakeServer) Streams(ctx context.Context, filter client.ActionFilter) (wire.Actions, error) {
	page, err := f.Actions(ctx, filter)
	page.Actions = slices.DeleteFunc(page.Actions, func(a wire.Action) bool { return a.Class != "low" })
	return page, err
}

// Waits has a page that is empty, and then one of an action.
func (f *fakeServer) Waits(ctx context.Context, tenant, after string, limit int) (wire.WaitingActions, error) {
	if after == "" && limit > 1 {
		return wire.WaitingActions{Next: new("x")}, nil
	}
	job, err := f.Job(ctx, "first", 0)
	return wire.WaitingActions{Waits: []wire.WaitingAction{{Tenant: cmp.Or(tenant, "acme"), Type: "echo", Waiting: 1200, Job: job}}}, err
}

func (f *fakeServer) Workers(_ context.Context, after string, _ int) (wire.Workers, error) {
	if after == "" {
		return wire.Workers{Workers: []wire.Workforce{{Type: "echo", Workers: 12, Here: 10, Waiting: 1300, Ready: 4, InFlight: 10}}, Next: new("echo")}, nil
	}
	return wire.Workers{Workers: []wire.Workforce{{Type: "mail", Ready: 7, Idle: true}, {Type: "sms"}}}, nil
}

// Job explains that job 0 waits to be retried, and that the others wait for the tenant's limit.
func (f *fakeServer) Job(ctx context.Context, id string, index int64) (wire.JobState, error) {
	a, err := f.Action(ctx, id)
	if err == nil && index >= a.Received {
		err = &bulk.NoJobError{ID: id, Index: index, Received: a.Received}
	}
	soon := time.Now().Add(90 * time.Second)
	job := wire.JobState{
		ID: bulk.JobID(id, index), Action: id, Index: index, State: "non_ready", Attempts: new(2),
		Reason: new("transient_error"), Explanation: new("its last attempt failed"), EarliestStart: &soon,
	}
	if index > 0 {
		job.State, job.Attempts, job.Place, job.EarliestStart = "pending", new(0), &index, nil
		job.Reason, job.Explanation = new("tenant_limit"), new("the limit of its tenant is used up")
		job.HeldBy = []wire.TenantJobs{{Tenant: a.Tenant, Jobs: 1200}, {Tenant: "b", Jobs: 3}}
	}
	return job, err
}

func (f *fakeServer) FirstJob(ctx context.Context, id string) (wire.JobState, error) {
	return f.Job(ctx, id, 0)
}

func (f *fakeServer) DeadLetters(ctx context.Context, filter client.DeadLetterFilter) (page wire.DeadLetters, err error) {
	found, err := engine.FindLetters(ctx, f.Fake, engine.LetterFilter{
		FailureFilter: bulk.FailureFilter(filter.FailureFilter), Action: filter.Action, Tenant: filter.Tenant, Type: filter.Type,
		After: filter.After, Limit: filter.Limit,
	})
	for _, letter := range found.Found {
		page.DeadLetters = append(page.DeadLetters, wire.DeadLetter{
			ID: bulk.JobID(letter.Action, letter.Index), Action: letter.Action, Index: letter.Index, Payload: letter.Payload,
			Error: letter.Error, Cause: bulk.Cause(letter.Error), Attempts: letter.Attempts, FailedAt: letter.FailedAt,
		})
	}
	if found.Next != "" {
		page.Next = &found.Next
	}
	return page, err
}

func (f *fakeServer) Replay(ctx context.Context, replay wire.Replay) (wire.Action, error) {
	a, err := f.Action(ctx, replay.Action)
	a.ID, a.Received = replay.Action+"-again", a.Failed
	return a, err
}
