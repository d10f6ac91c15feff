package spans

import (
	"slices"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// maxLinked bounds the records of an answer that are looked at for a trace.
const maxLinked = 32

// Links are links to the traces of the first records of an answer, each once.
type Links struct {
	found []trace.SpanContext
	// looked counts the records that were looked at.
	looked int
}

// Full reports whether no more records are looked at.
func (l *Links) Full() bool { return l.looked == maxLinked }

// Add looks for the trace of a record in its headers, traceparent and tracestate; an empty one is none.
func (l *Links) Add(header func(key string) string) {
	l.looked++
	context := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(background, headers(header)))
	if context.IsValid() && !slices.ContainsFunc(l.found, context.Equal) {
		l.found = append(l.found, context)
	}
}

// headers are those of a record, as a propagation.TextMapCarrier that is only read.
type headers func(key string) string

// Get implements propagation.TextMapCarrier.
func (h headers) Get(key string) string { return legible(h(key)) }

// Set implements propagation.TextMapCarrier; nothing calls it.
func (h headers) Set(string, string) {}

// Keys implements propagation.TextMapCarrier; nothing calls it.
func (h headers) Keys() []string { return nil }
