package pebblestore

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/engine"
)

// payloads are a batch of 1,000 jobs of 100 bytes.
func payloads() [][]byte {
	batch := make([][]byte, 1000)
	for i := range batch {
		batch[i] = fmt.Appendf(nil, `{"n":%7d,"text":"%-79s"}`, i, "a job")
	}
	return batch
}

func openBench(b testing.TB, config bulk.Config) *Store {
	b.Helper()
	s, err := Open(b.TempDir(), Options{Bulk: config, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	return s
}

// startBench starts an engine on a store; it stops before the store is closed.
func startBench(b *testing.B, s bulk.Store, mux *bulk.Mux, config bulk.Config, options ...engine.Option) *engine.Engine {
	b.Helper()
	engine, err := engine.New(s, mux, config, options...)
	if err != nil {
		b.Fatal(err)
	}
	if err := engine.Start(context.Background()); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := engine.Stop(context.Background()); err != nil {
			b.Error(err)
		}
	})
	return engine
}

// BenchmarkEnqueue appends batches of 1,000 jobs of 100 bytes to four actions concurrently;
// every append is fsynced before it returns.
func BenchmarkEnqueue(b *testing.B) {
	s := openBench(b, bulk.Config{})
	batch := payloads()
	const uploads = 4
	var wait sync.WaitGroup
	b.ResetTimer()
	for u := range uploads {
		wait.Go(func() {
			id := fmt.Sprint("action-", u)
			if _, _, err := s.Create(context.Background(), bulk.Spec{ID: id, Tenant: id, Type: "echo"}); err != nil {
				b.Error(err)
				return
			}
			for i := u; i < b.N; i += uploads {
				if _, err := s.Append(context.Background(), id, int64(i/uploads)*1000, batch); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wait.Wait()
	b.ReportMetric(float64(b.N)*1000/b.Elapsed().Seconds(), "jobs/s")
}

// BenchmarkRun enqueues no-op jobs of 100 bytes of four tenants and runs them; every
// operation is fsynced. An iteration is 1,000 jobs.
func BenchmarkRun(b *testing.B) { benchRun(b, nil) }

// taker is a publisher that accepts all events at once.
type taker struct{}

func (taker) Publish(context.Context, []bulk.Event) error { return nil }

// BenchmarkRunWithEvents is BenchmarkRun with a publisher: without and with an event of each
// job.
func BenchmarkRunWithEvents(b *testing.B) {
	b.Run("actions", func(b *testing.B) { benchRun(b, nil, engine.WithPublisher(taker{})) })
	b.Run("jobs", func(b *testing.B) { benchRun(b, []string{bulk.JobEvents}, engine.WithPublisher(taker{})) })
}

func benchRun(b *testing.B, events []string, options ...engine.Option) {
	b.Helper()
	config := bulk.Config{RequestsPerSecond: -1}
	s := openBench(b, config)
	mux := bulk.NewMux()
	mux.HandleFunc("no-op", func(context.Context, *bulk.Job) ([]byte, error) { return nil, nil })
	ctx := context.Background()
	engine := startBench(b, s, mux, config, options...)
	batch := payloads()
	const tenants = 4
	var wait sync.WaitGroup
	b.ResetTimer()
	for t := range tenants {
		wait.Go(func() {
			if err := runAction(ctx, engine, bulk.Spec{Tenant: fmt.Sprint("tenant-", t), Type: "no-op", Events: events}, batch, b.N/tenants+1); err != nil {
				b.Error(err)
			}
		})
	}
	wait.Wait()
	b.ReportMetric(float64(tenants*(b.N/tenants+1))*1000/b.Elapsed().Seconds(), "jobs/s")
}

func runAction(ctx context.Context, engine *engine.Engine, spec bulk.Spec, batch [][]byte, batches int) error {
	action, _, err := engine.Create(ctx, spec)
	if err != nil {
		return err
	}
	for i := range batches {
		if _, err := engine.Append(ctx, action.ID, int64(i)*1000, batch); err != nil {
			return err
		}
	}
	if _, err := engine.Seal(ctx, action.ID, int64(batches)*1000); err != nil {
		return err
	}
	return engine.Watch(ctx, action.ID, 10*time.Millisecond, func(bulk.Action) error { return nil })
}
