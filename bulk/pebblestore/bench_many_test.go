package pebblestore

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/engine"
)

// BenchmarkManyActions creates 10,000 actions of as many tenants, with ten jobs
// each, and runs them to their end. An iteration is all of them.
func BenchmarkManyActions(b *testing.B) {
	const actions = 10_000
	config := bulk.Config{RequestsPerSecond: -1}
	s := openBench(b, config)
	ctx := context.Background()
	engine := startBench(b, s, bulk.NewMux(), config)
	b.ResetTimer()
	for round := range b.N {
		eachOf(b, actions, func(i int) error { return uploadSmall(ctx, engine, fmt.Sprint(round, ".", i)) })
		eachOf(b, actions, func(i int) error {
			return engine.Watch(ctx, fmt.Sprint(round, ".", i), 10*time.Millisecond, func(bulk.Action) error { return nil })
		})
	}
	b.ReportMetric(float64(b.N)*actions/b.Elapsed().Seconds(), "actions/s")
}

// eachOf calls f for 0 to n-1, sixteen at a time.
func eachOf(b *testing.B, n int, f func(i int) error) {
	const sideBySide = 16
	var wait sync.WaitGroup
	for first := range sideBySide {
		wait.Go(func() {
			for i := first; i < n; i += sideBySide {
				if err := f(i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wait.Wait()
}

func uploadSmall(ctx context.Context, engine *engine.Engine, id string) error {
	jobs := payloads()[:10]
	spec := bulk.Spec{ID: id, Tenant: id, Type: "echo", Aggregate: []string{"count"}}
	if _, _, err := engine.Create(ctx, spec); err != nil {
		return err
	}
	if _, err := engine.Append(ctx, id, 0, jobs); err != nil {
		return err
	}
	_, err := engine.Seal(ctx, id, int64(len(jobs)))
	return err
}
