package api

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/internal/edge"
)

// inAction is a request about one action.
type inAction struct {
	ID string `path:"id" doc:"The action's id."`
}

type outCreated struct {
	Status   int
	Location string `header:"Location"`
	Body     wire.Created
}

func (s *server) registerActions() {
	edge.Register(s.part, edge.Operation{
		ID: "create-action", Route: "POST /v1/actions", Summary: "Create an action", Status: http.StatusCreated,
		Description: "A repeated request with the same body answers 200, with another body 409.",
		Answers:     []edge.Answer{{Status: http.StatusOK, Description: "It exists with the same body.", Of: wire.Created{}}},
	}, s.create)
	register(s, "list-actions", "GET /v1/actions", "List actions in the order of their creation", s.list)
	register(s, "get-action", "GET /v1/actions/{id}", "One action and the states of its jobs", s.get)

	register(s, "pause-action", "POST /v1/actions/{id}/pause", "Admit no further job until the action is resumed", s.transition(s.engine.Pause))
	register(s, "resume-action", "POST /v1/actions/{id}/resume", "Resume a paused action", s.transition(s.engine.Resume))
	register(s, "cancel-action", "POST /v1/actions/{id}/cancel", "Start no further job; jobs in flight may finish", s.transition(s.engine.Cancel))
}

func (s *server) create(ctx context.Context, in *object[wire.NewAction]) (*outCreated, error) {
	spec, err := specOf(in.Body)
	if err != nil {
		return nil, refuse(in.Body.ID, err)
	}
	action, created, err := s.engine.Create(ctx, spec)
	if err != nil {
		return nil, refuse(in.Body.ID, err)
	}
	out := createdAnswer(action)
	if !created {
		out.Status = http.StatusOK
	}
	return out, nil
}

func createdAnswer(action bulk.Action) *outCreated {
	return &outCreated{
		Status:   http.StatusCreated,
		Location: "/v1/actions/" + url.PathEscape(action.ID),
		Body:     wire.Created{ID: action.ID, Status: string(action.Status)},
	}
}

type inList struct {
	Tenant string `query:"tenant" doc:"Only those of this tenant."`
	Status string `query:"status" enum:"CREATED,DISPATCHED,RUNNING,AGGREGATING,COMPLETED,FAILED,CANCELED" doc:"Only those in this status."`
	After  string `query:"after" doc:"The id that the page before gave as next."`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"The most actions of a page."`
}

func (s *server) list(ctx context.Context, in *inList) (*object[wire.Actions], error) {
	actions, err := s.engine.Actions(ctx, bulk.ActionFilter{
		Tenant: in.Tenant,
		Status: bulk.Status(in.Status),
		After:  in.After,
		Limit:  in.Limit + 1, // One more shows whether there is a next page.
	})
	if err != nil {
		return nil, refuse(in.After, err)
	}
	out := &object[wire.Actions]{Body: wire.Actions{Actions: []wire.Action{}}}
	for _, action := range actions[:min(len(actions), in.Limit)] {
		out.Body.Actions = append(out.Body.Actions, s.action(action))
	}
	if len(actions) > in.Limit {
		out.Body.Next = &actions[in.Limit-1].ID
	}
	return out, nil
}

func (s *server) get(ctx context.Context, in *inAction) (*object[wire.Action], error) {
	action, err := s.engine.Action(ctx, in.ID)
	return s.answer(ctx, in.ID, action, err)
}

// transition returns the handler of one of the engine's transitions.
func (s *server) transition(transition func(context.Context, string) (bulk.Action, error)) func(context.Context, *inAction) (*object[wire.Action], error) {
	return func(ctx context.Context, in *inAction) (*object[wire.Action], error) {
		action, err := transition(ctx, in.ID)
		return s.answer(ctx, in.ID, action, err)
	}
}

// answer returns an action or an error. A repeated transition is no error.
func (s *server) answer(ctx context.Context, id string, action bulk.Action, err error) (*object[wire.Action], error) {
	if errors.Is(err, bulk.ErrNoChange) {
		action, err = s.engine.Action(ctx, id)
	}
	if err != nil {
		return nil, refuse(id, err)
	}
	return &object[wire.Action]{Body: s.action(action)}, nil
}
