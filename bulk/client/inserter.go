package client

import (
	"context"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api/wire"
)

// Inserter creates actions on the server for package bulk's Insert, InsertMany and
// InsertFrom, as an Engine does in its own process. Errors of the server are *Error.
type Inserter struct{ client *Client }

var _ bulk.Inserter = (*Inserter)(nil)

// Inserter returns an Inserter for the client's server.
func (c *Client) Inserter() *Inserter { return &Inserter{c} }

// Create implements bulk.Inserter. Created is true only if the spec has no ID; otherwise the
// client cannot know.
func (in *Inserter) Create(ctx context.Context, spec bulk.Spec) (bulk.Action, bool, error) {
	made, err := in.client.Create(ctx, NewAction(spec))
	if err != nil {
		return bulk.Action{}, false, err
	}
	if spec.ID == "" {
		spec.ID = made.ID
		return bulk.Action{Spec: spec, Status: bulk.Status(made.Status)}, true, nil
	}
	action, err := in.client.Action(ctx, made.ID)
	return LocalAction(&action), false, err
}

// Append implements bulk.Inserter.
func (in *Inserter) Append(ctx context.Context, id string, offset int64, payloads [][]byte) (int64, error) {
	return in.client.UploadChunk(ctx, id, offset, payloads)
}

// Seal implements bulk.Inserter.
func (in *Inserter) Seal(ctx context.Context, id string, total int64) (bulk.Action, error) {
	action, err := in.client.Seal(ctx, id, total)
	return LocalAction(&action), err
}

// NewAction returns the API's request for an action of a spec. It rounds a timeout up to
// milliseconds.
func NewAction(spec bulk.Spec) wire.NewAction {
	action := wire.NewAction{
		ID: spec.ID, Tenant: spec.Tenant, Type: spec.Type, Class: spec.Class.String(), Key: spec.Key, Cost: spec.Cost, Aggregate: spec.Aggregate,
		MaxAttempts: spec.MaxAttempts, TimeoutMS: (spec.Timeout + time.Millisecond - 1).Milliseconds(),
		FailAbove: spec.FailAbove, Events: spec.Events, KeepResults: spec.KeepResults,
	}
	if spec.Target != nil {
		action.Target = &wire.Target{Name: spec.Target.Name, URL: spec.Target.URL}
	}
	if !spec.RunAt.IsZero() {
		action.RunAt = &spec.RunAt
	}
	return action
}

// LocalAction converts the API's form of an action to package bulk's. Fields that the API
// does not have are empty, and an unknown class is Normal.
func LocalAction(a *wire.Action) bulk.Action {
	local := bulk.Action{
		Spec:   bulk.Spec{ID: a.ID, Tenant: a.Tenant, Type: a.Type, Key: a.Key},
		Status: bulk.Status(a.Status), Paused: a.Paused, Open: a.Open, CreatedAt: a.CreatedAt, Result: a.Result, Error: a.Error,
		Counts: bulk.Counts{
			Received: a.Received, Pending: a.Pending, Ready: a.Ready, InFlight: a.InFlight,
			Succeeded: a.Succeeded, Failed: a.Failed, Canceled: a.Canceled, Throttled: a.Throttled, Retried: a.Retried,
		},
	}
	if class, err := bulk.ParseClass(a.Class); err == nil {
		local.Class = class
	}
	if a.Target != nil {
		local.Target = &bulk.Target{Name: a.Target.Name, URL: a.Target.URL}
	}
	local.NonReady[bulk.RateLimited] = a.NonReadyReasons.RateLimited
	local.NonReady[bulk.APIThrottled] = a.NonReadyReasons.APIThrottled
	local.NonReady[bulk.TransientError] = a.NonReadyReasons.TransientError
	local.NonReady[bulk.KeyLimited] = a.NonReadyReasons.KeyLimited
	if a.RunAt != nil {
		local.RunAt = *a.RunAt
	}
	if a.FinishedAt != nil {
		local.FinishedAt = *a.FinishedAt
	}
	if a.Total != nil {
		local.Total = *a.Total
	}
	return local
}
