package gate

import (
	"cmp"
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-project/sluice/internal/tracing"
)

// traced returns a handler with a span of each request. A GET of one of the gate's own paths has one only if it continues a
// trace, so that polling causes no noise. Only trusted proxies decide about traces: the traceparent of anybody else is
// linked.
func (g *Gate) traced(next http.Handler) http.Handler {
	if g.tracer == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, caller := tracing.Incoming(r.Context(), r.Header)
		continues := caller.IsValid() && trustedPeer(r, g.options.TrustedProxies)
		if !continues && r.Method == http.MethodGet && strings.HasPrefix(r.URL.Path, ownPrefix) {
			next.ServeHTTP(w, r)
			return
		}
		var links []trace.Link
		if !continues && caller.IsValid() {
			ctx, links = r.Context(), []trace.Link{{SpanContext: caller}}
		}
		ctx, served := tracing.Serve(ctx, g.tracer, r, "", links...)
		answer := &tracing.Writer{ResponseWriter: w}
		status := http.StatusInternalServerError // if it panics
		defer func() { served.End(cmp.Or(answer.Status, status)) }()
		next.ServeHTTP(answer, r.WithContext(ctx))
		status = http.StatusOK
	})
}

const keyRoom = attribute.Key("sluice.room")

// carried is a transport to an upstream: it hands the trace of a request on, with the span of a client.
type carried struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t carried) RoundTrip(r *http.Request) (*http.Response, error) {
	if !trace.SpanContextFromContext(r.Context()).IsValid() {
		return t.RoundTripper.RoundTrip(r)
	}
	ctx, sent := tracing.Send(r.Context(), r.Method, r.URL)
	r = r.Clone(ctx)
	tracing.Outgoing(ctx, r.Header)
	answer, err := t.RoundTripper.RoundTrip(r)
	if err != nil {
		sent.Failed(err)
		return nil, err
	}
	sent.Answered(answer.StatusCode)
	return answer, nil
}
