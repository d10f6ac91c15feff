package bulk

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// TraceContext is a position in a trace, as in the headers of W3C Trace Context. The
// zero value is none.
type TraceContext struct {
	// Parent is the traceparent: "00-{trace}-{span}-{flags}", in hexadecimal.
	Parent string `json:"traceparent"`
	// State is the tracestate of other tracing systems. It is dropped above 512 bytes,
	// the minimum that every system must propagate.
	State string `json:"tracestate,omitempty"`
}

const maxTraceState = 512

// TraceContextOf returns the position in a trace of a context.
func TraceContextOf(ctx context.Context) (c TraceContext) {
	propagation.TraceContext{}.Inject(ctx, (*carrier)(&c))
	if len(c.State) > maxTraceState {
		c.State = ""
	}
	return c
}

// Context returns ctx with the position as the parent of further spans; ctx itself if
// there is none.
func (c TraceContext) Context(ctx context.Context) context.Context {
	if c.Parent == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, (*carrier)(&c))
}

// SpanContext returns the position for a link. It is not valid if there is none.
func (c TraceContext) SpanContext() trace.SpanContext {
	return trace.SpanContextFromContext(c.Context(context.Background()))
}

// carrier reads and writes a TraceContext by header names.
type carrier TraceContext

var _ propagation.TextMapCarrier = (*carrier)(nil)

func (c *carrier) field(name string) *string {
	if strings.EqualFold(name, "tracestate") {
		return &c.State
	}
	return &c.Parent
}

func (c *carrier) Get(name string) string { return *c.field(name) }
func (c *carrier) Set(name, value string) { *c.field(name) = value }
func (c *carrier) Keys() []string         { return propagation.TraceContext{}.Fields() }
