package pebblestore

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/lifecycle"
)

// BenchmarkWaiting runs no-op jobs while many more wait: of ten tenants and of many, with as
// many actions, up to 1,000,000 with 10,000,000 jobs. An iteration is one job.
func BenchmarkWaiting(b *testing.B) {
	for _, size := range waitingSizes {
		b.Run(size.name(), func(b *testing.B) {
			s, held := size.open(b)
			benchWaiting(b, s, size.tenants)
			b.ReportMetric(float64(held)/float64(size.actions), "bytes/action")
		})
	}
}

// BenchmarkReads reads pages of 100 actions and single actions while the jobs of BenchmarkWaiting
// run, from their start.
func BenchmarkReads(b *testing.B) {
	for _, size := range waitingSizes {
		b.Run(size.name(), func(b *testing.B) {
			s, _ := size.open(b)
			ctx, cancel := context.WithCancel(context.Background())
			var reading sync.WaitGroup
			var pages, actions []time.Duration
			repeat := func(took *[]time.Duration, every time.Duration, read func(id string) error) {
				for i := 0; lifecycle.Sleep(ctx, nil, every); i += 7919 {
					began := time.Now()
					if err := read(fmt.Sprint("a", i%size.actions)); err != nil && ctx.Err() == nil {
						b.Error(err)
						return
					}
					*took = append(*took, time.Since(began))
				}
			}
			reading.Go(func() {
				repeat(&pages, 5*time.Millisecond, func(id string) error {
					_, err := s.Actions(ctx, bulk.ActionFilter{After: id, Limit: 100})
					return err
				})
			})
			reading.Go(func() {
				repeat(&actions, time.Millisecond, func(id string) error {
					_, err := s.Action(ctx, id)
					return err
				})
			})
			benchWaiting(b, s, size.tenants)
			cancel()
			reading.Wait()
			reportLatency(b, "page", pages)
			reportLatency(b, "action", actions)
		})
	}
}

// reportLatency reports percentiles of durations.
func reportLatency(b *testing.B, of string, took []time.Duration) {
	b.Helper()
	slices.Sort(took)
	for _, p := range []int{50, 99} {
		if len(took) > 0 {
			b.ReportMetric(float64(took[len(took)*p/100].Microseconds())/1000, fmt.Sprintf("%s-p%d-ms", of, p))
		}
	}
}

// waitingSize is how much waits in a benchmark. All actions have ten jobs.
type waitingSize struct{ tenants, actions int }

var waitingSizes = []waitingSize{{10, 100_000}, {10_000, 100_000}, {10, 1_000_000}, {100_000, 1_000_000}}

func (w waitingSize) name() string { return fmt.Sprintf("tenants=%d/actions=%d", w.tenants, w.actions) }

// open returns a store in which that much waits, and the bytes that it holds. The file system is in
// memory.
func (w waitingSize) open(b *testing.B) (s *Store, held int64) {
	b.Helper()
	s, err := Open("", Options{Bulk: waitingConfig, Logger: slog.New(slog.DiscardHandler), FS: vfs.NewMem()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	before, began := heapInUse(), time.Now()
	eachOf(b, w.actions, func(i int) error { return waitSmall(s, i, fmt.Sprint("tenant-", i%w.tenants)) })
	b.Logf("%v to store", time.Since(began))
	return s, heapInUse() - before
}

var waitingConfig = bulk.Config{RequestsPerSecond: -1}

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

// benchWaiting runs jobs, each an iteration. It is called once for a benchmark, however many they
// are, as it takes minutes until so much waits.
func benchWaiting(b *testing.B, s *Store, tenants int) {
	b.Helper()
	config := waitingConfig
	ran := make(chan struct{}, 10_000)
	mux := bulk.NewMux()
	mux.HandleFunc("no-op", func(ctx context.Context, _ *bulk.Job) ([]byte, error) {
		select {
		case ran <- struct{}{}:
		case <-ctx.Done():
		}
		return nil, nil
	})
	config.Types = map[string]bulk.TypeConfig{"no-op": {Workers: 100}}
	startBench(b, s, mux, config)
	// By then each tenant's jobs have been measured, and the engine knows what each action waits for.
	for n := 0; n < 2*tenants || untold(s) > 1000; n++ {
		<-ran
	}
	began := processorTime(b)
	for b.Loop() {
		<-ran
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
	used := processorTime(b) - began
	b.ReportMetric(float64(used.Nanoseconds())/1000/float64(b.N), "cpu-µs/op")
}

// processorTime returns the processor time that the process has used.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// untold returns how many actions have changed since the engine looked.
func untold(s *Store) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.untold)
}

func heapInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse)
}
