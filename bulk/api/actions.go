package api

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"github.com/sluice-project/sluice/access/audit"
	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/bulk/engine"
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
	register(s, "list-actions", "GET /v1/actions", "List actions in the order of their creation", s.list(bulk.ActionFilter{}))
	register(s, "list-streams", "GET /v1/streams", "List streams, of jobs that were enqueued one at a time, in the order of their creation", s.list(bulk.ActionFilter{Streams: true}))
	register(s, "get-action", "GET /v1/actions/{id}", "One action and the states of its jobs", s.get)

	register(s, "pause-action", "POST /v1/actions/{id}/pause", "Admit no further job until the action is resumed", s.transition(s.engine.Pause))
	register(s, "resume-action", "POST /v1/actions/{id}/resume", "Resume a paused action", s.transition(s.engine.Resume))
	register(s, "cancel-action", "POST /v1/actions/{id}/cancel", "Start no further job, and tell those in flight to end", s.transition(s.engine.Cancel))
	edge.Register(s.part, edge.Operation{
		ID: "change-actions", Route: "POST /v1/changes", Summary: "Pause, resume, cancel or replay all actions that match",
		Description: "At most 1,000 actions are changed in a request, of 10,000 that it looks at, in about five seconds: next says where to continue. It is idempotent. Actions whose status does not allow the change are not changed, which is no error.",
	}, s.change)
}

func (s *server) change(ctx context.Context, in *object[wire.Change]) (*object[wire.Changed], error) {
	c := in.Body
	done, err := s.engine.Change(ctx, engine.Change{
		Do: engine.Verb(c.Do), Action: c.Action, Tenant: c.Tenant, Type: c.Type, Target: c.Target, Status: bulk.Status(c.Status),
		Only: bulk.FailureFilter(c.FailureFilter), All: c.All, DryRun: c.DryRun, After: c.After, Limit: c.Limit,
	})
	if err != nil {
		return nil, refuse(c.Action, err)
	}
	out := &object[wire.Changed]{Body: wire.Changed{Matched: done.Matched, Changed: done.Changed, Jobs: done.Jobs}}
	if done.Next != "" {
		out.Body.Next = &done.Next
	}
	return out, nil
}

func (s *server) create(ctx context.Context, in *object[wire.NewAction]) (*outCreated, error) {
	audit.About(ctx, "tenant:"+in.Body.Tenant)
	spec, err := specOf(in.Body)
	if err != nil {
		return nil, refuse(in.Body.ID, err)
	}
	action, created, err := s.engine.Create(ctx, spec)
	if err != nil {
		return nil, refuse(in.Body.ID, err)
	}
	audit.About(ctx, "action:"+action.ID)
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
	After  string `query:"after" doc:"What the page before gave as next."`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"The most actions of a page. With a filter, a page may have none and still have a next: it looks at 10,000 actions."`
}

// list returns the handler that lists the actions that a filter and the request select.
func (s *server) list(filter bulk.ActionFilter) func(context.Context, *inList) (*object[wire.Actions], error) {
	return func(ctx context.Context, in *inList) (*object[wire.Actions], error) {
		filter := filter
		filter.Tenant, filter.Status, filter.After, filter.Limit = in.Tenant, bulk.Status(in.Status), in.After, in.Limit
		actions, next, err := s.page(ctx, filter)
		if err != nil {
			return nil, err
		}
		out := &object[wire.Actions]{Body: wire.Actions{Actions: []wire.Action{}, Next: next}}
		for _, action := range actions {
			out.Body.Actions = append(out.Body.Actions, s.action(action))
		}
		return out, nil
	}
}

// page returns the actions of a page, of those that the sender sees, and what the next one begins after; nil if
// there is none. It looks for one more action than fits, which shows whether there is a next page.
func (s *server) page(ctx context.Context, filter bulk.ActionFilter) (found []bulk.Action, next *string, err error) {
	if filter.After, err = reveal(ctx, filter.After); err != nil {
		return nil, nil, err
	}
	size := filter.Limit
	filter.Unfinished = filter.Unfinished || filter.Status != "" && !filter.Status.Final()
	filter.Limit++
	if filter.Tenant != "" && sees(ctx, filter.Tenant) || !limited(ctx) {
		if !filter.Unfinished { // the store has those in memory
			filter.Look = maxScan
		}
		found, err = s.engine.Actions(ctx, filter)
		if further, ok := errors.AsType[*bulk.LookError](err); ok {
			next, err = &further.After, nil
		}
	} else {
		next, err = s.scan(ctx, filter, func(a *bulk.Action) (bool, error) {
			if filter.Matches(a) {
				found = append(found, *a)
			}
			return len(found) <= size, nil
		})
	}
	if err != nil {
		return nil, nil, refuse(filter.After, err)
	}
	if len(found) > size {
		found = found[:size]
		next = &found[size-1].ID
	}
	return found, hide(ctx, next), nil
}

// scan calls f for the actions after one, in the order of their creation, until it returns
// false. It reads as many at a time as the filter's limit, and no more than maxScan: after those, next is where
// to continue. It passes over actions of tenants beyond the sender's limits.
func (s *server) scan(ctx context.Context, filter bulk.ActionFilter, f func(*bulk.Action) (more bool, err error)) (next *string, err error) {
	after := filter.After
	for most := maxScan; most > 0; {
		limit := min(filter.Limit, most)
		actions, err := s.engine.Actions(ctx, bulk.ActionFilter{Unfinished: filter.Unfinished, After: after, Limit: limit})
		if err != nil {
			return nil, err
		}
		for i := range actions {
			if !sees(ctx, actions[i].Tenant) {
				continue
			}
			if more, err := f(&actions[i]); err != nil || !more {
				return nil, err
			}
		}
		if len(actions) < limit {
			return nil, nil
		}
		most -= limit
		after = actions[limit-1].ID
	}
	return &after, nil
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
