package tracing

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// Sent is the span of a request that is being sent. The zero value is none.
type Sent struct{ span trace.Span }

// Send begins the span of a request to a URL, if ctx has a place in a trace, by
// the provider that made that place. Only the host of the URL is told.
func Send(ctx context.Context, method string, to *url.URL) (context.Context, Sent) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return ctx, Sent{}
	}
	host := to.Host
	if to.Port() == "" {
		host += map[string]string{"http": ":80", "https": ":443"}[to.Scheme]
	}
	attributes := append(server(host), semconv.HTTPRequestMethodKey.String(method), semconv.URLScheme(to.Scheme))
	ctx, span := Tracer(parent.TracerProvider()).Start(ctx, method, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attributes...))
	return ctx, Sent{span}
}

// Outgoing writes the place in a trace that ctx has into the headers of a
// request, also if nobody wants spans of it; nothing if it has none.
func Outgoing(ctx context.Context, header http.Header) {
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(header))
}

// Answered ends the span with the status of the answer. For who sends, it is an
// error from 400 on.
func (s Sent) Answered(status int) {
	end(s.span, status, http.StatusBadRequest)
}

// Failed ends the span of a request that got no full answer; why must hold no
// secret.
func (s Sent) Failed(why error) {
	if s.span == nil {
		return
	}
	s.span.SetAttributes(semconv.ErrorTypeKey.String(kind(why)))
	s.span.SetStatus(codes.Error, legible(why.Error()))
	s.span.End()
}

// kind is what of an error is told as its type: few different words.
func kind(err error) string {
	var timeout interface{ Timeout() bool }
	switch {
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "timeout"
	}
	for next := errors.Unwrap(err); next != nil; next = errors.Unwrap(err) {
		err = next
	}
	return fmt.Sprintf("%T", err)
}

// maxText bounds a text that others have written.
const maxText = 1024

// legible is a text as the protocol of traces can carry it: one that is not UTF-8
// would cost all spans that are sent together with it.
func legible(text string) string {
	if len(text) > maxText {
		text = text[:maxText]
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}
