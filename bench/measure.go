package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Producers is how many goroutines enqueue concurrently in Enqueue and Run, each for a tenant of
// its own.
const Producers = 4

// measureWithin bounds one measure.
const measureWithin = 5 * time.Minute

// Rate is a number of jobs and the time they took.
type Rate struct {
	Jobs int
	Took time.Duration
}

// PerSecond returns the rate in jobs per second.
func (r Rate) PerSecond() float64 { return float64(r.Jobs) / r.Took.Seconds() }

// Times returns a function that returns true n times, over all its callers.
func Times(n int) func() bool {
	var asked atomic.Int64
	return func() bool { return asked.Add(1) <= int64(n) }
}

// For returns a function that returns true for a duration from its first call on.
func For(d time.Duration) func() bool {
	began := sync.OnceValue(time.Now)
	return func() bool { return time.Since(began()) < d }
}

// measure opens a queue, calls f and closes the queue. It first cleans up after earlier measures:
// garbage in memory and unwritten pages.
func measure(ctx context.Context, system System, workload Workload, f func(context.Context, Queue) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, measureWithin)
	defer cancel()
	queue, err := system.Open(ctx, workload)
	if err != nil {
		return fmt.Errorf("%s: %w", system.Title(), err)
	}
	runtime.GC()
	syscall.Sync()
	err = f(ctx, queue)
	if err = errors.Join(err, queue.Close()); err != nil {
		return fmt.Errorf("%s: %w", system.Title(), err)
	}
	return nil
}

// Enqueue measures producers that each enqueue one batch after another while more returns true:
// from the first call to the last answer.
func Enqueue(ctx context.Context, system System, more func() bool) (rate Rate, err error) {
	err = measure(ctx, system, Workload{Tenants: Producers}, func(ctx context.Context, queue Queue) error {
		if rate, err = enqueue(ctx, queue, Producers, more); err != nil {
			return err
		}
		return allWait(ctx, queue, rate.Jobs)
	})
	return rate, err
}

// allWait returns an error unless all jobs that were enqueued wait.
func allWait(ctx context.Context, queue Queue, enqueued int) error {
	waiting, err := queue.Waiting(ctx)
	if err == nil && waiting != enqueued {
		err = fmt.Errorf("%d jobs enqueued, but %d wait", enqueued, waiting)
	}
	return err
}

func enqueue(ctx context.Context, queue Queue, producers int, more func() bool) (Rate, error) {
	var (
		wait    sync.WaitGroup
		batches atomic.Int64
		errs    = make([]error, producers)
		payload = make([][][]byte, producers)
	)
	for p := range payload {
		payload[p] = Batch(p, BatchSize)
	}
	began := time.Now()
	for p := range producers {
		wait.Go(func() {
			for more() && errs[p] == nil {
				errs[p] = queue.Enqueue(ctx, p, payload[p])
				batches.Add(1)
			}
		})
	}
	wait.Wait()
	return Rate{int(batches.Load()) * BatchSize, time.Since(began)}, errors.Join(errs...)
}

// Callers is how many goroutines enqueue one job at a time in EnqueueOne.
const Callers = 64

// EnqueueOne measures callers that each enqueue one job after another while more returns true.
func EnqueueOne(ctx context.Context, system System, more func() bool) (rate Rate, err error) {
	err = measure(ctx, system, Workload{Tenants: Producers}, func(ctx context.Context, queue Queue) error {
		var wait sync.WaitGroup
		var jobs atomic.Int64
		errs, payloads := make([]error, Callers), Batch(0, BatchSize)
		began := time.Now()
		for c := range Callers {
			wait.Go(func() {
				for errs[c] == nil && more() {
					n := jobs.Add(1)
					errs[c] = queue.EnqueueOne(ctx, payloads[n%BatchSize])
				}
			})
		}
		wait.Wait()
		rate = Rate{int(jobs.Load()), time.Since(began)}
		if err := errors.Join(errs...); err != nil {
			return err
		}
		return allWait(ctx, queue, rate.Jobs)
	})
	return rate, err
}

// Ran is the measurement of Run.
type Ran struct {
	// Worked is from the start of the workers until every job is recorded as
	// done; Whole is from the first enqueue until then.
	Worked, Whole Rate
}

// Run measures no-op jobs from end to end: batches are enqueued, then workers are started and run
// them all.
func Run(ctx context.Context, system System, batches int) (ran Ran, err error) {
	err = measure(ctx, system, Workload{Tenants: Producers}, func(ctx context.Context, queue Queue) error {
		enqueued, err := enqueue(ctx, queue, Producers, Times(batches))
		if err != nil {
			return err
		}
		began := time.Now()
		if _, err := queue.Work(ctx, enqueued.Jobs); err != nil {
			return err
		}
		ran.Worked = Rate{enqueued.Jobs, time.Since(began)}
		ran.Whole = Rate{enqueued.Jobs, enqueued.Took + ran.Worked.Took}
		return nil
	})
	return ran, err
}

// The load test: tenants with a rate of their own, and jobs for LoadIdeal.
const (
	LoadTenants = 3
	LoadRate    = 30
	LoadJobs    = 300
	LoadIdeal   = LoadJobs / LoadRate * time.Second
)

// Loaded is the measurement of Load.
type Loaded struct {
	// Makespan is from the start of the workers until every job is done.
	Makespan time.Duration
	// Throttles is how often jobs were throttled, per job.
	Throttles float64
}

// OverIdeal returns the makespan divided by the ideal time: the jobs of a tenant over its rate.
func (l Loaded) OverIdeal() float64 { return l.Makespan.Seconds() / LoadIdeal.Seconds() }

// Load measures how long tenants with a limited rate take, and how often their jobs are throttled.
// The workers start at the beginning of a fixed window of a second, as the rates count them.
func Load(ctx context.Context, system System) (loaded Loaded, err error) {
	err = measure(ctx, system, Workload{Tenants: LoadTenants, Rate: LoadRate}, func(ctx context.Context, queue Queue) error {
		for tenant := range LoadTenants {
			if err := queue.Enqueue(ctx, tenant, Batch(tenant, LoadJobs)); err != nil {
				return err
			}
		}
		select {
		case <-time.After(time.Until(nextWindow(time.Now()))):
		case <-ctx.Done():
			return ctx.Err()
		}
		began := time.Now()
		worked, err := queue.Work(ctx, LoadTenants*LoadJobs)
		loaded.Makespan = time.Since(began)
		loaded.Throttles = float64(worked.Throttled) / (LoadTenants * LoadJobs)
		return err
	})
	return loaded, err
}
