package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/internal/edge"
)

// inSchedule is a request about one schedule.
type inSchedule struct {
	Name string `path:"name" pattern:"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$" doc:"1 to 64 of letters, digits and . _ -"`
}

type inPutSchedule struct {
	Name string `path:"name" pattern:"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$" doc:"1 to 64 of letters, digits and . _ -"`
	Body wire.NewSchedule
}

type outPutSchedule struct {
	Status int
	Body   wire.Schedule
}

func (s *server) registerSchedules() {
	edge.Register(s.part, edge.Operation{
		ID: "put-schedule", Route: "PUT /v1/schedules/{name}", Summary: "Create a schedule, or replace its definition",
		Description: "Answers 201 if the schedule is new, 200 if it existed. Whether it is paused, and its history, stay.",
		Status:      http.StatusCreated, MaxBody: maxScheduleBody,
		Answers: []edge.Answer{{Status: http.StatusOK, Description: "A schedule of that name existed.", Of: wire.Schedule{}}},
	}, s.putSchedule)
	register(s, "list-schedules", "GET /v1/schedules", "All schedules, by name", s.schedules)
	register(s, "get-schedule", "GET /v1/schedules/{name}", "One schedule, and its last run", s.schedule)
	edge.Register(s.part, edge.Operation{
		ID: "remove-schedule", Route: "DELETE /v1/schedules/{name}", Summary: "Remove a schedule; its actions go on", Status: http.StatusNoContent,
	}, s.removeSchedule)
	register(s, "pause-schedule", "POST /v1/schedules/{name}/pause", "Start no further run until the schedule is resumed", s.changeSchedule(s.engine.PauseSchedule))
	register(s, "resume-schedule", "POST /v1/schedules/{name}/resume", "Resume a paused schedule, at its next time", s.changeSchedule(s.engine.ResumeSchedule))
	edge.Register(s.part, edge.Operation{
		ID: "run-schedule", Route: "POST /v1/schedules/{name}/run", Summary: "Start a run at once; answers with its action", Status: http.StatusCreated,
	}, s.runSchedule)
}

func (s *server) putSchedule(ctx context.Context, in *inPutSchedule) (*outPutSchedule, error) {
	schedule, err := scheduleOf(in.Name, &in.Body)
	if err != nil {
		return nil, refuseSchedule(in.Name, err)
	}
	stored, created, err := s.engine.PutSchedule(ctx, schedule)
	if err != nil {
		return nil, refuseSchedule(in.Name, err)
	}
	out := &outPutSchedule{Status: http.StatusOK, Body: scheduleObject(&stored)}
	if created {
		out.Status = http.StatusCreated
	}
	return out, nil
}

func (s *server) schedules(ctx context.Context, _ *struct{}) (*object[wire.Schedules], error) {
	all, err := s.engine.Schedules(ctx)
	if err != nil {
		return nil, err
	}
	out := &object[wire.Schedules]{Body: wire.Schedules{Schedules: []wire.Schedule{}}}
	for i := range all {
		object := scheduleObject(&all[i])
		object.Jobs = nil
		out.Body.Schedules = append(out.Body.Schedules, object)
	}
	return out, nil
}

func (s *server) schedule(ctx context.Context, in *inSchedule) (*object[wire.Schedule], error) {
	return s.changeSchedule(s.engine.Schedule)(ctx, in)
}

// changeSchedule returns the handler of a method that returns the schedule.
func (s *server) changeSchedule(change func(context.Context, string) (bulk.Schedule, error)) func(context.Context, *inSchedule) (*object[wire.Schedule], error) {
	return func(ctx context.Context, in *inSchedule) (*object[wire.Schedule], error) {
		schedule, err := change(ctx, in.Name)
		if err != nil {
			return nil, refuseSchedule(in.Name, err)
		}
		return &object[wire.Schedule]{Body: scheduleObject(&schedule)}, nil
	}
}

func (s *server) removeSchedule(ctx context.Context, in *inSchedule) (*struct{}, error) {
	if err := s.engine.RemoveSchedule(ctx, in.Name); err != nil {
		return nil, refuseSchedule(in.Name, err)
	}
	return &struct{}{}, nil
}

func (s *server) runSchedule(ctx context.Context, in *inSchedule) (*outCreated, error) {
	action, err := s.engine.RunNow(ctx, in.Name)
	if err != nil {
		return nil, refuseSchedule(in.Name, err)
	}
	return createdAnswer(action), nil
}

// refuseSchedule returns the problem of an error of the engine on a schedule.
func refuseSchedule(name string, err error) *edge.Error {
	var wrong *bulk.ScheduleError
	var unfinished *bulk.UnfinishedError
	var run *bulk.RunError
	switch {
	case errors.As(err, &wrong):
		return edge.Invalid(wrong.Field, wrong.Why)
	case errors.As(err, &unfinished), errors.As(err, &run):
		return edge.Refuse(http.StatusConflict, wire.CodeStatus, err.Error())
	case errors.Is(err, bulk.ErrNoSchedule):
		return edge.Refuse(http.StatusNotFound, wire.CodeNotFound, fmt.Sprintf("there is no schedule %q", name))
	case errors.Is(err, bulk.ErrConflict):
		return edge.Refuse(http.StatusConflict, wire.CodeConflict, "the schedule is being changed by others: try again")
	case errors.Is(err, bulk.ErrFull):
		return edge.Refuse(http.StatusInsufficientStorage, wire.CodeFull, err.Error())
	}
	return refuse(name, err)
}

// scheduleOf returns the schedule of a body. The engine validates it.
func scheduleOf(name string, n *wire.NewSchedule) (bulk.Schedule, error) {
	spec, err := specOf(wire.NewAction{
		Tenant: n.Tenant, Type: n.Type, Target: n.Target, Class: n.Class, Key: n.Key, Cost: n.Cost, Aggregate: n.Aggregate,
		MaxAttempts: n.MaxAttempts, TimeoutMS: n.TimeoutMS, FailAbove: n.FailAbove, Events: n.Events, KeepResults: n.KeepResults,
	})
	schedule := bulk.Schedule{
		Name: name, Cron: n.Cron, TimeZone: n.TimeZone, Spec: spec, Overlap: bulk.Overlap(n.Overlap),
		Jobs: make([][]byte, len(n.Jobs)),
	}
	for i, job := range n.Jobs {
		schedule.Jobs[i] = job
	}
	switch {
	case n.CatchUpMS == nil:
	case *n.CatchUpMS == 0:
		schedule.CatchUp = -1
	default:
		schedule.CatchUp = milliseconds(*n.CatchUpMS)
	}
	return schedule, err
}

// scheduleObject returns the JSON object of a schedule.
func scheduleObject(s *bulk.Schedule) wire.Schedule {
	object := wire.Schedule{
		Name: s.Name, Cron: s.Cron, TimeZone: s.TimeZone, Total: int64(len(s.Jobs)), Jobs: make([]json.RawMessage, len(s.Jobs)),
		Overlap: string(s.Overlap), CatchUpMS: max(0, s.CatchUp.Milliseconds()),
		Tenant: s.Spec.Tenant, Type: s.Spec.Type, Class: s.Spec.Class.String(), Key: s.Spec.Key, Cost: s.Spec.Cost,
		Aggregate:   append([]string{}, s.Spec.Aggregate...),
		MaxAttempts: s.Spec.MaxAttempts, TimeoutMS: s.Spec.Timeout.Milliseconds(), FailAbove: s.Spec.FailAbove,
		Events: append([]string{}, s.Spec.Events...), KeepResults: s.Spec.KeepResults,
		Paused: s.Paused, CreatedAt: s.CreatedAt.UTC(), UpdatedAt: s.UpdatedAt.UTC(), NextRunAt: optional(s.NextRunAt),
		LastRunAt: optional(s.LastRunAt), LastSkippedAt: optional(s.LastSkippedAt), LastError: s.LastError,
	}
	for i, job := range s.Jobs {
		object.Jobs[i] = value(job)
	}
	object.Target = targetObject(s.Spec.Target)
	if s.LastAction != "" {
		object.LastAction = &s.LastAction
	}
	return object
}
