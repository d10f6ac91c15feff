package spans

import (
	"slices"
	"sync"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-project/sluice/topic"
)

const (
	// maxLinked bounds the records of an answer that are looked at for a trace.
	maxLinked = 32
	// maxPassed bounds the records before those of an answer that are read, which are in the same batch.
	maxPassed = 4096
	// maxUnpacked bounds what the compressed batches of an answer have together, decompressed: further ones are left out. They are sent as
	// they are stored, and a span should not cost more than the answer.
	maxUnpacked = 1 << 20
)

// Links are links to the traces of the first records of an answer, each once.
type Links struct {
	found []trace.SpanContext
	// looked counts the records that were looked at.
	looked int
	// buffer is what compressed batches are decompressed into, and space the rest of it; nil until there is one.
	buffer *[maxUnpacked]byte
	space  []byte
}

var buffers = sync.Pool{New: func() any { return new([maxUnpacked]byte) }}

// Read looks for the traces of the records in pieces of whole batches whose offset read accepts.
func (l *Links) Read(data [][]byte, read func(offset int64) bool) {
	passed := 0
	for _, piece := range data {
		batches, err := topic.SplitBatches(piece)
		if err != nil {
			return
		}
		for _, batch := range batches {
			if batch.Control() || l.full() {
				continue
			}
			reader := topic.NewRecordReader(batch, l.unpack(batch))
			for !l.full() && passed < maxPassed && reader.Next() {
				if read(reader.Record.Offset) {
					l.add(&reader.Record)
				} else {
					passed++
				}
			}
		}
	}
}

// unpack returns the records of a batch; none if they have no space any more.
func (l *Links) unpack(batch topic.Batch) []byte {
	if batch.Compression() != topic.CodecNone && l.buffer == nil {
		l.buffer = buffers.Get().(*[maxUnpacked]byte)
		l.space = l.buffer[:]
	}
	data, err := topic.DecompressInto(l.space, batch.Compression(), batch[topic.RecordsAt:])
	if err != nil {
		l.space = nil
		return nil
	}
	if batch.Compression() != topic.CodecNone {
		l.space = l.space[len(data):]
	}
	return data
}

// release gives the buffer back. Nothing that was found is in it.
func (l *Links) release() {
	if l.buffer != nil {
		buffers.Put(l.buffer)
	}
}

// full reports whether no more records are looked at.
func (l *Links) full() bool { return l.looked == maxLinked }

// add looks for the trace of a record in its headers, traceparent and tracestate.
func (l *Links) add(record *topic.Record) {
	l.looked++
	context := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(background, headers{record}))
	if context.IsValid() && !slices.ContainsFunc(l.found, context.Equal) {
		l.found = append(l.found, context)
	}
}

// headers are those of a record, as a propagation.TextMapCarrier that is only read.
type headers struct{ of *topic.Record }

// Get implements propagation.TextMapCarrier: it returns the last header of a name, as clients do.
func (h headers) Get(key string) string {
	for _, header := range slices.Backward(h.of.Headers) {
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
