package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/bulk/engine"
	"github.com/sluice-project/sluice/internal/edge"
)

func (s *server) registerEnqueue() {
	edge.Register(s.part, edge.Operation{
		ID: "enqueue-job", Route: "POST /v1/jobs", Summary: "Enqueue one job", Status: http.StatusCreated,
		Description: "The job is durable when this answers, and can start at once. Jobs that are alike share an action, " +
			"a stream, for a window of time. A repeated request enqueues the job again, unless it has a unique key.",
		Answers: []edge.Answer{{Status: http.StatusOK, Description: "There is a job with this key.", Of: wire.Enqueued{}}},
		MaxBody: maxNewJob,
	}, s.enqueue)
}

type outEnqueued struct {
	Status int
	Body   wire.Enqueued
}

func (s *server) enqueue(ctx context.Context, in *object[wire.NewJob]) (*outEnqueued, error) {
	job, err := newJob(&in.Body)
	if err != nil {
		return nil, refuse("", err)
	}
	enqueued, err := s.engine.Enqueue(ctx, job)
	switch {
	case errors.Is(err, engine.ErrBusy):
		return nil, busy(err.Error() + ": it was not enqueued, send it again")
	case errors.Is(err, bulk.ErrUnavailable) && job.Unique == "":
		return nil, edge.Refuse(http.StatusServiceUnavailable, wire.CodeUnavailable,
			"the store does not answer now: the job may have been enqueued, and a retry may enqueue it twice; with a unique key it does not").RetryAfter(time.Second)
	case err != nil:
		return nil, refuse(enqueued.Action, err)
	}
	out := &outEnqueued{Status: http.StatusCreated, Body: wire.Enqueued{
		ID: enqueued.ID(), Action: enqueued.Action, Index: enqueued.Index, Duplicate: enqueued.Duplicate,
	}}
	if enqueued.Duplicate {
		out.Status = http.StatusOK
	}
	return out, nil
}

func newJob(n *wire.NewJob) (engine.NewJob, error) {
	class, err := bulk.ParseClass(n.Class)
	if err != nil {
		return engine.NewJob{}, &bulk.SpecError{Field: "class", Why: err.Error()}
	}
	job := engine.NewJob{
		Tenant: n.Tenant, Type: n.Type, Payload: n.Payload, Class: class, Key: n.Key, Cost: n.Cost, MaxAttempts: n.MaxAttempts,
		Timeout: milliseconds(n.TimeoutMS), Unique: n.Unique, UniqueFor: milliseconds(n.UniqueForMS),
		KeepResults: n.KeepResults,
	}
	if n.Target != nil {
		job.Target = &bulk.Target{Name: n.Target.Name, URL: n.Target.URL}
	}
	if n.RunAt != nil {
		job.RunAt = n.RunAt.UTC()
	}
	return job, nil
}
