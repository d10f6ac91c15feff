package api

import (
	"errors"
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-project/sluice/internal/edge"
	"github.com/sluice-project/sluice/internal/tracing"
)

// traced returns the handler of a visitor's request with its span. A request that only asks has one if it continues a trace,
// so that polling causes no noise. The public decides about no traces: its traceparent is linked.
func (s *server) traced(op edge.Operation, run func(*edge.Exchange) error) func(*edge.Exchange) error {
	if s.tracer == nil {
		return run
	}
	method, route, _ := strings.Cut(op.Route, " ")
	return func(e *edge.Exchange) (err error) {
		ctx, caller := tracing.Incoming(e.R.Context(), e.R.Header)
		if method == http.MethodGet && (e.Public || !caller.IsValid()) {
			return run(e)
		}
		var links []trace.Link
		if e.Public && caller.IsValid() {
			ctx, links = e.R.Context(), []trace.Link{{SpanContext: caller}}
		}
		ctx, served := tracing.Serve(ctx, s.tracer, e.R, route, links...)
		status := http.StatusInternalServerError // if it panics
		defer func() { served.End(status) }()
		w := &tracing.Writer{ResponseWriter: e.W}
		e.W, e.R = w, e.R.WithContext(ctx)
		if err = run(e); err != nil {
			status = statusOf(err)
		} else {
			status = w.Status
		}
		return err
	}
}

// statusOf returns the status with which an error is answered.
func statusOf(err error) int {
	var refused *edge.Error
	if errors.As(err, &refused) {
		return refused.Status
	}
	if refused = refuse(err); refused != nil {
		return refused.Status
	}
	return http.StatusInternalServerError
}
