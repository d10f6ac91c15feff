package api

import (
	"context"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-project/sluice/internal/tracing"
)

// WithTracerProvider makes spans of requests that create or change actions, and of
// others that have a traceparent. A request about an action without a traceparent
// belongs to the action's trace, which costs a read of the action. Default: none.
func WithTracerProvider(provider trace.TracerProvider) Option {
	return func(s *server) { s.tracer = tracing.Tracer(provider) }
}

// trace is the middleware of all operations if there is a tracer.
func (s *server) trace(hctx huma.Context, next func(huma.Context)) {
	r, _ := humago.Unwrap(hctx)
	ctx, links, wanted := s.place(hctx, r)
	if !wanted {
		next(hctx)
		return
	}
	ctx, served := tracing.Serve(ctx, s.tracer, r, hctx.Operation().Path, links...)
	status := http.StatusInternalServerError // if it panics
	defer func() { served.End(status) }()
	next(huma.WithContext(hctx, ctx))
	if status = hctx.Status(); status == 0 {
		status = http.StatusOK // a stream
	}
}

// place returns the parent of the span of a request, and whether a span is wanted.
func (s *server) place(hctx huma.Context, r *http.Request) (_ context.Context, links []trace.Link, wanted bool) {
	ctx, caller := tracing.Incoming(hctx.Context(), r.Header)
	path := hctx.Operation().Path
	changes := r.Method == http.MethodPost && (strings.HasPrefix(path, "/v1/actions") || path == "/v1/dead-letters/replay")
	id := hctx.Param("id")
	if !changes || id == "" {
		return ctx, nil, changes || caller.IsValid()
	}
	action, err := s.engine.Action(ctx, id)
	if err != nil {
		return ctx, nil, caller.IsValid()
	}
	of := action.Trace.SpanContext()
	switch {
	case !caller.IsValid():
		return action.Trace.Context(ctx), nil, of.IsValid()
	case of.IsValid() && of.TraceID() != caller.TraceID():
		links = []trace.Link{{SpanContext: of}}
	}
	return ctx, links, true
}
