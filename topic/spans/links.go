package spans

import (
	"slices"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-project/sluice/topic"
)

const (
	// maxLooked bounds the records of an answer that are looked at for a trace.
	maxLooked = 32
	// maxPassed bounds the records that are passed over, as batches have them and the answer does not.
	maxPassed = 4096
)

// Links are links to the traces of the first records of an answer, by their headers traceparent and tracestate, each once. Compressed
// records are left out: an answer has them as they are stored, and to decompress them for a span would cost more than all the rest.
type Links struct {
	found []trace.SpanContext
	// looked and passed count records.
	looked, passed int
}

// Add looks at pieces of whole batches, of which the answer has the records whose offset read accepts.
func (l *Links) Add(data [][]byte, read func(offset int64) bool) {
	for _, piece := range data {
		batches, err := topic.SplitBatches(piece)
		if err != nil {
			return
		}
		for _, batch := range batches {
			if batch.Compression() == topic.CodecNone && !batch.Control() {
				l.batch(batch, read)
			}
		}
	}
}

func (l *Links) batch(batch topic.Batch, read func(offset int64) bool) {
	reader := topic.NewRecordReader(batch, batch[topic.RecordsAt:])
	for l.looked < maxLooked && l.passed < maxPassed && reader.Next() {
		if !read(reader.Record.Offset) {
			l.passed++
			continue
		}
		l.looked++
		context := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(background, headers(reader.Record.Headers)))
		if context.IsValid() && !slices.ContainsFunc(l.found, context.Equal) {
			l.found = append(l.found, context)
		}
	}
}

// headers are those of a record, as a propagation.TextMapCarrier that is only read.
type headers []topic.Header

// Get implements propagation.TextMapCarrier. Of several headers of a name it is the last, as in Kafka's clients.
func (h headers) Get(key string) string {
	for _, header := range slices.Backward(h) {
		if header.Key == key {
			return legible(string(header.Value))
		}
	}
	return ""
}

// Set implements propagation.TextMapCarrier; nothing calls it.
func (h headers) Set(string, string) {}

// Keys implements propagation.TextMapCarrier; nothing calls it.
func (h headers) Keys() []string { return nil }
