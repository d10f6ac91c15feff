package kafka

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/filestore"
	"github.com/sluice-project/sluice/topic/storetest"
)

// forgetful is a store that drops its records.
type forgetful struct{ *storetest.Memory }

type forgetfulLog struct{ topic.Log }

func (f *forgetful) OpenLog(ctx context.Context, name string, nodes []int32) (topic.Log, error) {
	log, err := f.Memory.OpenLog(ctx, name, nodes)
	return forgetfulLog{log}, err
}

func (l forgetfulLog) Append(entry topic.Entry, done func(error)) {
	entry.Data = nil
	l.Log.Append(entry, done)
}

// BenchmarkProduce sends batches of 1 MiB, several in flight.
func BenchmarkProduce(b *testing.B) {
	broker := startBroker(b, &forgetful{Memory: storetest.NewMemory()}, topic.Config{TailBytes: 32 << 20})
	s := start(b, broker, Options{})
	create(b, broker, "orders", 1)
	p := dial(b, s)
	r := produceRequest("orders", 0, batchOf(make([]byte, 1<<20-200)))
	frame := kmsg.NewRequestFormatter().AppendRequest(nil, r, 1)
	b.SetBytes(int64(len(frame)))
	const ahead = 4
	under := 0
	for b.Loop() {
		p.write(frame)
		if under++; under == ahead {
			p.frame()
			under--
		}
	}
	for ; under > 0; under-- {
		p.frame()
	}
}

// BenchmarkFetch reads records in memory, 8 MiB at a time.
func BenchmarkFetch(b *testing.B) {
	s, broker := serve(b, topic.Config{})
	create(b, broker, "orders", 1)
	p := dial(b, s)
	for range 64 {
		ask[*kmsg.ProduceResponse](p, 11, produceRequest("orders", 0, batchOf(make([]byte, 128<<10))))
	}
	r := fetchRequest("orders", 0, 0)
	r.Version, r.MaxBytes, r.Topics[0].Partitions[0].PartitionMaxBytes = 12, 64<<20, 64<<20
	frame := kmsg.NewRequestFormatter().AppendRequest(nil, r, 1)
	b.SetBytes(64 * 128 << 10)
	body := make([]byte, 10<<20)
	for b.Loop() {
		p.write(frame)
		p.frameInto(body)
	}
}

// BenchmarkTransactions commits transactions of so many records of 1,000 bytes over three partitions, on the disk, from so many
// producers at once. Beside it, producers that are idempotent only wait for as many records.
func BenchmarkTransactions(b *testing.B) {
	for _, producers := range []int{1, 8, 32} {
		for _, records := range []int{3, 3000} {
			for _, plain := range []bool{false, true} {
				name := fmt.Sprintf("producers=%d/records=%d/commits", producers, records)
				if plain {
					name = fmt.Sprintf("producers=%d/records=%d/idempotent", producers, records)
				}
				b.Run(name, func(b *testing.B) { benchmarkTransactions(b, producers, records, plain) })
			}
		}
	}
}

func benchmarkTransactions(b *testing.B, producers, records int, plain bool) {
	store, err := filestore.Open(b.TempDir(), filestore.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = store.Close() })
	broker := startBroker(b, store, topic.Config{})
	s := start(b, broker, Options{})
	create(b, broker, "orders", 3)
	var clients []*kgo.Client
	for i := range producers {
		options := []kgo.Opt{kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression())}
		if !plain {
			options = append(options, kgo.TransactionalID(fmt.Sprint(i)))
		}
		clients = append(clients, client(b, s, options...))
	}
	var left atomic.Int64
	left.Store(int64(b.N))
	times := make([][]time.Duration, producers)
	var group sync.WaitGroup
	b.ResetTimer()
	for i, c := range clients {
		group.Go(func() {
			for left.Add(-1) >= 0 {
				began := time.Now()
				if err := sendTogether(b.Context(), c, records, plain); err != nil {
					b.Error(err)
				}
				times[i] = append(times[i], time.Since(began))
			}
		})
	}
	group.Wait()
	b.StopTimer()
	all := slices.Sorted(slices.Values(slices.Concat(times...)))
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "transactions/s")
	b.ReportMetric(float64(b.N*records)/b.Elapsed().Seconds(), "records/s")
	b.ReportMetric(float64(all[len(all)/2])/1e6, "p50-ms")
	b.ReportMetric(float64(all[len(all)*99/100])/1e6, "p99-ms")
}

// sendTogether sends records of 1,000 bytes to three partitions, and waits for them; in a transaction unless plain.
func sendTogether(ctx context.Context, c *kgo.Client, records int, plain bool) error {
	if !plain {
		if err := c.BeginTransaction(); err != nil {
			return err
		}
	}
	value := make([]byte, 1000)
	for n := range records {
		c.Produce(ctx, &kgo.Record{Topic: "orders", Partition: int32(n % 3), Value: value}, nil)
	}
	if err := c.Flush(ctx); err != nil || plain {
		return err
	}
	return c.EndTransaction(ctx, kgo.TryCommit)
}
