package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"testing"
)

// environment is where all tests and benchmarks run: its programs are built once, and its PostgreSQL
// starts once.
var environment *Environment

func TestMain(m *testing.M) {
	MemoryProcess()
	BareProcess()
	var err error
	if environment, err = NewEnvironment(os.TempDir()); err != nil {
		panic(err)
	}
	code := m.Run()
	if err := environment.Close(); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// systems returns all systems, each once.
func systems() []System {
	all := environment.Systems()
	for _, appendfsync := range Appendfsyncs {
		all = append(all, environment.RedisSystems(appendfsync)[0])
	}
	return all
}

// each runs a benchmark for every system except the unwanted ones.
func each(b *testing.B, unwanted func(System) bool, run func(*testing.B, System)) {
	for _, system := range slices.DeleteFunc(systems(), unwanted) {
		b.Run(system.Title(), func(b *testing.B) { run(b, system) })
	}
}

// BenchmarkEnqueue enqueues batches of 1,000 jobs from four producers. An
// iteration is a batch.
func BenchmarkEnqueue(b *testing.B) {
	each(b, func(s System) bool { return s.EnqueuesAsOther }, func(b *testing.B, system System) {
		rate, err := Enqueue(b.Context(), system, Times(b.N))
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(rate.PerSecond(), "jobs/s")
		b.ReportMetric(float64(rate.Took.Nanoseconds())/float64(b.N), "ns/op")
	})
}

// BenchmarkOne enqueues one job at a time from 64 callers.
func BenchmarkOne(b *testing.B) {
	each(b, func(s System) bool { return s.EnqueuesAsOther }, func(b *testing.B, system System) {
		rate, err := EnqueueOne(b.Context(), system, Times(b.N))
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(rate.PerSecond(), "jobs/s")
	})
}

// BenchmarkRun enqueues and then runs no-op jobs. An iteration is a batch.
func BenchmarkRun(b *testing.B) {
	each(b, func(System) bool { return false }, func(b *testing.B, system System) {
		ran, err := Run(b.Context(), system, b.N)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(ran.Worked.PerSecond(), "jobs/s")
		b.ReportMetric(ran.Whole.PerSecond(), "whole-jobs/s")
		b.ReportMetric(float64(ran.Worked.Took.Nanoseconds())/float64(b.N), "ns/op")
	})
}

// BenchmarkLoad runs three tenants at their rate. An iteration is the whole load.
func BenchmarkLoad(b *testing.B) {
	each(b, func(s System) bool { return s.SlowAtLoad }, func(b *testing.B, system System) {
		var makespan, throttles float64
		for range b.N {
			loaded, err := Load(b.Context(), system)
			if err != nil {
				b.Fatal(err)
			}
			makespan += loaded.OverIdeal()
			throttles += loaded.Throttles
		}
		b.ReportMetric(makespan/float64(b.N), "makespan/ideal")
		b.ReportMetric(throttles/float64(b.N), "throttles/job")
	})
}

// BenchmarkMemory holds waiting jobs in a process of its own. An iteration is 1,000,000 jobs.
func BenchmarkMemory(b *testing.B) {
	var resident, peak int64
	for range b.N {
		used, err := environment.Memory(b.Context(), 1000)
		if err != nil {
			b.Fatal(err)
		}
		resident, peak = resident+used.Resident, peak+used.Peak
	}
	b.ReportMetric(float64(resident>>20)/float64(b.N), "resident-MiB")
	b.ReportMetric(float64(peak>>20)/float64(b.N), "peak-MiB")
}

// losing is a queue that loses a batch.
type losing struct {
	Queue
	lost atomic.Bool
}

func (q *losing) Enqueue(ctx context.Context, producer int, payloads [][]byte) error {
	if q.lost.CompareAndSwap(false, true) {
		return nil
	}
	return q.Queue.Enqueue(ctx, producer, payloads)
}

// A system that loses a batch is an error, not a faster run.
func TestLostJobsAreAnError(t *testing.T) {
	for _, system := range systems() {
		if system.EnqueuesAsOther {
			continue
		}
		open := system.Open
		system.Open = func(ctx context.Context, w Workload) (Queue, error) {
			queue, err := open(ctx, w)
			return &losing{Queue: queue}, err
		}
		if rate, err := Enqueue(t.Context(), system, Times(3)); err == nil {
			t.Errorf("%s: enqueued %d jobs in %s, but lost some", system.Title(), rate.Jobs, rate.Took)
		}
	}
}

// Every system runs all its jobs, in every measure.
func TestSystems(t *testing.T) {
	for _, system := range systems() {
		t.Run(system.Title(), func(t *testing.T) {
			rate, err := Enqueue(t.Context(), system, Times(3))
			if err != nil || rate.Jobs != 3*BatchSize {
				t.Errorf("enqueued %d jobs: %v; want %d", rate.Jobs, err, 3*BatchSize)
			}
			if rate, err := EnqueueOne(t.Context(), system, Times(200)); err != nil || rate.Jobs != 200 {
				t.Errorf("enqueued %d jobs, one at a time: %v; want 200", rate.Jobs, err)
			}
			ran, err := Run(t.Context(), system, 2)
			if err != nil || ran.Worked.Jobs != 2*BatchSize || ran.Whole.Took <= ran.Worked.Took {
				t.Errorf("ran %+v: %v; want %d jobs, the whole longer than the work", ran, err, 2*BatchSize)
			}
		})
	}
}

// The process uses more memory than its jobs, and its peak is at least its present use.
func TestMemory(t *testing.T) {
	t.Parallel()
	used, err := environment.Memory(t.Context(), 10)
	if err != nil || used.Resident < 10*BatchSize*PayloadBytes || used.Peak < used.Resident {
		t.Errorf("used %+v: %v", used, err)
	}
}

func TestBatch(t *testing.T) {
	for tenant := range 4 {
		for n, job := range Batch(tenant, 1001) {
			if want := fmt.Sprintf(`{"tenant":%d,"n":%d,`, tenant, n); len(job) != PayloadBytes || !json.Valid(job) || string(job[:len(want)]) != want {
				t.Fatalf("job %d of tenant %d is %q, %d bytes; want JSON of %d bytes that begins with %q", n, tenant, job, len(job), PayloadBytes, want)
			}
		}
	}
}
