package kafka

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic"
)

// serveView returns a server of a topic, and of a view of it that shows records
// whose key is "paid".
func serveView(t *testing.T) (*Server, *kgo.Client) {
	t.Helper()
	s, b := serve(t, topic.Config{})
	create(t, b, "orders", 1)
	if _, err := b.Create(t.Context(), topic.Spec{
		Name: "paid", Settings: map[string]string{topic.SettingViewOf: "orders", topic.SettingViewWhere: `key == "paid"`},
	}, false); err != nil {
		t.Fatal(err)
	}
	return s, client(t, s, kgo.DefaultProduceTopic("orders"), kgo.ProducerBatchCompression(kgo.NoCompression()))
}

func produceOrders(t *testing.T, to *kgo.Client, key string, count int) {
	t.Helper()
	for i := range count {
		to.Produce(t.Context(), &kgo.Record{Key: []byte(key), Value: fmt.Appendf(nil, "%s %0100d", key, i)}, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Error(err)
			}
		})
	}
	if err := to.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// fetchView fetches the records of the view once.
func fetchView(p *peer, version int16, offset int64, wait time.Duration) kmsg.FetchResponseTopicPartition {
	p.t.Helper()
	r := kmsg.NewPtrFetchRequest()
	r.MaxWaitMillis, r.MinBytes, r.MaxBytes = int32(wait.Milliseconds()), 1, 1<<20
	part := kmsg.NewFetchRequestTopicPartition()
	part.FetchOffset, part.PartitionMaxBytes, part.CurrentLeaderEpoch = offset, 1<<20, -1
	asked := kmsg.NewFetchRequestTopic()
	asked.Topic, asked.Partitions = "paid", []kmsg.FetchRequestTopicPartition{part}
	r.Topics = []kmsg.FetchRequestTopic{asked}
	answer := ask[*kmsg.FetchResponse](p, version, r)
	if len(answer.Topics) != 1 || len(answer.Topics[0].Partitions) != 1 {
		p.t.Fatalf("answer %+v", answer)
	}
	return answer.Topics[0].Partitions[0]
}

func TestViewSendsOnlyWhatPassesAndItsOffsetsAreTheSource(t *testing.T) {
	s, producer := serveView(t)
	for range 20 {
		produceOrders(t, producer, "paid", 10)
		produceOrders(t, producer, "open", 2000)
	}
	consumer := client(t, s, kgo.ConsumeTopics("paid"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	for seen := 0; seen < 200; {
		fetches := consumer.PollFetches(t.Context())
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			want := int64(seen/10*2010 + seen%10)
			if r.Offset != want || string(r.Key) != "paid" {
				t.Fatalf("record %d: offset %d, key %s; want offset %d", seen, r.Offset, r.Key, want)
			}
			seen++
		})
	}
}

func TestHiddenEndIsMarkedWhenTheWaitIsOver(t *testing.T) {
	s, producer := serveView(t)
	produceOrders(t, producer, "paid", 1)
	produceOrders(t, producer, "open", 500)
	began := time.Now()
	got := fetchView(dial(t, s), 12, 1, 300*time.Millisecond)
	if waited := time.Since(began); waited < 300*time.Millisecond {
		t.Errorf("answered after %v: hidden records must not end the wait", waited)
	}
	batches, err := topic.SplitBatches(got.RecordBatches)
	if err != nil || len(batches) != 1 || !batches[0].Control() || batches[0].Next() != 501 {
		t.Fatalf("%d batches, %v: want one marker up to 501", len(batches), err)
	}
	// Clients that would show markers as records get none: for them this is the end.
	got = fetchView(dial(t, s), 10, 1, 50*time.Millisecond)
	if len(got.RecordBatches) != 0 || got.HighWatermark != 1 {
		t.Errorf("version 10: %d bytes, high watermark %d", len(got.RecordBatches), got.HighWatermark)
	}
}

func TestLongGapIsScannedInBoundedSteps(t *testing.T) {
	s, producer := serveView(t)
	produceOrders(t, producer, "paid", 1)
	produceOrders(t, producer, "open", 60_000)
	produceOrders(t, producer, "paid", 1)
	for _, c := range []struct{ version, fetches int16 }{{12, 8}, {10, 1}} {
		p := dial(t, s)
		offset, fetches := int64(1), int16(0)
		for offset <= 60_001 && fetches < 20 {
			got := fetchView(p, c.version, offset, maxFetchWait)
			batches, err := topic.SplitBatches(got.RecordBatches)
			if err != nil || len(batches) != 1 {
				t.Fatalf("version %d at %d: %d batches, %v", c.version, offset, len(batches), err)
			}
			offset = batches[0].Next()
			fetches++
		}
		if offset != 60_002 || fetches > c.fetches {
			t.Errorf("version %d: %d fetches to offset %d, want at most %d to 60002", c.version, fetches, offset, c.fetches)
		}
	}
}
