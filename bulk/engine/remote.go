package engine

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

// Report is a remote worker's report about one lease.
type Report struct {
	Lease bulk.LeaseID
	Kind  bulk.SettlementKind
	// Result is the job's result, for Succeeded: one JSON value, or nil.
	Result     []byte
	Error      string
	RetryAfter time.Duration
	Took       time.Duration
	// Cost is what the attempt has really cost; 0: as it was charged.
	Cost int64
	// LeaseFor is for Extended; 0 is the lease of the config.
	LeaseFor time.Duration
}

// remotePoll is how often a waiting lease request of a remote worker is repeated when
// nothing wakes it.
const remotePoll = 200 * time.Millisecond

// Lease leases ready jobs to a remote worker. If there are none, it waits up to `wait`.
func (e *Engine) Lease(ctx context.Context, request bulk.LeaseRequest, wait time.Duration) ([]bulk.Job, error) {
	jobs, err := e.leaseWithin(ctx, request, wait)
	e.lend(jobs)
	e.spans.leased(jobs)
	return jobs, err
}

func (e *Engine) leaseWithin(ctx context.Context, request bulk.LeaseRequest, wait time.Duration) ([]bulk.Job, error) {
	request.LeaseFor = cmp.Or(request.LeaseFor, e.config.Lease)
	for _, name := range request.Types {
		request.Workers = max(request.Workers, e.workersOf(name))
	}
	if wait <= 0 {
		return e.store.Lease(ctx, request)
	}
	defer e.lent.wait(&request)()
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	poll := time.NewTicker(remotePoll)
	defer poll.Stop()
	for {
		admitted := e.admitted.Wait()
		jobs, err := e.store.Lease(ctx, request)
		if err != nil || len(jobs) > 0 {
			e.fetch.Wake()
			return jobs, err
		}
		select {
		case <-admitted:
		case <-poll.C:
		case <-deadline.C:
			return nil, nil
		case <-e.group.Failed():
			return nil, e.group.Err()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// LeaseKey returns the key of the tokens of leases: the same for all engines on the store.
func (e *Engine) LeaseKey() bulk.LeaseKey { return e.leaseKey }

// Settle records the reports of remote workers. Verdicts are in the order of the
// reports.
func (e *Engine) Settle(ctx context.Context, reports []Report) ([]bulk.Verdict, error) {
	batch := make([]attemptOutcome, len(reports))
	for i, r := range reports {
		k, err := e.catalog.of(ctx, r.Lease.Action, nil)
		if err != nil {
			return nil, err
		}
		if k == nil {
			batch[i] = attemptOutcome{settlement: bulk.Settlement{Lease: r.Lease, Kind: bulk.Released}}
			continue
		}
		settlement := bulk.Settlement{Kind: r.Kind, Error: r.Error}
		if r.Kind == bulk.Succeeded {
			settlement = e.mapped(ctx, r.Lease.Action, k.spec, r.Result)
		}
		settlement.Lease, settlement.RetryAfter, settlement.Cost = r.Lease, r.RetryAfter, r.Cost
		settlement.Took, settlement.LeaseFor = r.Took, r.LeaseFor
		settlement.LeaseFor = cmp.Or(settlement.LeaseFor, e.config.Lease)
		batch[i] = attemptOutcome{settlement: settlement, spec: k.spec}
	}
	verdicts, err := e.settleAll(ctx, batch)
	if err != nil { // a repeated report is a duplicate if it was recorded
		return nil, err
	}
	e.settleLent(batch)
	e.spans.settled(batch, verdicts)
	return verdicts, nil
}

// lent has the jobs that remote workers were given here, and how many more they wait for. It
// is safe for concurrent use.
type lent struct {
	mu      sync.Mutex
	jobs    map[bulk.LeaseID]lentJob
	count   map[string]int64 // of jobs, by type
	waiting map[string]int64 // jobs that workers wait for, by type
	swept   time.Time
}

type lentJob struct {
	jobType      string
	cost         *cost
	since, until time.Time
}

// lentInterval is how often leases are looked through for those that have expired.
const lentInterval = time.Second

func newLent() lent {
	return lent{jobs: map[bulk.LeaseID]lentJob{}, count: map[string]int64{}, waiting: map[string]int64{}}
}

// wait counts a request that waits for jobs, until done is called.
func (l *lent) wait(request *bulk.LeaseRequest) (done func()) {
	add := func(n int64) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, name := range request.Types {
			if l.waiting[name] += n; l.waiting[name] == 0 {
				delete(l.waiting, name)
			}
		}
	}
	add(int64(request.Max))
	return func() { add(-int64(request.Max)) }
}

// workers returns how many jobs of a type remote workers have, or wait for.
func (l *lent) workers(name string) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count[name] + l.waiting[name]
}

// lend records jobs that a remote worker was given.
func (e *Engine) lend(jobs []bulk.Job) {
	now := time.Now()
	e.lent.mu.Lock()
	defer e.lent.mu.Unlock()
	for i := range jobs {
		of := holderOf(jobs[i].Spec)
		e.lent.jobs[jobs[i].Lease] = lentJob{of.Type, e.costsOf(of.Type).start(of, now), now, jobs[i].Deadline}
		e.lent.count[of.Type]++
	}
	if now.Sub(e.lent.swept) < lentInterval {
		return
	}
	e.lent.swept = now
	for lease, job := range e.lent.jobs {
		if now.After(job.until) {
			e.returned(lease, job, now, true)
		}
	}
}

// settleLent records which of the jobs were settled, and which were extended.
func (e *Engine) settleLent(batch []attemptOutcome) {
	now := time.Now()
	e.lent.mu.Lock()
	defer e.lent.mu.Unlock()
	for i := range batch {
		settlement := &batch[i].settlement
		job, known := e.lent.jobs[settlement.Lease]
		switch {
		case !known:
		case settlement.Kind == bulk.Extended:
			job.until = now.Add(settlement.LeaseFor)
			e.lent.jobs[settlement.Lease] = job
		default:
			e.returned(settlement.Lease, job, now, settlement.Kind.Ran())
		}
	}
}

// returned records that a job is no longer lent. e.lent.mu must be held.
func (e *Engine) returned(lease bulk.LeaseID, job lentJob, now time.Time, counts bool) {
	delete(e.lent.jobs, lease)
	e.lent.count[job.jobType]--
	e.costsOf(job.jobType).end(job.cost, job.since, now, counts)
}
