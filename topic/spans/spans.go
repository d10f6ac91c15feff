package spans

import (
	"context"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// Spans makes spans with a provider. It is safe for concurrent use.
type Spans struct{ tracer trace.Tracer }

const tracerName = "github.com/sluice-project/sluice/topic"

// New returns what makes spans with a provider; nil for nil.
func New(provider trace.TracerProvider) *Spans {
	if provider == nil {
		return nil
	}
	return &Spans{provider.Tracer(tracerName, trace.WithSchemaURL(semconv.SchemaURL))}
}

// Attributes without a name in the semantic conventions.
const (
	keyPartitions  = attribute.Key("sluice.partitions")
	keyBytes       = attribute.Key("sluice.bytes")
	keyRemoved     = attribute.Key("sluice.bytes.removed")
	keyAcks        = attribute.Key("sluice.kafka.acks")
	keyTransaction = attribute.Key("sluice.transaction.id")
	keyGeneration  = attribute.Key("sluice.group.generation")
	keyMember      = attribute.Key("sluice.group.member")
)

// Batch is what a request has of records.
type Batch struct {
	// Client is the id that the client gives itself.
	Client string
	// Group is the share group that the request is of; "" for others.
	Group string
	// Topic is that of all records; "" if they are of several.
	Topic string
	// Partitions with records or acknowledgements, and the bytes of the records, compressed as they are.
	Partitions, Bytes int
	// Failed is the first error that the answer has; nil for none.
	Failed error
}

// Add adds the records of a partition.
func (b *Batch) Add(topic string, bytes int, failed error) {
	if b.Partitions++; b.Partitions == 1 {
		b.Topic = topic
	} else if b.Topic != topic {
		b.Topic = ""
	}
	b.Bytes += bytes
	if b.Failed == nil {
		b.Failed = failed
	}
}

// Sent makes the span of a Produce request.
func (s *Spans) Sent(began time.Time, b *Batch, acks int16, transaction string) {
	span := s.start("send", b.Topic, began, trace.SpanKindServer)
	if span.IsRecording() {
		b.describe(span, semconv.MessagingOperationTypeSend, semconv.MessagingOperationName("send"), keyAcks.Int(int(acks)))
		if transaction != "" {
			span.SetAttributes(keyTransaction.String(legible(transaction)))
		}
	}
	end(span, b.Failed)
}

// Polled makes the span of a Fetch or ShareFetch request whose answer has records. It is as long as the request has waited for them, and linked
// to the traces of the records, which link adds.
func (s *Spans) Polled(began time.Time, b *Batch, link func(*Links)) {
	span := s.start("poll", b.Topic, began, trace.SpanKindServer)
	if span.IsRecording() {
		var links Links
		link(&links)
		links.release()
		for _, of := range links.found {
			span.AddLink(trace.Link{SpanContext: of})
		}
		b.describe(span, semconv.MessagingOperationTypeReceive, semconv.MessagingOperationName("poll"))
	}
	end(span, b.Failed)
}

// Settled makes the span of a ShareAcknowledge request, which has no records.
func (s *Spans) Settled(began time.Time, b *Batch) {
	span := s.start("settle", b.Topic, began, trace.SpanKindServer)
	if span.IsRecording() {
		b.describe(span, semconv.MessagingOperationTypeSettle, semconv.MessagingOperationName("settle"))
	}
	end(span, b.Failed)
}

func (b *Batch) describe(span trace.Span, more ...attribute.KeyValue) {
	span.SetAttributes(append(more, semconv.MessagingSystemKafka, semconv.MessagingClientID(legible(b.Client)), keyPartitions.Int(b.Partitions))...)
	if b.Bytes > 0 {
		span.SetAttributes(keyBytes.Int(b.Bytes))
	}
	if b.Topic != "" {
		span.SetAttributes(semconv.MessagingDestinationName(b.Topic))
	}
	if b.Group != "" {
		span.SetAttributes(semconv.MessagingConsumerGroupName(legible(b.Group)))
	}
}

// Ended makes the span of an EndTxn request.
func (s *Spans) Ended(began time.Time, client, transaction string, commit bool, failed error) {
	name := "abort"
	if commit {
		name = "commit"
	}
	span := s.start(name, "transaction", began, trace.SpanKindServer)
	if span.IsRecording() {
		span.SetAttributes(semconv.MessagingSystemKafka, semconv.MessagingOperationName(name), semconv.MessagingClientID(legible(client)),
			keyTransaction.String(legible(transaction)))
	}
	end(span, failed)
}

// Rebalanced makes the span of a member that joins a group of the classic protocol, as long as it has waited for the others, or of a
// heartbeat of another group that changes what its member has; generation is then the member's epoch.
func (s *Spans) Rebalanced(began time.Time, client, group, member string, generation int32, failed error) {
	span := s.start("rebalance", group, began, trace.SpanKindServer)
	if span.IsRecording() {
		span.SetAttributes(semconv.MessagingSystemKafka, semconv.MessagingOperationName("rebalance"), semconv.MessagingClientID(legible(client)),
			semconv.MessagingConsumerGroupName(legible(group)), keyMember.String(legible(member)), keyGeneration.Int(int(generation)))
	}
	end(span, failed)
}

// Compacted makes the span of a compaction of a partition, which has removed so many of its bytes.
func (s *Spans) Compacted(began time.Time, topic string, partition int32, bytes, removed int64, failed error) {
	span := s.start("compact", topic, began, trace.SpanKindInternal)
	if span.IsRecording() {
		span.SetAttributes(semconv.MessagingDestinationName(topic), semconv.MessagingDestinationPartitionID(strconv.Itoa(int(partition))), keyBytes.Int64(bytes), keyRemoved.Int64(removed))
	}
	end(span, failed)
}

// Delivered makes the span of delayed records that were due, and are now in their partition.
func (s *Spans) Delivered(began time.Time, topic string, partition int32, records, bytes int, failed error) {
	span := s.start("deliver", topic, began, trace.SpanKindInternal)
	if span.IsRecording() {
		span.SetAttributes(semconv.MessagingDestinationName(topic), semconv.MessagingDestinationPartitionID(strconv.Itoa(int(partition))),
			semconv.MessagingBatchMessageCount(records), keyBytes.Int(bytes))
	}
	end(span, failed)
}

// background is the context of spans, which are all of a trace of their own.
var background = context.Background()

// start begins a span, whose name has no more than an operation where there is no subject.
func (s *Spans) start(operation, subject string, began time.Time, kind trace.SpanKind) trace.Span {
	if s == nil {
		return trace.SpanFromContext(background)
	}
	if subject != "" {
		operation += " " + legible(subject)
	}
	_, span := s.tracer.Start(background, operation, trace.WithTimestamp(began), trace.WithSpanKind(kind))
	return span
}

// end ends a span. Any error that a client gets is one of the span.
func end(span trace.Span, failed error) {
	if failed != nil && span.IsRecording() {
		span.SetStatus(codes.Error, legible(failed.Error()))
	}
	span.End()
}

// maxText bounds a text of foreign origin.
const maxText = 1024

// legible returns a text as valid UTF-8: any other text would make the exporter drop all spans of its batch.
func legible(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxText)], "\uFFFD")
}
