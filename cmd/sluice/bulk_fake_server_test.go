package main

import (
	"context"
	"errors"
	"net"
	"net/url"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api/wire"
)

// fakeServer answers from a run on paper.
type fakeServer struct {
	*fakeRunner
	// scheduleServer is nil: the commands on schedules are tried on bulk itself.
	scheduleServer
	base string
	// breakAfter fails an upload once, after so many Appends.
	breakAfter int64
	appends    atomic.Int64
	// gone is that no server listens.
	gone bool
	// targets are the limits that were set; 41.5 is found of every rate.
	targets map[string]wire.TargetLimits
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

func (f *fakeServer) connect(base string) (server, error) {
	f.base = base
	return f, nil
}

func wireAction(a bulk.Action) wire.Action {
	w := wire.Action{
		ID: a.ID, Tenant: a.Tenant, Type: a.Type, Class: a.Class.String(), Status: string(a.Status), Paused: a.Paused,
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

func (f *fakeServer) Reach(context.Context) error {
	if f.gone {
		return &url.Error{Op: "Get", URL: f.base, Err: &net.OpError{
			Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED),
		}}
	}
	return nil
}

func (f *fakeServer) Create(ctx context.Context, body wire.NewAction) (wire.Created, error) {
	if a, err := f.fakeRunner.Action(ctx, body.ID); body.ID != "" && err == nil {
		return wire.Created{ID: a.ID, Status: string(a.Status)}, nil
	}
	class, err := bulk.ParseClass(body.Class)
	if err != nil {
		return wire.Created{}, err
	}
	spec := bulk.Spec{ID: body.ID, Tenant: body.Tenant, Type: body.Type, Class: class, Aggregate: body.Aggregate, Events: body.Events}
	if body.Target != nil {
		spec.Target = &bulk.Target{URL: body.Target.URL}
	}
	a, _, err := f.fakeRunner.Create(ctx, spec)
	return wire.Created{ID: a.ID, Status: string(a.Status)}, err
}

func (f *fakeServer) Append(ctx context.Context, id string, offset int64, payloads [][]byte) (int64, error) {
	if f.appends.Add(1) == f.breakAfter {
		return 0, errors.New("the connection broke")
	}
	return f.fakeRunner.Append(ctx, id, offset, payloads)
}

func (f *fakeServer) Seal(ctx context.Context, id string, total int64) (wire.Action, error) {
	a, err := f.fakeRunner.Seal(ctx, id, total)
	return wireAction(a), err
}

func (f *fakeServer) Action(ctx context.Context, id string) (wire.Action, error) {
	a, err := f.fakeRunner.Action(ctx, id)
	return wireAction(a), err
}

func (f *fakeServer) Actions(ctx context.Context, tenant, _, after string, limit int) (wire.Actions, error) {
	all, err := f.fakeRunner.Actions(ctx, bulk.ActionFilter{})
	page := wire.Actions{}
	passed := after == ""
	for i := range all {
		if passed && (tenant == "" || all[i].Tenant == tenant) {
			if len(page.Actions) == limit {
				page.Next = &page.Actions[limit-1].ID
				break
			}
			page.Actions = append(page.Actions, wireAction(all[i]))
		}
		passed = passed || all[i].ID == after
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

func (f *fakeServer) wireMove(id string, kind bulk.MoveKind) (wire.Action, error) {
	a, err := f.move(id, bulk.Move{Kind: kind})
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

func (f *fakeServer) Failures(ctx context.Context, id string, from int64, limit int) (wire.Failures, error) {
	letters, err := f.DeadLetters(ctx, id, from, limit+1)
	page := wire.Failures{}
	for i, letter := range letters {
		if i == limit {
			page.Next = &letter.Index
			break
		}
		page.Failures = append(page.Failures, wire.DeadLetter{
			ID: bulk.JobID(id, letter.Index), Action: id, Index: letter.Index, Payload: letter.Payload,
			Error: letter.Error, Attempts: letter.Attempts, FailedAt: time.Date(2025, 1, 2, 3, 4, 5, 0, time.UTC),
		})
	}
	return page, err
}

func (f *fakeServer) Replay(ctx context.Context, id string) (wire.Action, error) {
	a, err := f.Action(ctx, id)
	a.ID, a.Received = id+"-again", a.Failed
	return a, err
}
