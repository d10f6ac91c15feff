package tracing

import (
	"cmp"
	"context"
	"io"
	"net"
	"net/http"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// Name is the instrumentation scope of the spans.
const Name = "github.com/sluice-project/sluice/internal/tracing"

// Tracer returns the tracer of a provider for spans of requests; nil for nil.
func Tracer(provider trace.TracerProvider) trace.Tracer {
	if provider == nil {
		return nil
	}
	return provider.Tracer(Name, trace.WithSchemaURL(semconv.SchemaURL))
}

// Incoming returns ctx with the span context in the headers of a request, as the
// parent of what follows. It is not valid if there is none.
func Incoming(ctx context.Context, header http.Header) (context.Context, trace.SpanContext) {
	ctx = propagation.TraceContext{}.Extract(ctx, propagation.HeaderCarrier(header))
	return ctx, trace.SpanContextFromContext(ctx)
}

// Served is the span of an incoming request. The zero value is no span.
type Served struct{ span trace.Span }

// Serve starts the span of a request, a child of the span context of ctx. The route
// is the pattern of the path, such as /v1/actions/{id}; "" if there is none.
func Serve(ctx context.Context, tracer trace.Tracer, r *http.Request, route string, links ...trace.Link) (context.Context, Served) {
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	attributes := []attribute.KeyValue{
		semconv.HTTPRequestMethodKey.String(method(r.Method)), semconv.URLPath(valid(r.URL.Path)),
		semconv.URLScheme(scheme), semconv.NetworkProtocolVersion(protocol(r)),
	}
	attributes = append(attributes, server(r.Host)...)
	if client, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		attributes = append(attributes, semconv.ClientAddress(client))
	}
	if agent := r.UserAgent(); agent != "" {
		attributes = append(attributes, semconv.UserAgentOriginal(valid(agent)))
	}
	name := method(r.Method)
	if route != "" {
		name += " " + route
		attributes = append(attributes, semconv.HTTPRoute(route))
	}
	ctx, span := tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(attributes...), trace.WithLinks(links...))
	return ctx, Served{span}
}

// End ends the span with the status of the answer. It is an error from 500 on.
func (s Served) End(status int) {
	end(s.span, status, http.StatusInternalServerError)
}

// end ends a span, if there is one, with the status of the answer, which is an error
// from least on.
func end(span trace.Span, status, least int) {
	if span == nil {
		return
	}
	span.SetAttributes(semconv.HTTPResponseStatusCode(status))
	if status >= least {
		span.SetAttributes(semconv.ErrorTypeKey.String(strconv.Itoa(status)))
		span.SetStatus(codes.Error, "")
	}
	span.End()
}

// server returns the attributes of a host with an optional port.
func server(hostport string) []attribute.KeyValue {
	host, port, err := net.SplitHostPort(hostport)
	if err != nil {
		return []attribute.KeyValue{semconv.ServerAddress(valid(hostport))}
	}
	attributes := []attribute.KeyValue{semconv.ServerAddress(valid(host))}
	if n, err := strconv.ParseUint(port, 10, 16); err == nil {
		attributes = append(attributes, semconv.ServerPort(int(n)))
	}
	return attributes
}

// method returns a method as the conventions define it: unknown ones are _OTHER, which
// bounds their number.
func method(name string) string {
	switch name {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return name
	}
	return "_OTHER"
}

func protocol(r *http.Request) string {
	if r.ProtoMajor >= 2 {
		return strconv.Itoa(r.ProtoMajor)
	}
	return strconv.Itoa(r.ProtoMajor) + "." + strconv.Itoa(r.ProtoMinor)
}

// Writer is an answer whose status the span of the request ends with.
type Writer struct {
	http.ResponseWriter
	// Status is that of the answer; 0 until it has begun.
	Status int
}

// WriteHeader implements http.ResponseWriter. Answers of 1xx come before the final one, except 101.
func (w *Writer) WriteHeader(status int) {
	if w.Status == 0 && (status >= http.StatusOK || status == http.StatusSwitchingProtocols) {
		w.Status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *Writer) Write(p []byte) (int, error) {
	w.Status = cmp.Or(w.Status, http.StatusOK)
	return w.ResponseWriter.Write(p)
}

// ReadFrom implements io.ReaderFrom, so that files are still sent by the kernel.
func (w *Writer) ReadFrom(source io.Reader) (int64, error) {
	w.Status = cmp.Or(w.Status, http.StatusOK)
	return io.Copy(w.ResponseWriter, source)
}

// Unwrap is for http.ResponseController.
func (w *Writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }
