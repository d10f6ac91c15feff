package pebblestore

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-project/sluice/bulk"
)

// BenchmarkWaiting runs no-op jobs while many more wait: of ten tenants and of many, with as
// many actions, up to 1,000,000 with 10,000,000 jobs. All actions have ten jobs. The file
// system is in memory. An iteration is one job.
func BenchmarkWaiting(b *testing.B) {
	for _, size := range []struct{ tenants, actions int }{{10, 50_000}, {10_000, 50_000}, {10, 1_000_000}, {100_000, 1_000_000}} {
		b.Run(fmt.Sprintf("tenants=%d/actions=%d", size.tenants, size.actions), func(b *testing.B) {
			config := bulk.Config{RequestsPerSecond: -1}
			s, err := Open("", Options{Bulk: config, Logger: slog.New(slog.DiscardHandler), FS: vfs.NewMem()})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = s.Close() })
			before := heapInUse()
			began := time.Now()
			eachOf(b, size.actions, func(i int) error { return waitSmall(s, i, fmt.Sprint("tenant-", i%size.tenants)) })
			b.Logf("%v to store", time.Since(began))
			held := heapInUse() - before
			benchWaiting(b, s, size.tenants, config)
			b.ReportMetric(float64(held)/float64(size.actions), "bytes/action")
		})
	}
}

// waitSmall stores an action of ten jobs that wait.
func waitSmall(s *Store, i int, tenant string) error {
	ctx, id := context.Background(), fmt.Sprint("a", i)
	if _, _, err := s.Create(ctx, bulk.Spec{ID: id, Tenant: tenant, Type: "no-op"}); err != nil {
		return err
	}
	if _, err := s.Append(ctx, id, 0, few); err != nil {
		return err
	}
	if _, err := s.Transition(ctx, id, bulk.Transition{Kind: bulk.Seal, Total: 10}); err != nil {
		return err
	}
	_, err := s.Transition(ctx, id, bulk.Transition{Kind: bulk.Start})
	return err
}

// few are the payloads of a small action.
var few = slices.Repeat([][]byte{[]byte(`{"n":1}`)}, 10)

func benchWaiting(b *testing.B, s bulk.Store, tenants int, config bulk.Config) {
	b.Helper()
	warm := int64(tenants) * 2 // by then each tenant's jobs have been measured
	var done atomic.Int64
	warmed, ended := make(chan struct{}), make(chan struct{})
	mux := bulk.NewMux()
	mux.HandleFunc("no-op", func(context.Context, *bulk.Job) ([]byte, error) {
		switch done.Add(1) {
		case warm:
			close(warmed)
		case warm + int64(b.N):
			close(ended)
		}
		return nil, nil
	})
	config.Types = map[string]bulk.TypeConfig{"no-op": {Workers: 100}}
	startBench(b, s, mux, config)
	<-warmed
	b.ResetTimer()
	began := time.Now()
	<-ended
	b.StopTimer()
	b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "jobs/s")
}

func heapInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse)
}
