package engine

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-project/sluice/room"
)

// WithTracerProvider creates spans of what visitors do whose request is in a sampled trace, and of each
// round that admits or removes visitors: see docs/tracing.md. The default is none.
func WithTracerProvider(provider trace.TracerProvider) Option {
	return func(e *Engine) {
		if provider != nil {
			e.spans = &spans{provider.Tracer(tracerName, trace.WithSchemaURL(semconv.SchemaURL))}
		}
	}
}

// spans creates the spans of rooms; nil creates none.
type spans struct{ tracer trace.Tracer }

const tracerName = "github.com/sluice-project/sluice/room"

// Attributes without a name in the semantic conventions.
const (
	keyRoom     = attribute.Key("sluice.room")
	keyVisitor  = attribute.Key("sluice.visitor.id")
	keyStatus   = attribute.Key("sluice.visitor.status")
	keyPosition = attribute.Key("sluice.visitor.position")
	keyNew      = attribute.Key("sluice.visitor.new")
	keyRefused  = attribute.Key("sluice.visitor.refused")
	keyReason   = attribute.Key("sluice.visitor.gone")
	keyAdmitted = attribute.Key("sluice.room.admitted")
	keyMissed   = attribute.Key("sluice.room.missed")
	keyExpired  = attribute.Key("sluice.room.expired")
	keyWaiting  = attribute.Key("sluice.room.waiting")
	keyInside   = attribute.Key("sluice.room.inside")
)

// visitSpan is the span of an operation of one visitor; with nil there is none.
type visitSpan struct{ span trace.Span }

// visit begins the span of an operation of one visitor, a child of a span that is recorded.
func (s *spans) visit(ctx context.Context, operation, name string) visitSpan {
	if s == nil || !trace.SpanFromContext(ctx).IsRecording() {
		return visitSpan{}
	}
	_, span := s.tracer.Start(ctx, operation+" "+name, trace.WithAttributes(keyRoom.String(name)))
	return visitSpan{span}
}

// end ends the span with the answer. Only a fault of the server is an error: to be gone or refused is none.
func (v visitSpan) end(answer *Answer, err *error) {
	if v.span == nil {
		return
	}
	defer v.span.End()
	if *err != nil {
		refused(v.span, *err)
		return
	}
	v.span.SetAttributes(keyVisitor.String(strconv.FormatInt(answer.ID, 10)), keyStatus.String(answer.State.String()), keyNew.Bool(answer.New))
	if answer.Position > 0 {
		v.span.SetAttributes(keyPosition.Int64(answer.Position))
	}
}

// refused sets why there is no answer.
func refused(span trace.Span, err error) {
	var gone *room.GoneError
	switch {
	case errors.As(err, &gone):
		span.SetAttributes(keyVisitor.String(strconv.FormatInt(gone.ID, 10)), keyReason.String(string(gone.Reason)))
	case errors.Is(err, room.ErrUnavailable), errors.Is(err, room.ErrBroken), errors.Is(err, room.ErrClosed):
		span.SetStatus(codes.Error, err.Error())
	default:
		span.SetAttributes(keyRefused.String(strings.ToValidUTF8(err.Error(), "\uFFFD")))
	}
}

// admitted creates the span of a round that changed who is inside, by the counts of the round before and of this one. It is a
// trace of its own, since the round is of no single visitor.
func (s *spans) admitted(name string, began time.Time, before, now *room.Status) {
	admitted, missed, expired := now.Admitted-before.Admitted, now.NoShows-before.NoShows, now.Expired-before.Expired
	if admitted+missed+expired == 0 {
		return
	}
	_, span := s.tracer.Start(context.Background(), "admit "+name, trace.WithTimestamp(began), trace.WithAttributes(
		keyRoom.String(name), keyAdmitted.Int64(admitted), keyMissed.Int64(missed), keyExpired.Int64(expired),
		keyWaiting.Int64(now.Waiting), keyInside.Int64(now.Inside)))
	span.End()
}
