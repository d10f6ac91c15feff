package engine

import (
	"context"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-project/sluice/bulk"
)

// WithTracerProvider creates spans of actions and of the attempts of their jobs: see
// docs/tracing.md. The provider's sampler decides when an action is created. Without
// a provider, the default, there are no spans, and actions keep no trace context.
func WithTracerProvider(provider trace.TracerProvider) Option {
	return func(e *Engine) { e.spans = newSpans(provider) }
}

// spans creates the spans of actions and attempts; nil creates none. All spans of an
// action are children of the span of its creation, whose context the action keeps: so
// the trace is connected at every moment, with several instances and over crashes.
type spans struct{ tracer trace.Tracer }

const tracerName = "github.com/sluice-project/sluice/bulk"

func newSpans(provider trace.TracerProvider) *spans {
	if provider == nil {
		return nil
	}
	return &spans{provider.Tracer(tracerName, trace.WithSchemaURL(semconv.SchemaURL))}
}

// Attributes without a name in the semantic conventions.
const (
	keyAction  = attribute.Key("sluice.action.id")
	keyTenant  = attribute.Key("sluice.tenant")
	keyClass   = attribute.Key("sluice.action.class")
	keyStatus  = attribute.Key("sluice.action.status")
	keyReplay  = attribute.Key("sluice.action.replay_of")
	keyTarget  = attribute.Key("sluice.target")
	keyAttempt = attribute.Key("sluice.job.attempt")
	keyOutcome = attribute.Key("sluice.job.outcome")
	keyReason  = attribute.Key("sluice.job.reason")
	keyError   = attribute.Key("sluice.job.error")
	keyBatches = attribute.Key("sluice.action.batches")
)

// messaging returns the attributes of every span.
func messaging(spec *bulk.Spec, kind attribute.KeyValue, operation string, more ...attribute.KeyValue) []attribute.KeyValue {
	return append([]attribute.KeyValue{
		semconv.MessagingSystemKey.String("sluice"), kind, semconv.MessagingOperationName(operation),
		semconv.MessagingDestinationName(spec.Type),
		keyAction.String(spec.ID), keyTenant.String(legible(spec.Tenant)),
	}, more...)
}

// legible returns a text as valid UTF-8: any other text would make the exporter drop
// all spans of its batch.
func legible(text string) string {
	if len(text) > bulk.MaxErrorBytes {
		text = text[:bulk.MaxErrorBytes]
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// create begins the span of an action's creation, and sets its context in the spec.
func (s *spans) create(ctx context.Context, spec *bulk.Spec, links ...trace.Link) (context.Context, trace.Span) {
	spec.Trace = bulk.TraceContext{}
	if s == nil {
		return ctx, nil
	}
	ctx, span := s.tracer.Start(ctx, "create "+spec.Type, trace.WithSpanKind(trace.SpanKindProducer), trace.WithLinks(links...))
	spec.Trace = bulk.TraceContextOf(ctx)
	return ctx, span
}

// created ends the span of create. An action that existed keeps its context, and the
// span is linked to it.
func (s *spans) created(span trace.Span, action *bulk.Action, isNew bool, err error) {
	if s == nil {
		return
	}
	defer span.End()
	if !span.IsRecording() {
		return
	}
	if err != nil {
		span.SetStatus(codes.Error, legible(err.Error()))
		return
	}
	span.SetAttributes(messaging(&action.Spec, semconv.MessagingOperationTypeCreate, "create", keyClass.String(action.Class.String()))...)
	if first := action.Trace.SpanContext(); !isNew && first.IsValid() {
		span.AddLink(trace.Link{SpanContext: first})
	}
}

// of returns a context for spans of an action, and whether they are sampled.
func (s *spans) of(ctx context.Context, spec *bulk.Spec) (_ context.Context, sampled bool) {
	if s == nil || spec == nil || spec.Trace.Parent == "" {
		return ctx, false
	}
	ctx = spec.Trace.Context(ctx)
	return ctx, trace.SpanContextFromContext(ctx).IsSampled()
}

// attempt begins the span of an attempt in this process. If the action is not sampled,
// the context still has the action's position, so that handlers propagate that.
func (s *spans) attempt(ctx context.Context, job *bulk.Job) (context.Context, trace.Span) {
	ctx, sampled := s.of(ctx, job.Spec)
	if !sampled {
		return ctx, nil
	}
	return s.tracer.Start(ctx, "process "+job.Spec.Type, trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
		messaging(job.Spec, semconv.MessagingOperationTypeProcess, "process", semconv.MessagingMessageID(job.ID()),
			keyAttempt.Int(job.Attempt), semconv.MessagingMessageBodySize(len(job.Payload)))...))
}

// attempted ends the span of an attempt, if there is one.
func (s *spans) attempted(span trace.Span, e *attemptOutcome) {
	if span == nil {
		return
	}
	describe(span, e)
	span.End()
}

// describe sets the outcome of an attempt. To be throttled or released is no error.
func describe(span trace.Span, e *attemptOutcome) {
	kind := e.kind()
	span.SetAttributes(keyOutcome.String(outcomeLabels[kind]))
	switch kind {
	case bulk.FailedForGood:
		span.SetStatus(codes.Error, legible(e.settlement.Error))
	case bulk.FailedForNow:
		span.SetAttributes(keyReason.String(bulk.TransientError.String()))
		span.SetStatus(codes.Error, legible(e.settlement.Error))
	case bulk.Throttled:
		span.SetAttributes(keyReason.String(bulk.APIThrottled.String()), keyError.String(legible(e.settlement.Error)))
	}
}

// leased creates a span of each lease of a remote worker, as the parent of the worker's
// spans.
func (s *spans) leased(jobs []bulk.Job) {
	if s == nil {
		return
	}
	for i := range jobs {
		job := &jobs[i]
		ctx, sampled := s.of(context.Background(), job.Spec)
		if sampled {
			var span trace.Span
			ctx, span = s.tracer.Start(ctx, "lease "+job.Spec.Type, trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(
				messaging(job.Spec, semconv.MessagingOperationTypeSend, "lease", semconv.MessagingMessageID(job.ID()),
					keyAttempt.Int(job.Attempt), semconv.MessagingMessageBodySize(len(job.Payload)))...))
			span.End()
		}
		if at := bulk.TraceContextOf(ctx); at.Parent != "" {
			job.Trace = &at
		}
	}
}

// settled creates a span of each attempt that a remote worker has reported, with the
// duration that it reported.
func (s *spans) settled(batch []attemptOutcome, verdicts []bulk.Verdict) {
	if s == nil {
		return
	}
	now := time.Now()
	for i := range batch {
		e := &batch[i]
		ctx, sampled := s.of(context.Background(), e.spec)
		if !sampled || verdicts[i] != bulk.Accepted || e.settlement.Kind == bulk.Extended {
			continue
		}
		_, span := s.tracer.Start(ctx, "settle "+e.spec.Type, trace.WithTimestamp(now.Add(-e.settlement.Took)), trace.WithAttributes(
			messaging(e.spec, semconv.MessagingOperationTypeSettle, "settle",
				semconv.MessagingMessageID(bulk.JobID(e.spec.ID, int64(e.settlement.Lease.Index))))...))
		describe(span, e)
		span.End(trace.WithTimestamp(now))
	}
}

// aggregated creates the span of an action's last aggregation.
func (s *spans) aggregated(a *bulk.Action, began time.Time) {
	if ctx, sampled := s.of(context.Background(), &a.Spec); sampled {
		_, span := s.tracer.Start(ctx, "aggregate "+a.Type, trace.WithTimestamp(began), trace.WithAttributes(
			keyAction.String(a.ID), keyTenant.String(legible(a.Tenant)), keyBatches.Int64(int64(a.Batches)))) //nolint:gosec // G115: batches are far fewer.
		fail(span, a)
		span.End()
	}
}

// finished creates the span of an action that has finished, from its creation on. The
// caller that made the last transition calls it, so there is one such span.
func (s *spans) finished(a *bulk.Action) {
	ctx, sampled := s.of(context.Background(), &a.Spec)
	if !sampled {
		return
	}
	attributes := messaging(&a.Spec, semconv.MessagingOperationTypeProcess, "action",
		keyClass.String(a.Class.String()), keyStatus.String(string(a.Status)))
	for _, count := range []struct {
		name string
		jobs int64
	}{
		{"total", a.Received}, {"succeeded", a.Succeeded}, {"failed", a.Failed}, {"canceled", a.Counts.Canceled},
		{"throttled", a.Throttled}, {"retried", a.Retried},
	} {
		attributes = append(attributes, attribute.Int64("sluice.jobs."+count.name, count.jobs))
	}
	if a.Target != nil {
		attributes = append(attributes, keyTarget.String(legible(a.Target.Name)))
	}
	if a.ReplayOf != "" {
		attributes = append(attributes, keyReplay.String(a.ReplayOf))
	}
	_, span := s.tracer.Start(ctx, "action "+a.Type, trace.WithTimestamp(a.CreatedAt), trace.WithAttributes(attributes...))
	if !a.EnteredAt.IsZero() && !a.Stream {
		span.AddEvent("sealed", trace.WithTimestamp(a.EnteredAt))
	}
	fail(span, a)
	span.End(trace.WithTimestamp(a.FinishedAt))
}

// fail marks the span of an action that has failed as an error.
func fail(span trace.Span, a *bulk.Action) {
	if a.Status == bulk.Failed {
		span.SetStatus(codes.Error, legible(a.Error))
	}
}

// linksOf returns a position as the links of a span, if there is one.
func linksOf(c bulk.TraceContext) []trace.Link {
	if at := c.SpanContext(); at.IsValid() {
		return []trace.Link{{SpanContext: at}}
	}
	return nil
}
