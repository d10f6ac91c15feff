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

// Sent is the span of an outgoing request. The zero value is no span.
type Sent struct{ span trace.Span }

// Send starts the span of a request to a URL if ctx has a recording span, with the
// provider of that span. Of the URL it records only the host.
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

// Outgoing writes the span context of ctx into the headers of a request, sampled or
// not; nothing if there is none.
func Outgoing(ctx context.Context, header http.Header) {
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(header))
}

// Answered ends the span with the status of the answer. It is an error from 400 on.
func (s Sent) Answered(status int) {
	end(s.span, status, http.StatusBadRequest)
}

// Failed ends the span of a request without a complete answer. The error must hold no
// secret.
func (s Sent) Failed(why error) {
	if s.span == nil {
		return
	}
	s.span.SetAttributes(semconv.ErrorTypeKey.String(errorType(why)))
	s.span.SetStatus(codes.Error, valid(why.Error()))
	s.span.End()
}

// errorType returns the type of an error, one of few words.
func errorType(err error) string {
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

// maxText bounds a text of foreign origin.
const maxText = 1024

// valid returns a text as the protocol of traces can carry it: text that is not UTF-8
// would lose all spans of its batch.
func valid(text string) string {
	if len(text) > maxText {
		text = text[:maxText]
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}
