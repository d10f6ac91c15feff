package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/propagation"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/internal/jsonclient"
	"github.com/sluice-project/sluice/lifecycle"
)

const (
	// batchMax and batchBytes bound the jobs, leases and outcomes of one request, and the results
	// in it. The server takes 8 MiB.
	batchMax   = 1000
	batchBytes = 7 << 20
	// leaseWait is how long the server holds a request for jobs when there are none: as long as a
	// stop may take, which waits for the answer.
	leaseWait = 2 * time.Second
	// aheadTime is how much work is leased ahead of the handlers, at the rate of the last second.
	aheadTime = 250 * time.Millisecond
	// rateEvery is how often that rate is measured.
	rateEvery = 500 * time.Millisecond
)

// WorkerOptions configure a Worker.
type WorkerOptions struct {
	// Types are those whose jobs are leased. Default: all types of the mux but "echo", which
	// servers run.
	Types []string
	// Concurrency is how many jobs run at a time. Default 10.
	Concurrency int
	// Lease is how long the server waits for a worker that has died; it is extended while jobs
	// run. 1 s to 12 h. Default 30 s.
	Lease time.Duration
	// Grace is how long the end of Run waits for jobs that run: then their context ends, and they
	// are handed back. Default 30 s; negative: they are handed back at once.
	Grace time.Duration
	// Config has the timeouts of attempts, as for an engine. Default: those of an engine.
	Config bulk.Config
	// Logger gets what goes wrong. Default slog.Default().
	Logger *slog.Logger
}

// Worker leases jobs from a server, and runs them with the handlers of a mux: the same that an engine
// runs within its own process. Every job runs at least once.
//
// The context of a handler ends at the attempt's timeout, when the job's action was canceled or its
// lease was lost, and when the grace of a stop is over: a handler that goes on then occupies a
// goroutine, and what it returns does not count.
//
// A worker holds at most Concurrency jobs and those of a quarter of a second more.
type Worker struct {
	client  *Client
	mux     *bulk.Mux
	options WorkerOptions
	room    lifecycle.Signal // jobs may be leased
	ended   lifecycle.Signal // outcomes wait to be reported
	idle    lifecycle.Signal // a job has ended, or outcomes were reported

	mu        sync.Mutex
	held      map[string]*heldJob // by lease
	waiting   []*heldJob          // of them, those that no handler runs, in their order
	outcomes  []wire.Outcome
	reporting int     // outcomes on their way
	ran       int     // jobs that have ended since Run began
	rate      float64 // jobs a second
	stopping  bool
}

// heldJob is a job whose lease the worker has.
type heldJob struct {
	wire.Job
	runs     bool
	ctx      context.Context
	cancel   context.CancelFunc
	canceled bool // the server has said so
}

// NewWorker returns a worker of the server of a client. It panics if there is no type to lease, or if
// Lease is out of range: both are errors of the program.
func (c *Client) NewWorker(mux *bulk.Mux, options WorkerOptions) *Worker {
	if options.Types == nil {
		options.Types = slices.DeleteFunc(mux.Types(), func(name string) bool { return name == "echo" })
	}
	options.Concurrency = max(1, cmp.Or(options.Concurrency, 10))
	options.Lease = cmp.Or(options.Lease, 30*time.Second)
	options.Grace = cmp.Or(options.Grace, 30*time.Second)
	options.Logger = cmp.Or(options.Logger, slog.Default())
	if len(options.Types) == 0 || options.Lease < time.Second || options.Lease > 12*time.Hour {
		panic(fmt.Sprintf("bulk/client: a worker of types %q with leases of %v: want a type, and 1s to 12h", options.Types, options.Lease))
	}
	return &Worker{
		client: c, mux: mux, options: options, held: map[string]*heldJob{},
		room: lifecycle.NewSignal(), ended: lifecycle.NewSignal(), idle: lifecycle.NewSignal(),
	}
}

// Run runs jobs until ctx ends: then it hands back what it has not begun, waits for the rest for
// Grace, and reports all outcomes. It returns an error if the server refuses its requests for good.
// While the server is away, Run tries again. Run is called once.
func (w *Worker) Run(ctx context.Context) error {
	on, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	group := lifecycle.NewGroup(on)
	group.Go("report", w.report)
	group.Go("extend", w.extend)
	err := w.fetch(ctx, on)
	w.drain()
	end()
	return errors.Join(err, group.Stop(context.WithoutCancel(ctx)))
}

// fetch leases jobs until ctx ends. Handlers run within on.
func (w *Worker) fetch(ctx, on context.Context) error {
	measured, ran, failed := time.Now(), 0, 0
	for ctx.Err() == nil {
		free := w.free()
		if free == 0 {
			lifecycle.Sleep(ctx, w.room, rateEvery)
			continue
		}
		jobs, err := w.client.Lease(on, wire.LeaseRequest{
			Types: w.options.Types, Max: min(free, batchMax), WaitMS: leaseWait.Milliseconds(), LeaseMS: w.options.Lease.Milliseconds(),
		})
		after, transient := jsonclient.Transient(err)
		switch {
		case err != nil && ctx.Err() != nil:
			continue
		case err != nil && !transient:
			return fmt.Errorf("lease jobs: %w", err)
		case err != nil:
			if failed++; failed == 1 {
				w.options.Logger.Warn("no jobs can be leased", "error", err)
			}
			lifecycle.Sleep(ctx, nil, w.client.api.Retry.Delay(failed, after))
			continue
		case failed > 0:
			w.options.Logger.Info("jobs are leased again")
		}
		failed = 0
		w.mu.Lock()
		if since := time.Since(measured); since >= rateEvery {
			w.rate = float64(w.ran-ran) / since.Seconds()
			measured, ran = time.Now(), w.ran
		}
		w.hold(on, jobs)
		w.mu.Unlock()
	}
	return nil
}

// free returns how many jobs to lease: none until half of what may be held is free, so that jobs are
// leased in batches.
func (w *Worker) free() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	most := w.options.Concurrency + int(w.rate*min(aheadTime, w.options.Lease/4).Seconds())
	if free := most - len(w.held) - len(w.outcomes); free > most/2 {
		return free
	}
	return 0
}

// hold begins the jobs of a lease, or lets them wait. w.mu is held.
func (w *Worker) hold(on context.Context, jobs []wire.Job) {
	for _, job := range jobs {
		h := &heldJob{Job: job}
		h.ctx, h.cancel = context.WithCancel(propagation.TraceContext{}.Extract(on, propagation.MapCarrier{
			"traceparent": job.Traceparent, "tracestate": job.Tracestate,
		}))
		w.held[job.Lease] = h
		w.waiting = append(w.waiting, h)
	}
	w.begin()
}

// begin starts handlers for jobs that wait. w.mu is held.
func (w *Worker) begin() {
	for len(w.waiting) > 0 && len(w.held)-len(w.waiting) < w.options.Concurrency && !w.stopping {
		h := w.waiting[0]
		w.waiting = w.waiting[1:]
		h.runs = true
		go w.run(h)
	}
}

// run runs a job.
func (w *Worker) run(h *heldJob) {
	defer h.cancel()
	outcome := w.attempt(h)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.held[h.Lease] != h { // it was handed back
		return
	}
	delete(w.held, h.Lease)
	w.ran++
	if h.canceled && outcome.Status != wire.OutcomeSucceeded {
		outcome = wire.Outcome{Lease: h.Lease, Status: wire.OutcomeReleased}
	}
	w.outcomes = append(w.outcomes, outcome)
	w.begin()
	w.ended.Wake()
	w.room.Wake()
	w.idle.Wake()
}

var statuses = map[bulk.SettlementKind]string{
	bulk.Succeeded: wire.OutcomeSucceeded, bulk.FailedForGood: wire.OutcomeFailed,
	bulk.FailedForNow: wire.OutcomeRetry, bulk.Throttled: wire.OutcomeThrottled,
}

// attempt makes one attempt of a job, and returns its outcome.
func (w *Worker) attempt(h *heldJob) wire.Outcome {
	action, index, err := bulk.ParseJobID(h.ID)
	if err != nil {
		return wire.Outcome{Lease: h.Lease, Status: wire.OutcomeFailed, Error: err.Error()}
	}
	job := &bulk.Job{Spec: &bulk.Spec{ID: action, Type: h.Type}, Index: index, Payload: h.Payload, Attempt: h.Attempt, Deadline: h.Deadline}
	began := time.Now()
	a := w.mux.Attempt(h.ctx, job, w.options.Config)
	outcome := wire.Outcome{
		Lease: h.Lease, Status: statuses[a.Kind], Result: a.Result, Cost: job.Cost,
		RetryAfterMS: bulk.BoundRetryAfter(a.RetryAfter).Milliseconds(), TookMS: time.Since(began).Milliseconds(),
	}
	switch {
	case a.Err != nil:
		outcome.Error = a.Err.Error()
		if panicked := (*bulk.PanicError)(nil); errors.As(a.Err, &panicked) {
			w.options.Logger.Error("a handler panicked", "job", h.ID, "panic", panicked.Value, "stack", string(panicked.Stack))
		}
	case a.Result != nil && !json.Valid(a.Result):
		outcome.Status, outcome.Result, outcome.Error = wire.OutcomeRetry, nil, "the handler's result is not JSON"
	case len(a.Result) > batchBytes:
		outcome.Status, outcome.Result = wire.OutcomeFailed, nil
		outcome.Error = fmt.Sprintf("the result has %d bytes, more than %d", len(a.Result), batchBytes)
	}
	return outcome
}

// report reports outcomes: while one batch is on its way, the next collects.
func (w *Worker) report(ctx context.Context) error {
	for {
		batch := w.collect()
		if len(batch) == 0 {
			select {
			case <-w.ended:
				continue
			case <-ctx.Done():
				return nil
			}
		}
		if _, err := w.client.Acknowledge(ctx, batch); err != nil {
			w.options.Logger.Error("outcomes are lost: their jobs run again when the leases end", "jobs", len(batch), "error", err)
		}
		w.mu.Lock()
		w.reporting = 0
		w.mu.Unlock()
		w.idle.Wake()
		w.room.Wake()
	}
}

func (w *Worker) collect() []wire.Outcome {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, size := 0, 0
	for n < min(len(w.outcomes), batchMax) && (n == 0 || size+len(w.outcomes[n].Result)+len(w.outcomes[n].Error) <= batchBytes) {
		size += len(w.outcomes[n].Result) + len(w.outcomes[n].Error)
		n++
	}
	batch := slices.Clone(w.outcomes[:n])
	w.outcomes = slices.Delete(w.outcomes, 0, n)
	w.reporting = n
	return batch
}

// extend extends the leases of all jobs that are held, at a third of their time, and ends those that
// do not count any more.
func (w *Worker) extend(ctx context.Context) error {
	ticker := time.NewTicker(w.options.Lease / 3)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		for leases := range slices.Chunk(w.leases(), batchMax) {
			verdicts, err := w.client.Extend(ctx, leases, w.options.Lease)
			if err != nil && ctx.Err() == nil {
				w.options.Logger.Warn("leases are not extended", "jobs", len(leases), "error", err)
			}
			w.mu.Lock()
			for _, v := range verdicts {
				if h := w.held[v.Lease]; h != nil && v.Verdict != bulk.Accepted.String() {
					h.canceled = true
					h.cancel()
				}
			}
			w.handBack(func(h *heldJob) bool { return h.canceled && !h.runs })
			w.mu.Unlock()
		}
	}
}

func (w *Worker) leases() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.held))
}

// handBack hands jobs back: they use no attempt. w.mu is held.
func (w *Worker) handBack(which func(*heldJob) bool) {
	for lease, h := range w.held {
		if which(h) {
			h.cancel()
			delete(w.held, lease)
			w.outcomes = append(w.outcomes, wire.Outcome{Lease: lease, Status: wire.OutcomeReleased})
		}
	}
	w.waiting = slices.DeleteFunc(w.waiting, func(h *heldJob) bool { return w.held[h.Lease] != h })
	w.ended.Wake()
}

// drain hands back what no handler runs, after the grace the rest, and returns when all outcomes were
// reported.
func (w *Worker) drain() {
	w.mu.Lock()
	w.stopping = true
	w.handBack(func(h *heldJob) bool { return !h.runs })
	w.mu.Unlock()
	grace := time.NewTimer(max(0, w.options.Grace))
	defer grace.Stop()
	for !w.done() {
		select {
		case <-w.idle:
		case <-grace.C:
			w.mu.Lock()
			w.handBack(func(*heldJob) bool { return true })
			w.mu.Unlock()
		}
	}
}

// done reports whether no job is held and every outcome was reported.
func (w *Worker) done() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.held)+len(w.outcomes)+w.reporting == 0
}
