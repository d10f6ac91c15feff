package api

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/internal/edge"
)

const watchID = "watch-action"

func (s *server) registerWatch() {
	edge.Register(s.part, edge.Operation{
		ID: watchID, Route: "GET /v1/actions/{id}/watch", Summary: "Server-sent events: the action, now and on every change",
		Description: fmt.Sprintf("The data of each event is the action. The stream ends after the final one. "+
			"A comment is sent every %v, so that a reader can tell a silent action from a broken connection.", heartbeat),
		Answers: []edge.Answer{{
			Status: http.StatusOK, Description: "A stream of events, each with the action as its data.",
			Of: wire.Action{}, Type: "text/event-stream",
		}},
	}, s.watch)
}

func (s *server) watch(ctx context.Context, in *inAction) (*huma.StreamResponse, error) {
	if _, err := s.engine.Action(ctx, in.ID); err != nil {
		return nil, refuse(in.ID, err)
	}
	leave, ok := s.watches.enter(ctx, "")
	if !ok {
		return nil, edge.Refuse(http.StatusServiceUnavailable, wire.CodeBusy,
			fmt.Sprintf("%d watches are open, which is the most", maxWatches)).RetryAfter(heartbeat)
	}
	return &huma.StreamResponse{Body: func(hctx huma.Context) {
		defer leave()
		_, w := humago.Unwrap(hctx)
		s.streamAction(ctx, in.ID, w)
	}}, nil
}

// streamAction writes events until the action is final, the client is gone, or ctx
// ends.
func (s *server) streamAction(ctx context.Context, id string, w http.ResponseWriter) {
	out := edge.NewEventStream(w)
	var watching sync.WaitGroup
	defer watching.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changes := make(chan bulk.Action)
	ended := make(chan error, 1)
	watching.Go(func() {
		ended <- s.engine.Watch(ctx, id, watchInterval, func(action bulk.Action) error {
			select {
			case changes <- action:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	})
	pulse := time.NewTicker(heartbeat)
	defer pulse.Stop()
	for {
		var err error
		select {
		case action := <-changes:
			err = out.Event(s.action(action))
		case <-pulse.C:
			err = out.Heartbeat()
		case err = <-ended:
			if err != nil {
				s.part.Failed(ctx, watchID, refuse(id, err))
			}
			return
		}
		if err != nil {
			return // The client is gone.
		}
	}
}
