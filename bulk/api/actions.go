package api

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"reflect"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api/wire"
)

// inAction is a request about one action.
type inAction struct {
	ID string `path:"id" doc:"The action's id."`
}

type outAction struct{ Body wire.Action }

type outCreated struct {
	Status   int
	Location string `header:"Location"`
	Body     wire.Created
}

func (s *server) registerActions(api huma.API) {
	create := operation(api, "create-action", "POST /v1/actions", "Create an action")
	create.Description = "Creating an id again with the same body answers 200, with another body 409."
	create.DefaultStatus = http.StatusCreated
	created := api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[wire.Created](), true, "")
	create.Responses[strconv.Itoa(http.StatusOK)] = &huma.Response{
		Description: "It exists with the same body.",
		Content:     map[string]*huma.MediaType{"application/json": {Schema: created}},
	}
	huma.Register(api, create, s.create)
	huma.Register(api, operation(api, "list-actions", "GET /v1/actions", "List actions in the order of their creation"), s.list)
	huma.Register(api, operation(api, "get-action", "GET /v1/actions/{id}", "One action and how its jobs do"), s.get)

	huma.Register(api, operation(api, "pause-action", "POST /v1/actions/{id}/pause", "Admit no further job until the action is resumed"), s.move(s.engine.Pause))
	huma.Register(api, operation(api, "resume-action", "POST /v1/actions/{id}/resume", "Go on with a paused action"), s.move(s.engine.Resume))
	huma.Register(api, operation(api, "cancel-action", "POST /v1/actions/{id}/cancel", "Start no further job; jobs in flight may finish"), s.move(s.engine.Cancel))
}

type inCreate struct{ Body wire.NewAction }

func (s *server) create(ctx context.Context, in *inCreate) (*outCreated, error) {
	spec, err := specOf(in.Body)
	if err != nil {
		return nil, s.refuse(ctx, in.Body.ID, err)
	}
	action, created, err := s.engine.Create(ctx, spec)
	if err != nil {
		return nil, s.refuse(ctx, in.Body.ID, err)
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

type outList struct{ Body wire.Actions }

func (s *server) list(ctx context.Context, in *inList) (*outList, error) {
	actions, err := s.engine.Actions(ctx, bulk.ActionFilter{
		Tenant: in.Tenant,
		Status: bulk.Status(in.Status),
		After:  in.After,
		Limit:  in.Limit + 1, // One more tells whether there is a next page.
	})
	if err != nil {
		return nil, s.refuse(ctx, in.After, err)
	}
	out := &outList{Body: wire.Actions{Actions: []wire.Action{}}}
	for _, action := range actions[:min(len(actions), in.Limit)] {
		out.Body.Actions = append(out.Body.Actions, s.action(action))
	}
	if len(actions) > in.Limit {
		out.Body.Next = &actions[in.Limit-1].ID
	}
	return out, nil
}

func (s *server) get(ctx context.Context, in *inAction) (*outAction, error) {
	action, err := s.engine.Action(ctx, in.ID)
	return s.answer(ctx, in.ID, action, err)
}

// move makes an operation of one of the engine's moves.
func (s *server) move(move func(context.Context, string) (bulk.Action, error)) func(context.Context, *inAction) (*outAction, error) {
	return func(ctx context.Context, in *inAction) (*outAction, error) {
		action, err := move(ctx, in.ID)
		return s.answer(ctx, in.ID, action, err)
	}
}

// answer is an action or a problem. A move that had been made before is not one.
func (s *server) answer(ctx context.Context, id string, action bulk.Action, err error) (*outAction, error) {
	if errors.Is(err, bulk.ErrNoChange) {
		action, err = s.engine.Action(ctx, id)
	}
	if err != nil {
		return nil, s.refuse(ctx, id, err)
	}
	return &outAction{Body: s.action(action)}, nil
}
