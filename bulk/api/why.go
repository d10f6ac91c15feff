package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/bulk/engine"
	"github.com/sluice-project/sluice/internal/edge"
)

const (
	// maxExplained bounds the requests that explain jobs at a time, since each reads the backlog
	// of all tenants, for each job; explainWait is how long a request waits for a place.
	maxExplained = 2
	explainWait  = 5 * time.Second
)

func (s *server) registerWhy() {
	edge.Register(s.part, edge.Operation{
		ID: "get-job", Route: "GET /v1/actions/{id}/jobs/{index}", Summary: "Where one job is, and why it does not run",
		Description: "Results are kept where the action has keep_results; otherwise only events of jobs have them.",
	}, s.why)
}

type inJob struct {
	ID    string `path:"id" doc:"The action's id."`
	Index string `path:"index" pattern:"^(first|[0-9]{1,18})$" patternDescription:"an index from 0, or first" doc:"The job's place in its action, from 0; or first, for the first one that has not ended."`
}

func (s *server) why(ctx context.Context, in *inJob) (*object[wire.JobState], error) {
	index := bulk.FirstJob
	if in.Index != wire.FirstJob {
		var err error
		if index, err = strconv.ParseInt(in.Index, 10, 64); err != nil {
			return nil, edge.Invalid("index", "want an index from 0, or first")
		}
	}
	leave, err := s.explaining(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	x, err := s.engine.Why(ctx, in.ID, index)
	var missing *bulk.NoJobError
	if errors.As(err, &missing) {
		return nil, edge.Refuse(http.StatusNotFound, wire.CodeNotFound, missing.Error())
	}
	if err != nil {
		return nil, refuse(in.ID, err)
	}
	state := s.jobState(&x)
	state.Result, err = bulk.ResultJSON(x.Job.Result)
	return &object[wire.JobState]{Body: state}, err
}

// explaining waits for a place to explain jobs, which leave gives back.
func (s *server) explaining(ctx context.Context) (leave func(), err error) {
	leave, ok := s.explained.enter(ctx, "")
	if !ok {
		return nil, edge.Refuse(http.StatusServiceUnavailable, wire.CodeBusy,
			fmt.Sprintf("%d requests explain why jobs wait, which is the most: try again", maxExplained)).RetryAfter(time.Second)
	}
	return leave, nil
}

// jobState returns the JSON object of an explanation.
func (s *server) jobState(x *engine.Explanation) wire.JobState {
	object := wire.JobState{
		ID: bulk.JobID(x.Action.ID, x.Job.Index), Action: x.Action.ID, Index: x.Job.Index, State: string(x.Job.State),
		Attempts: known(x.Job.Attempts), Error: x.Job.Error, ResultTruncated: x.Job.ResultTruncated, HeldBy: []wire.TenantJobs{},
		Place: known(x.Place), EarliestStart: optional(x.EarliestStart),
	}
	// The counts of an action have these as non-ready too.
	if x.Job.State == bulk.StatePending && s.engine.HeldBack(&x.Action) > 0 {
		object.State = string(bulk.StateNonReady)
	}
	switch x.Job.State {
	case bulk.StateInFlight:
		object.Deadline = optional(x.Job.At)
	case bulk.StateFailed:
		object.FailedAt = optional(x.Job.At)
	}
	if x.Reason != "" {
		object.Reason, object.Explanation = &x.Reason, &x.Text
	}
	for _, held := range x.HeldBy {
		object.HeldBy = append(object.HeldBy, wire.TenantJobs(held))
	}
	return object
}

// known returns a number that is null where the store does not have it.
func known[N int | int64](n N) *N {
	if n == bulk.NotKnown {
		return nil
	}
	return &n
}
