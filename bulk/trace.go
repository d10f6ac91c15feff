package bulk

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// TraceContext is a place in a trace, as the headers of W3C Trace Context have
// it; zero is none.
type TraceContext struct {
	// Parent is the traceparent: "00-{trace}-{span}-{flags}", in hexadecimal.
	Parent string `json:"traceparent"`
	// State is the tracestate: what others who trace have added. One of more than
	// 512 bytes, the least that everybody must pass on, is left out.
	State string `json:"tracestate,omitempty"`
}

const maxTraceState = 512

// WithTracerProvider makes spans of actions and of the attempts of their jobs;
// see docs/bulk/tracing.md for which. An action keeps the decision of the
// provider's sampler that was made when it was created. Default: no spans, and
// no context is kept with actions.
func WithTracerProvider(provider trace.TracerProvider) Option {
	return func(e *Engine) { e.spans = newSpans(provider) }
}

// traceContextOf is the place in a trace that a context has.
func traceContextOf(ctx context.Context) (c TraceContext) {
	propagation.TraceContext{}.Inject(ctx, (*carrier)(&c))
	if len(c.State) > maxTraceState {
		c.State = ""
	}
	return c
}

// Context returns ctx with the place as the parent of what follows: ctx itself,
// if there is none.
func (c TraceContext) Context(ctx context.Context) context.Context {
	if c.Parent == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, (*carrier)(&c))
}

// SpanContext returns the place as a link has it; it is not valid if there is
// none.
func (c TraceContext) SpanContext() trace.SpanContext {
	return trace.SpanContextFromContext(c.Context(context.Background()))
}

// links is the place as the links of a span; none if there is none.
func (c TraceContext) links() []trace.Link {
	if at := c.SpanContext(); at.IsValid() {
		return []trace.Link{{SpanContext: at}}
	}
	return nil
}

// carrier reads and writes a TraceContext by the names of its headers.
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
