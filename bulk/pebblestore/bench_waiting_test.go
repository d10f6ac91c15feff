package pebblestore

import (
	"context"
	"errors"
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
	"github.com/sluice-project/sluice/bulk/engine"
	"github.com/sluice-project/sluice/lifecycle"
)

// BenchmarkWaiting compares the processor time that a job costs while many more wait: of ten tenants, of
// 10,000, and of 100,000, with as many actions. An iteration opens the store of each in turn and runs
// some of its jobs, of which there are enough for four; the figures are medians. Ratios are those of one
// iteration.
func BenchmarkWaiting(b *testing.B) {
	tenants := []int{10, 10_000, 100_000}
	for _, actions := range []int{100_000, 1_000_000} {
		b.Run(fmt.Sprint("actions=", actions), func(b *testing.B) {
			files := map[int]vfs.FS{}
			for _, n := range tenants {
				files[n] = waitingSize{n, actions}.files(b)
			}
			costs, ratios, starts := map[int][]float64{}, map[int][]float64{}, map[int][]float64{}
			for b.Loop() {
				if len(costs[tenants[0]]) == 4 {
					b.Fatal("no jobs are left: use -benchtime 4x at most")
				}
				for _, n := range tenants {
					cost, start := waitingSize{n, actions}.run(b, files[n])
					costs[n], starts[n] = append(costs[n], cost), append(starts[n], start)
					ratios[n] = append(ratios[n], cost/costs[tenants[0]][len(costs[n])-1])
				}
			}
			for _, n := range tenants {
				b.ReportMetric(median(costs[n]), fmt.Sprintf("µs/job-%d", n))
				b.ReportMetric(median(ratios[n]), fmt.Sprintf("ratio-%d", n))
				b.ReportMetric(median(starts[n]), fmt.Sprintf("start-s-%d", n))
			}
		})
	}
}

func median(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}

// run opens a store and runs some of its jobs. It returns the microseconds of processor time for a job,
// and the seconds until the first one ran.
func (w waitingSize) run(b *testing.B, files vfs.FS) (cost, start float64) {
	b.Helper()
	const jobs = 100_000
	began := time.Now()
	s := w.open(b, files)
	engine, ran := w.start(b, s)
	<-ran
	start = time.Since(began).Seconds()
	w.warmUp(s, ran)
	used := processorTime(b)
	for range jobs {
		<-ran
	}
	used = processorTime(b) - used
	stop(b, engine, s)
	return float64(used.Microseconds()) / jobs, start
}

// stop stops an engine and closes its store, so that their memory is free for the next.
func stop(b *testing.B, e *engine.Engine, s *Store) {
	b.Helper()
	if err := errors.Join(e.Stop(context.Background()), s.Close()); err != nil {
		b.Fatal(err)
	}
}

// start starts an engine whose jobs are told to ran.
func (w waitingSize) start(b *testing.B, s *Store) (*engine.Engine, chan struct{}) {
	b.Helper()
	ran := make(chan struct{}, 1000)
	mux := bulk.NewMux()
	mux.HandleFunc("no-op", func(ctx context.Context, _ *bulk.Job) ([]byte, error) {
		select {
		case ran <- struct{}{}:
		case <-ctx.Done():
		}
		return nil, nil
	})
	config := waitingConfig
	config.Types = map[string]bulk.TypeConfig{"no-op": {Workers: 100}}
	e, err := engine.New(s, mux, config)
	if err == nil {
		err = e.Start(context.Background())
	}
	if err != nil {
		b.Fatal(err)
	}
	return e, ran
}

// warmUp runs jobs until each tenant's have been measured, and the engine knows what each action waits for.
func (w waitingSize) warmUp(s *Store, ran <-chan struct{}) {
	for n := 0; n < w.tenants || untold(s) > 1000; n++ {
		<-ran
	}
}

// BenchmarkReads reads pages of 100 actions and single actions while the jobs of BenchmarkWaiting
// run, from their start.
func BenchmarkReads(b *testing.B) {
	for _, size := range waitingSizes {
		b.Run(size.name(), func(b *testing.B) {
			s := size.open(b, size.files(b))
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
			engine, ran := size.start(b, s)
			size.warmUp(s, ran)
			for b.Loop() {
				<-ran
			}
			cancel()
			reading.Wait()
			stop(b, engine, s)
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

// open opens a store with the files of one in which that much waits. The caller closes it.
func (w waitingSize) open(b *testing.B, files vfs.FS) *Store {
	b.Helper()
	s, err := Open("", Options{Bulk: waitingConfig, Logger: slog.New(slog.DiscardHandler), FS: files})
	if err != nil {
		b.Fatal(err)
	}
	return s
}

// files returns the files of a store in which that much waits, in memory.
func (w waitingSize) files(b *testing.B) vfs.FS {
	b.Helper()
	files := vfs.NewMem()
	before, began := heapInUse(), time.Now()
	s := w.open(b, files)
	eachOf(b, w.actions, func(i int) error { return waitSmall(s, i, fmt.Sprint("tenant-", i%w.tenants)) })
	b.Logf("%s: %v to store, %d bytes for an action", w.name(), time.Since(began), (heapInUse()-before)/int64(w.actions))
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	return files
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
