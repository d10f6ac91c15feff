package bulk

import (
	"context"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// spans makes the spans of actions and attempts; nil makes none. All of an
// action are children of the one that was made when it was created, whose
// context the action keeps: so a trace is whole at every moment, whoever makes
// its spans and whatever has crashed.
type spans struct{ tracer trace.Tracer }

const tracerName = "github.com/sluice-project/sluice/bulk"

func newSpans(provider trace.TracerProvider) *spans {
	if provider == nil {
		return nil
	}
	return &spans{provider.Tracer(tracerName, trace.WithSchemaURL(semconv.SchemaURL))}
}

// The attributes that the semantic conventions have no name for.
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

// messaging are the attributes that every span has.
func messaging(spec *Spec, kind attribute.KeyValue, operation string, more ...attribute.KeyValue) []attribute.KeyValue {
	return append([]attribute.KeyValue{
		semconv.MessagingSystemKey.String("sluice"), kind, semconv.MessagingOperationName(operation),
		semconv.MessagingDestinationName(spec.Type),
		keyAction.String(spec.ID), keyTenant.String(legible(spec.Tenant)),
	}, more...)
}

// legible is a text as the protocol of traces can carry it: one that is not UTF-8
// would cost all spans that are sent together with it.
func legible(text string) string {
	if len(text) > MaxErrorBytes {
		text = text[:MaxErrorBytes]
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// create begins the span of an action's creation, and puts its context in the
// spec. What the spec had is replaced.
func (s *spans) create(ctx context.Context, spec *Spec, links ...trace.Link) (context.Context, trace.Span) {
	spec.Trace = TraceContext{}
	if s == nil {
		return ctx, nil
	}
	ctx, span := s.tracer.Start(ctx, "create "+spec.Type, trace.WithSpanKind(trace.SpanKindProducer), trace.WithLinks(links...))
	spec.Trace = traceContextOf(ctx)
	return ctx, span
}

// created ends what create began. An action that existed keeps the context it
// has; the span is linked to it.
func (s *spans) created(span trace.Span, action *Action, isNew bool, err error) {
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

// of returns a context for spans of an action, and whether there are any.
func (s *spans) of(ctx context.Context, spec *Spec) (_ context.Context, sampled bool) {
	if s == nil || spec == nil || spec.Trace.Parent == "" {
		return ctx, false
	}
	ctx = spec.Trace.Context(ctx)
	return ctx, trace.SpanContextFromContext(ctx).IsSampled()
}

// attempt begins the span of an attempt in this process. Without one, the
// context still tells the action's, for a handler to pass on that nobody wants
// spans.
func (s *spans) attempt(ctx context.Context, job *Job) (context.Context, trace.Span) {
	ctx, sampled := s.of(ctx, job.Spec)
	if !sampled {
		return ctx, nil
	}
	return s.tracer.Start(ctx, "process "+job.Spec.Type, trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
		messaging(job.Spec, semconv.MessagingOperationTypeProcess, "process", semconv.MessagingMessageID(job.ID()),
			keyAttempt.Int(job.Attempt), semconv.MessagingMessageBodySize(len(job.Payload)))...))
}

// attempted ends the span of an attempt, if there is one.
func (s *spans) attempted(span trace.Span, e *ended) {
	if span == nil {
		return
	}
	describe(span, e)
	span.End()
}

// describe says how an attempt ended. To be throttled, or handed back, is no
// error.
func describe(span trace.Span, e *ended) {
	outcome := e.outcome()
	span.SetAttributes(keyOutcome.String(outcomeLabels[outcome]))
	switch outcome {
	case FailedForGood:
		span.SetStatus(codes.Error, legible(e.settlement.Error))
	case FailedForNow:
		span.SetAttributes(keyReason.String(TransientError.String()))
		span.SetStatus(codes.Error, legible(e.settlement.Error))
	case Throttled:
		span.SetAttributes(keyReason.String(APIThrottled.String()), keyError.String(legible(e.settlement.Error)))
	}
}

// leased makes a span of each lease of a worker outside, whose own spans are its
// children.
func (s *spans) leased(jobs []Job) {
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
		if at := traceContextOf(ctx); at.Parent != "" {
			job.Trace = &at
		}
	}
}

// settled makes a span of each attempt that a worker outside has reported, for
// as long as it says that it took.
func (s *spans) settled(batch []ended, verdicts []Verdict) {
	if s == nil {
		return
	}
	now := time.Now()
	for i := range batch {
		e := &batch[i]
		ctx, sampled := s.of(context.Background(), e.spec)
		if !sampled || verdicts[i] != Accepted || e.settlement.Kind == Extended {
			continue
		}
		_, span := s.tracer.Start(ctx, "settle "+e.spec.Type, trace.WithTimestamp(now.Add(-e.settlement.Took)), trace.WithAttributes(
			messaging(e.spec, semconv.MessagingOperationTypeSettle, "settle",
				semconv.MessagingMessageID(JobID(e.spec.ID, int64(e.settlement.Lease.Index))))...))
		describe(span, e)
		span.End(trace.WithTimestamp(now))
	}
}

// aggregated makes the span of an action's last aggregation.
func (s *spans) aggregated(a *Action, began time.Time) {
	if ctx, sampled := s.of(context.Background(), &a.Spec); sampled {
		_, span := s.tracer.Start(ctx, "aggregate "+a.Type, trace.WithTimestamp(began), trace.WithAttributes(
			keyAction.String(a.ID), keyTenant.String(legible(a.Tenant)), keyBatches.Int64(int64(a.Batches)))) //nolint:gosec // G115: batches are far fewer.
		fail(span, a)
		span.End()
	}
}

// finished makes the span of an action that has finished, from its creation on.
// Who made the last move calls it, so that it is made once.
func (s *spans) finished(a *Action) {
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
	if !a.EnteredAt.IsZero() {
		span.AddEvent("sealed", trace.WithTimestamp(a.EnteredAt))
	}
	fail(span, a)
	span.End(trace.WithTimestamp(a.FinishedAt))
}

// fail makes a span an error if its action has failed.
func fail(span trace.Span, a *Action) {
	if a.Status == Failed {
		span.SetStatus(codes.Error, legible(a.Error))
	}
}

// create stores a new action. The links are to the traces of others.
func (e *Engine) create(ctx context.Context, spec Spec, links ...trace.Link) (action Action, created bool, err error) {
	ctx, span := e.spans.create(ctx, &spec, links...)
	action, created, err = e.store.Create(ctx, spec)
	e.spans.created(span, &action, created, err)
	e.outbox.wake()
	return action, created, err
}

// apply makes a move that may be an action's last, and traces the action then. The
// error is ErrNoChange if somebody else has made it.
func (e *Engine) apply(ctx context.Context, id string, move Move) (Action, error) {
	action, err := e.store.Move(ctx, id, move)
	if err == nil && !action.FinishedAt.IsZero() {
		e.spans.finished(&action)
	}
	return action, err
}
