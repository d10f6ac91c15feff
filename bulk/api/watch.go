package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api/wire"
)

func (s *server) registerWatch(api huma.API) {
	op := operation(api, "watch-action", "GET /v1/actions/{id}/watch", "Server-sent events: the action, now and on every change")
	op.Description = fmt.Sprintf("The data of each event is the action. The stream ends after the final one. "+
		"A comment is sent each %v, so that a reader can tell a silent action from a broken connection.", heartbeat)
	schema := api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[wire.Action](), true, "")
	op.Responses["200"] = &huma.Response{
		Description: "A stream of events, each with the action as its data.",
		Content: map[string]*huma.MediaType{"text/event-stream": {
			Schema: &huma.Schema{Type: "string", Extensions: map[string]any{
				"contentMediaType": "application/json", "contentSchema": schema,
			}},
		}},
	}
	huma.Register(api, op, s.watch)
}

func (s *server) watch(ctx context.Context, in *inAction) (*huma.StreamResponse, error) {
	if _, err := s.engine.Action(ctx, in.ID); err != nil {
		return nil, s.refuse(ctx, in.ID, err)
	}
	leave, ok := s.watches.enter(ctx)
	if !ok {
		return nil, newProblem(http.StatusServiceUnavailable, wire.CodeBusy,
			fmt.Sprintf("%d watches are open, which is the most", maxWatches)).retryAfter(heartbeat)
	}
	return &huma.StreamResponse{Body: func(hctx huma.Context) {
		defer leave()
		_, w := humago.Unwrap(hctx)
		s.streamAction(ctx, in.ID, w)
	}}, nil
}

// streamAction writes events until the action is final, the client is gone, or
// ctx ends.
func (s *server) streamAction(ctx context.Context, id string, w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
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
	out := &stream{w: w, control: http.NewResponseController(w)}
	pulse := time.NewTicker(heartbeat)
	defer pulse.Stop()
	for {
		var err error
		select {
		case action := <-changes:
			err = out.event(s.action(action))
		case <-pulse.C:
			err = out.send([]byte(": heartbeat\n\n"))
		case err = <-ended:
			if err != nil {
				_ = s.refuse(ctx, id, err) // Too late for an answer: this logs it.
			}
			return
		}
		if err != nil {
			return // The client has gone.
		}
	}
}

// stream writes the parts of a long response, each with a deadline.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

func (o *stream) event(action wire.Action) error {
	data, err := json.Marshal(action)
	if err != nil {
		return fmt.Errorf("write action %q as JSON: %w", action.ID, err)
	}
	return o.send(fmt.Appendf(nil, "data: %s\n\n", data))
}

func (o *stream) send(part []byte) error {
	// A writer that has no connection has no deadline.
	_ = o.control.SetWriteDeadline(time.Now().Add(writeTimeout))
	if _, err := o.w.Write(part); err != nil {
		return err
	}
	return o.control.Flush()
}
