package pebblestore

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/engine"
)

// BenchmarkEnqueueOne enqueues one job of 100 bytes at a time from 64 callers.
func BenchmarkEnqueueOne(b *testing.B) {
	config := bulk.Config{RequestsPerSecond: -1}
	e, err := engine.New(openBench(b, config), bulk.NewMux(), config)
	if err != nil {
		b.Fatal(err)
	}
	payload := payloads()[0]
	var asked atomic.Int64
	var callers sync.WaitGroup
	b.ResetTimer()
	for range 64 {
		callers.Go(func() {
			for asked.Add(1) <= int64(b.N) {
				if _, err := e.Enqueue(context.Background(), engine.NewJob{Tenant: "t", Type: "echo", Payload: payload}); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	callers.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}

// BenchmarkEnqueueLatency measures the time from the enqueueing of a job to its start, one job
// at a time.
func BenchmarkEnqueueLatency(b *testing.B) {
	config := bulk.Config{RequestsPerSecond: -1}
	started := make(chan time.Time, 1)
	mux := bulk.NewMux()
	mux.HandleFunc("told", func(context.Context, *bulk.Job) ([]byte, error) { started <- time.Now(); return nil, nil })
	e := startBench(b, openBench(b, config), mux, config)
	took := make([]time.Duration, 0, b.N)
	b.ResetTimer()
	for range b.N {
		began := time.Now()
		if _, err := e.Enqueue(context.Background(), engine.NewJob{Tenant: "t", Type: "told", Payload: []byte("1")}); err != nil {
			b.Fatal(err)
		}
		took = append(took, (<-started).Sub(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}
