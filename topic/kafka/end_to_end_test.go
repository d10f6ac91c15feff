package kafka

import (
	"context"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-project/sluice/topic"
)

// A client of franz-go consumes what it produced: each record once, in order, with every
// compression and over several partitions.
func TestProduceAndConsume(t *testing.T) {
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	for name, codec := range codecs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, b := serve(t, topic.Config{})
			create(t, b, "orders", 3)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			producer := client(t, s, kgo.ProducerBatchCompression(codec), kgo.RecordPartitioner(kgo.ManualPartitioner()))
			const each = 2000
			for i := range each {
				for partition := range int32(3) {
					producer.Produce(ctx, &kgo.Record{
						Topic: "orders", Partition: partition, Value: fmt.Appendf(nil, "value %d", i),
					}, func(_ *kgo.Record, err error) {
						if err != nil {
							t.Error(err)
						}
					})
				}
			}
			if err := producer.Flush(ctx); err != nil {
				t.Fatal(err)
			}
			consumer := client(t, s, kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
			next := map[int32]int64{}
			for next[0]+next[1]+next[2] < 3*each {
				fetches := consumer.PollFetches(ctx)
				for _, err := range fetches.Errors() {
					t.Fatal(err.Err)
				}
				fetches.EachRecord(func(r *kgo.Record) {
					if want := fmt.Sprintf("value %d", next[r.Partition]); r.Offset != next[r.Partition] || string(r.Value) != want {
						t.Fatalf("partition %d: offset %d has %q, want offset %d and %q", r.Partition, r.Offset, r.Value, next[r.Partition], want)
					}
					next[r.Partition]++
				})
			}
		})
	}
}
