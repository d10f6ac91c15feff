package e2e

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

// The consumer of a view that shows one record in a hundred receives at most 2 % of the bytes that
// a consumer of the whole topic receives, counted on their connections. Records have 100 bytes, are
// not compressed, and come in batches of a hundred, each with one matching record.
func TestTopicViewSendsWhatItShows(t *testing.T) {
	t.Parallel()
	const count = 100_000
	s := newServer(t)
	s.start()
	s.newTopic("events", 1)
	s.newTopic("paid", -1, "sluice.view.of", "events", "sluice.view.where", `headers.tag == "paid"`)
	var sent batchSizes
	producer := s.connect(kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerBatchMaxBytes(14_200), kgo.ManualFlushing(),
		kgo.MaxBufferedRecords(20_000), kgo.WithHooks(&sent))
	for from := 0; from < count; from += 20_000 {
		for i := from; i < min(from+20_000, count); i++ {
			tag := "open"
			if i%100 == 0 {
				tag = "paid"
			}
			record := &kgo.Record{
				Topic: "events", Value: fmt.Appendf(nil, "%-100d", i),
				Headers: []kgo.RecordHeader{{Key: "tag", Value: []byte(tag)}},
			}
			producer.Produce(t.Context(), record, func(_ *kgo.Record, err error) {
				if err != nil {
					t.Error(err)
				}
			})
		}
		if err := producer.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	// A flush may leave a smaller batch at its end.
	if full, small := sent.split(100); full < count/150 || small > count/20_000 {
		t.Fatalf("%d batches have 100 records or more, and %d have less: what was measured is something else", full, small)
	}
	whole := s.consumeCounting("events", count, 1)
	view := s.consumeCounting("paid", count/100, 100)
	t.Logf("the topic: %d bytes; the view: %d, %.2f %%", whole, view, 100*float64(view)/float64(whole))
	if view*50 > whole {
		t.Errorf("the consumer of the view got %d bytes, that of the topic %d: want at most 2 %%", view, whole)
	}
}

// batchSizes counts written batches by their number of records.
type batchSizes struct {
	mu sync.Mutex
	by map[int]int
}

// OnProduceBatchWritten implements kgo.HookProduceBatchWritten.
func (b *batchSizes) OnProduceBatchWritten(_ kgo.BrokerMetadata, _ string, _ int32, m kgo.ProduceBatchMetrics) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.by == nil {
		b.by = map[int]int{}
	}
	b.by[m.NumRecords]++
}

// split returns how many batches have at least the given number of records, and how many have
// fewer.
func (b *batchSizes) split(records int) (full, small int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for size, n := range b.by {
		if size >= records {
			full += n
		} else {
			small += n
		}
	}
	return full, small
}

// consumeCounting reads count records, whose values count up from 0 by step, and returns the bytes
// that its client received.
func (s *server) consumeCounting(topic string, count, step int) int64 {
	s.t.Helper()
	var w wire
	client := s.connect(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(0)}}), kgo.Dialer(w.dial))
	defer client.Close()
	ctx, cancel := context.WithTimeout(s.t.Context(), until.Limit)
	defer cancel()
	for n := 0; n < count; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil && (ctx.Err() != nil || !awayOrLoading(err)) {
			s.t.Fatalf("%s, after %d of %d records: %v", topic, n, count, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if want := fmt.Append(nil, n*step); !bytes.Equal(bytes.TrimRight(r.Value, " "), want) || r.Offset != int64(n*step) {
				s.t.Fatalf("%s, record %d: offset %d, value %s", topic, n, r.Offset, r.Value)
			}
			n++
		})
	}
	return w.received.Load()
}
