package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api/wire"
)

// inSchedule is a request about one schedule.
type inSchedule struct {
	Name string `path:"name" pattern:"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$" doc:"1 to 64 of letters, digits and . _ -"`
}

type inPutSchedule struct {
	Name string `path:"name" pattern:"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$" doc:"1 to 64 of letters, digits and . _ -"`
	Body wire.NewSchedule
}

type outSchedule struct{ Body wire.Schedule }

type outPutSchedule struct {
	Status int
	Body   wire.Schedule
}

type outSchedules struct{ Body wire.Schedules }

func (s *server) registerSchedules(api huma.API) {
	put := operation(api, "put-schedule", "PUT /v1/schedules/{name}", "Make a schedule, or replace what it asks for")
	put.Description = "Answers 201 if it was made, 200 if there was one. Whether it is paused, and what it has done, stays."
	put.DefaultStatus = http.StatusCreated
	put.MaxBodyBytes = maxScheduleBody + 1
	schedule := api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[wire.Schedule](), true, "")
	put.Responses[strconv.Itoa(http.StatusOK)] = &huma.Response{
		Description: "There was one of that name.",
		Content:     map[string]*huma.MediaType{jsonType: {Schema: schedule}},
	}
	huma.Register(api, put, s.putSchedule)
	huma.Register(api, operation(api, "list-schedules", "GET /v1/schedules", "All schedules, by name"), s.schedules)
	huma.Register(api, operation(api, "get-schedule", "GET /v1/schedules/{name}", "One schedule, and how far it is"), s.schedule)
	remove := operation(api, "remove-schedule", "DELETE /v1/schedules/{name}", "Remove a schedule; its actions go on")
	remove.DefaultStatus = http.StatusNoContent
	huma.Register(api, remove, s.removeSchedule)
	huma.Register(api, operation(api, "pause-schedule", "POST /v1/schedules/{name}/pause", "Start no further run until the schedule is resumed"), s.changeSchedule(s.engine.PauseSchedule))
	huma.Register(api, operation(api, "resume-schedule", "POST /v1/schedules/{name}/resume", "Go on with a paused schedule, at its next time"), s.changeSchedule(s.engine.ResumeSchedule))
	run := operation(api, "run-schedule", "POST /v1/schedules/{name}/run", "Start a run at once; answers with its action")
	run.DefaultStatus = http.StatusCreated
	huma.Register(api, run, s.runSchedule)
}

func (s *server) putSchedule(ctx context.Context, in *inPutSchedule) (*outPutSchedule, error) {
	schedule, err := scheduleOf(in.Name, &in.Body)
	if err != nil {
		return nil, s.refuseSchedule(ctx, in.Name, err)
	}
	stored, created, err := s.engine.PutSchedule(ctx, schedule)
	if err != nil {
		return nil, s.refuseSchedule(ctx, in.Name, err)
	}
	out := &outPutSchedule{Status: http.StatusOK, Body: scheduleObject(&stored)}
	if created {
		out.Status = http.StatusCreated
	}
	return out, nil
}

func (s *server) schedules(ctx context.Context, _ *struct{}) (*outSchedules, error) {
	all, err := s.engine.Schedules(ctx)
	if err != nil {
		return nil, s.refuse(ctx, "", err)
	}
	out := &outSchedules{Body: wire.Schedules{Schedules: []wire.Schedule{}}}
	for i := range all {
		object := scheduleObject(&all[i])
		object.Jobs = nil
		out.Body.Schedules = append(out.Body.Schedules, object)
	}
	return out, nil
}

func (s *server) schedule(ctx context.Context, in *inSchedule) (*outSchedule, error) {
	return s.changeSchedule(s.engine.Schedule)(ctx, in)
}

// changeSchedule makes an operation of a method that answers with the schedule.
func (s *server) changeSchedule(change func(context.Context, string) (bulk.Schedule, error)) func(context.Context, *inSchedule) (*outSchedule, error) {
	return func(ctx context.Context, in *inSchedule) (*outSchedule, error) {
		schedule, err := change(ctx, in.Name)
		if err != nil {
			return nil, s.refuseSchedule(ctx, in.Name, err)
		}
		return &outSchedule{Body: scheduleObject(&schedule)}, nil
	}
}

func (s *server) removeSchedule(ctx context.Context, in *inSchedule) (*struct{}, error) {
	if err := s.engine.RemoveSchedule(ctx, in.Name); err != nil {
		return nil, s.refuseSchedule(ctx, in.Name, err)
	}
	return &struct{}{}, nil
}

func (s *server) runSchedule(ctx context.Context, in *inSchedule) (*outCreated, error) {
	action, err := s.engine.RunNow(ctx, in.Name)
	if err != nil {
		return nil, s.refuseSchedule(ctx, in.Name, err)
	}
	return createdAnswer(action), nil
}

// refuseSchedule makes a problem of an error of the engine on a schedule.
func (s *server) refuseSchedule(ctx context.Context, name string, err error) *problem {
	var wrong *bulk.ScheduleError
	var unfinished *bulk.UnfinishedError
	var run *bulk.RunError
	switch {
	case errors.As(err, &wrong):
		return invalid(http.StatusUnprocessableEntity, wrong.Field, wrong.Why)
	case errors.As(err, &unfinished), errors.As(err, &run):
		return newProblem(http.StatusConflict, wire.CodeStatus, err.Error())
	case errors.Is(err, bulk.ErrNoSchedule):
		return newProblem(http.StatusNotFound, wire.CodeNotFound, fmt.Sprintf("there is no schedule %q", name))
	case errors.Is(err, bulk.ErrConflict):
		return newProblem(http.StatusConflict, wire.CodeConflict, "the schedule is being changed by others: try again")
	case errors.Is(err, bulk.ErrFull):
		return newProblem(http.StatusInsufficientStorage, wire.CodeFull, err.Error())
	}
	return s.refuse(ctx, name, err)
}

// scheduleOf is the schedule that a body asks for. The engine checks it.
func scheduleOf(name string, n *wire.NewSchedule) (bulk.Schedule, error) {
	spec, err := specOf(wire.NewAction{
		Tenant: n.Tenant, Type: n.Type, Target: n.Target, Class: n.Class, Aggregate: n.Aggregate,
		MaxAttempts: n.MaxAttempts, TimeoutMS: n.TimeoutMS, FailAbove: n.FailAbove, Events: n.Events,
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

// scheduleObject is the JSON object of a schedule.
func scheduleObject(s *bulk.Schedule) wire.Schedule {
	object := wire.Schedule{
		Name: s.Name, Cron: s.Cron, TimeZone: s.TimeZone, Total: int64(len(s.Jobs)), Jobs: make([]json.RawMessage, len(s.Jobs)),
		Overlap: string(s.Overlap), CatchUpMS: max(0, s.CatchUp.Milliseconds()),
		Tenant: s.Spec.Tenant, Type: s.Spec.Type, Class: s.Spec.Class.String(), Aggregate: append([]string{}, s.Spec.Aggregate...),
		MaxAttempts: s.Spec.MaxAttempts, TimeoutMS: s.Spec.Timeout.Milliseconds(), FailAbove: s.Spec.FailAbove,
		Events: append([]string{}, s.Spec.Events...),
		Paused: s.Paused, CreatedAt: s.CreatedAt.UTC(), UpdatedAt: s.UpdatedAt.UTC(), NextRunAt: optional(s.NextRunAt),
		LastRunAt: optional(s.LastRunAt), LastSkippedAt: optional(s.LastSkippedAt), LastError: s.LastError,
	}
	for i, job := range s.Jobs {
		object.Jobs[i] = value(job)
	}
	if s.Spec.Target != nil {
		object.Target = &wire.Target{Name: s.Spec.Target.Name, URL: s.Spec.Target.URL}
	}
	if s.LastAction != "" {
		object.LastAction = &s.LastAction
	}
	return object
}
