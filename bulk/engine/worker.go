package engine

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/lifecycle"
)

const (
	// aheadTime is how much work is leased ahead of the workers, at their measured
	// rate, so that fast handlers do not wait for the disk. aheadMax bounds it in jobs.
	aheadTime = 10 * time.Millisecond
	aheadMax  = 4096
	// settleMax bounds the outcomes of one settlement.
	settleMax = 8192
	// settleBytes bounds the results in one settlement, which has results only for
	// events of jobs. resultBytes bounds the results that wait: above it no more jobs
	// are leased. Workers may exceed it by one result each.
	settleBytes = 8 << 20
	resultBytes = 32 << 20
	// payloadBytes bounds the payloads of the jobs that are held: above it no more jobs are
	// leased. One lease may exceed it, by MaxPageBytes.
	payloadBytes = 256 << 20
	// leasePoll is how often the pool leases when nothing wakes it: another instance
	// may have admitted jobs.
	leasePoll = time.Second
)

// pool runs the jobs of one type. One goroutine leases them in batches, workers run
// them, and one goroutine settles their outcomes in batches: while one batch is written,
// the next collects, so batches grow with the load.
type pool struct {
	engine  *Engine
	name    string
	runner  bulk.Runner
	costs   *costs
	wake    lifecycle.Signal // workers are free, or jobs are ready
	settled lifecycle.Signal // outcomes wait to be settled

	mu       sync.Mutex
	work     *sync.Cond // jobs were leased, or the pool changes
	idle     *sync.Cond // outcomes were settled
	want     int        // the number of workers to run
	workers  int        // the number of workers that run
	queue    []bulk.Job // leased, not started
	running  map[bulk.LeaseID]runningJob
	shared   bool // several tenants have jobs of the type
	dry      bool // the last lease found no ready job
	seeking  bool // a worker waits for a job of another tenant
	outcomes []attemptOutcome
	results  int // bytes of results in outcomes
	payloads int // bytes of payloads in queue and running
	writing  int // outcomes in the settlement under way
	speed    float64
	closing  bool
	gone     bool // handed back: outcomes are no longer needed
}

// runningJob is a job that a worker runs.
type runningJob struct {
	spec  *bulk.Spec
	since time.Time
	cost  *cost
	bytes int
	// cancel ends the attempt's context.
	cancel context.CancelFunc
	last   bool // the job has no attempt left after this one
	// givenUp reports whether the attempt was settled before its handler has returned.
	givenUp bool
}

func newPool(e *Engine, name string, runner bulk.Runner) *pool {
	p := &pool{
		engine: e, name: name, runner: runner, costs: e.costsOf(name),
		wake: lifecycle.NewSignal(), settled: lifecycle.NewSignal(), running: map[bulk.LeaseID]runningJob{},
	}
	p.work, p.idle = sync.NewCond(&p.mu), sync.NewCond(&p.mu)
	return p
}

func (p *pool) start(group *lifecycle.Group) {
	group.Go(p.name+" leaser", p.leaser)
	group.Go(p.name+" settler", p.settler)
	group.Go(p.name+" keeper", p.keeper)
}

// resize sets the number of workers. Missing workers start; surplus ones stop when
// their job has ended.
func (p *pool) resize(want int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if want == p.want {
		return
	}
	p.want = want
	p.hire()
	p.work.Broadcast()
	p.wake.Wake()
}

// hire starts workers for the jobs that wait. p.mu must be held.
func (p *pool) hire() {
	for ; p.workers < min(p.want, len(p.queue)+len(p.running)) && !p.closing; p.workers++ {
		p.engine.group.Go(p.name+" worker", p.worker)
	}
}

func (p *pool) size() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.want
}

// leaser keeps the workers supplied.
func (p *pool) leaser(ctx context.Context) error {
	var backoff backoff
	for {
		n, closing := p.free()
		if closing {
			return nil
		}
		leased, pause := 0, time.Duration(0)
		if n > 0 {
			jobs, err := p.engine.store.Lease(ctx, bulk.LeaseRequest{
				Types: []string{p.name}, Workers: p.engine.workersOf(p.name), Max: n, LeaseFor: p.engine.config.Lease, Local: true,
			})
			if err != nil && !retriable(err) {
				return err
			}
			pause = backoff.after(p.engine.log, "lease", err, "type", p.name)
			leased = len(jobs)
			p.supply(jobs)
		}
		if leased > 0 {
			p.engine.fetch.Wake()
			continue
		}
		if !lifecycle.Sleep(ctx, nil, pause) || !lifecycle.Sleep(ctx, p.wake, leasePoll) {
			return ctx.Err()
		}
	}
}

// free returns how many jobs to lease: none until half of what the workers can hold is
// free, so that jobs are leased in batches.
func (p *pool) free() (n int, closing bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	held := len(p.queue) + len(p.running)
	ahead := min(int(p.speed*aheadTime.Seconds()), aheadMax)
	n = p.want + ahead - held
	if p.seeking {
		n += seekAhead * (p.want + ahead)
	}
	if n < ahead/2 || p.results > resultBytes || p.payloads > payloadBytes {
		n = 0
	}
	return max(0, n), p.closing
}

func (p *pool) supply(jobs []bulk.Job) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dry = len(jobs) == 0; p.dry {
		if p.seeking { // the others take what there is
			p.work.Broadcast()
		}
		return
	}
	for i := range jobs {
		p.payloads += len(jobs[i].Payload)
	}
	for range min(len(jobs), p.workers) {
		p.work.Signal()
	}
	if p.closing {
		p.release(jobs, 0)
		return
	}
	p.queue = append(p.queue, jobs...)
	p.hire()
}

// worker runs one job after another.
func (p *pool) worker(context.Context) error {
	for {
		ctx, job, ok := p.next()
		if !ok {
			return nil
		}
		began := time.Now()
		settlement := p.attempt(ctx, &job)
		settlement.Lease, settlement.Took = job.Lease, time.Since(began)
		p.end(attemptOutcome{settlement, job.Spec, p.last(&job)})
	}
}

// next waits for a job, and returns it with the context of its attempt; ok is false if the
// worker must stop.
func (p *pool) next() (ctx context.Context, job bulk.Job, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		if p.workers > p.want || p.closing && len(p.queue) == 0 {
			p.workers--
			return nil, bulk.Job{}, false
		}
		if at, found := p.pick(); found {
			job = p.take(at)
			break
		}
		p.work.Wait()
	}
	ctx, cancel := context.WithTimeout(p.engine.jobs, p.runner.TimeoutOf(job.Spec))
	now := time.Now()
	p.running[job.Lease] = runningJob{job.Spec, now, p.costs.start(holderOf(job.Spec), now), len(job.Payload), cancel, p.last(&job), false}
	return ctx, job, true
}

// endRuns tells the handlers of some jobs to end: their attempts do not count any more.
func (p *pool) endRuns(of func(bulk.LeaseID, *bulk.Spec) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for lease, run := range p.running {
		if of(lease, run.spec) {
			run.cancel()
		}
	}
}

// end hands an outcome to the settler.
func (p *pool) end(e attemptOutcome) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return
	}
	run := p.running[e.settlement.Lease]
	run.cancel()
	delete(p.running, e.settlement.Lease)
	p.payloads -= run.bytes
	p.costs.end(run.cost, run.since, time.Now(), e.settlement.Kind.Ran())
	p.outcomes = append(p.outcomes, e)
	p.results += len(e.settlement.Result)
	p.settled.Wake()
	if len(p.queue) == 0 || len(p.queue)+len(p.running) < int(p.speed*aheadTime.Seconds())/2 {
		p.wake.Wake()
	}
}

// release releases leased jobs that did not run, to be due after a while. p.mu must be held.
func (p *pool) release(jobs []bulk.Job, after time.Duration) {
	for i := range jobs {
		p.payloads -= len(jobs[i].Payload)
		p.outcomes = append(p.outcomes, attemptOutcome{settlement: bulk.Settlement{Lease: jobs[i].Lease, Kind: bulk.Released, RetryAfter: after}, spec: jobs[i].Spec})
	}
	p.settled.Wake()
}

// settler records outcomes: in one batch all that came since the last. Outcomes that the store
// could not record come again, behind newer ones, which another part of the store may take.
func (p *pool) settler(ctx context.Context) error {
	meter := speedometer{since: time.Now()}
	var backoff backoff
	for {
		batch := p.collect()
		if len(batch) == 0 {
			select {
			case <-p.settled:
				continue
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		left, err := p.engine.settle(ctx, batch)
		pause := backoff.after(p.engine.log, "settle", err, "type", p.name)
		p.mu.Lock()
		p.writing = 0
		p.speed = meter.measure(len(batch)-len(left), p.speed)
		p.putBack(left)
		p.idle.Broadcast()
		p.mu.Unlock()
		p.wake.Wake()
		if err != nil && (!retriable(err) || !lifecycle.Sleep(ctx, p.settled, pause)) {
			return err
		}
	}
}

// putBack keeps outcomes that were not recorded. p.mu must be held.
func (p *pool) putBack(left []attemptOutcome) {
	for i := range left {
		p.results += len(left[i].settlement.Result)
	}
	p.outcomes = append(p.outcomes, left...)
}

func (p *pool) collect() []attemptOutcome {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, bytes := 0, 0
	for n < min(len(p.outcomes), settleMax) && bytes < settleBytes {
		bytes += len(p.outcomes[n].settlement.Result)
		n++
	}
	p.results -= bytes
	batch := p.outcomes[:n:n]
	if p.outcomes = p.outcomes[n:]; len(p.outcomes) == 0 {
		p.outcomes = nil
	}
	p.writing = n
	return batch
}

// speedometer measures how many jobs a pool finishes in a second.
type speedometer struct {
	since time.Time
	jobs  int
}

// measure adds jobs and returns the speed, measured every 20 ms.
func (m *speedometer) measure(jobs int, speed float64) float64 {
	m.jobs += jobs
	elapsed := time.Since(m.since)
	if elapsed < 20*time.Millisecond {
		return speed
	}
	measured := float64(m.jobs) / elapsed.Seconds()
	m.since, m.jobs = time.Now(), 0
	if measured > speed {
		return measured
	}
	return 0.7*speed + 0.3*measured
}

// keeper extends the leases of running jobs. A job that has run longer than its timeout
// and the grace is given up: its attempt has failed, whatever becomes of it. Handlers whose lease
// is lost, or whose action was canceled, are told to end.
func (p *pool) keeper(ctx context.Context) error {
	ticker := time.NewTicker(p.engine.config.Lease / 3)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case now := <-ticker.C:
			if err := p.keep(ctx, p.extensions(now)); err != nil && !retriable(err) {
				return err
			}
		}
	}
}

func (p *pool) keep(ctx context.Context, extensions []bulk.Settlement) error {
	if len(extensions) == 0 {
		return nil
	}
	verdicts, failed := p.engine.store.Settle(ctx, extensions)
	if len(verdicts) == 0 {
		return failed
	}
	if err := p.engine.endedBy(ctx, extensions, verdicts); err != nil {
		return err
	}
	over := map[bulk.LeaseID]bool{}
	for i, verdict := range verdicts {
		over[extensions[i].Lease] = verdict != bulk.Accepted && verdict != 0
	}
	p.endRuns(func(lease bulk.LeaseID, _ *bulk.Spec) bool { return over[lease] })
	return failed
}

func (p *pool) extensions(now time.Time) (extensions []bulk.Settlement) {
	p.mu.Lock()
	defer p.mu.Unlock()
	extend := func(lease bulk.LeaseID) {
		extensions = append(extensions, bulk.Settlement{Lease: lease, Kind: bulk.Extended, LeaseFor: p.engine.config.Lease})
	}
	grace := max(0, p.engine.config.ShutdownGrace)
	for lease, r := range p.running {
		switch timeout := p.runner.TimeoutOf(r.spec); {
		case now.Sub(r.since) < timeout+grace:
			extend(lease)
		case !r.givenUp:
			r.givenUp = true
			p.running[lease] = r
			why := fmt.Sprintf("timed out after %s, and its handler did not end within %s after that", timeout, grace)
			p.outcomes = append(p.outcomes, attemptOutcome{bulk.Settlement{Lease: lease, Kind: bulk.FailedForNow, Error: why, Took: now.Sub(r.since)}, r.spec, r.last})
			p.settled.Wake()
		}
	}
	for i := range p.queue {
		extend(p.queue[i].Lease)
	}
	return extensions
}

// drain stops leasing, releases the jobs that have not started, and waits until the
// running jobs are settled, or ctx ends.
func (p *pool) drain(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.idle.Broadcast()
	})
	defer stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closing = true
	p.release(p.queue, 0)
	p.queue = nil
	p.work.Broadcast()
	p.wake.Wake()
	for len(p.running)+len(p.outcomes)+p.writing > 0 && ctx.Err() == nil && p.engine.group.Err() == nil {
		p.idle.Wait()
	}
}

// handBackTime is how long handlers have to return after their context has ended.
const handBackTime = time.Second

// handBack waits for the handlers that still run, up to handBackTime, then releases
// their jobs.
func (p *pool) handBack() {
	ctx, cancel := context.WithTimeout(context.Background(), handBackTime)
	defer cancel()
	p.drain(ctx)
	left := p.leave()
	if len(left) == 0 {
		return
	}
	if _, err := p.engine.store.Settle(context.Background(), left); err != nil {
		p.engine.log.Error("release jobs", "type", p.name, "jobs", len(left), "error", err)
	}
}

// leave takes no more outcomes, and returns the settlements that remain: those that were not sent,
// and releases of what still runs.
func (p *pool) leave() (left []bulk.Settlement) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = true
	for lease := range p.running {
		left = append(left, bulk.Settlement{Lease: lease, Kind: bulk.Released})
	}
	for _, e := range p.outcomes {
		left = append(left, e.settlement)
	}
	return left
}

const (
	// pickMost is how many leased jobs a free worker looks at.
	pickMost = 256
	// seekAhead is how many jobs are leased for each worker when one seeks a job of another
	// tenant.
	seekAhead = 4
	// returnAfter is how long jobs wait that are released because others of their
	// tenant hang.
	returnAfter = time.Second
)

// choosy reports whether workers choose among the leased jobs: where workers are few, and
// several tenants have jobs. p.mu must be held.
func (p *pool) choosy() bool { return p.shared && p.want >= leastPool && p.name != bulk.WebhookType }

// share tells the pool whether several tenants have jobs of its type.
func (p *pool) share(shared bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shared = shared
}

// pick returns the place of the job that a free worker takes next: the first whose tenant holds
// less than half of the workers, so that a tenant whose attempts begin to hang takes no more
// than that. If there is none, it is the first, once no other can be leased. p.mu must be held.
func (p *pool) pick() (at int, found bool) {
	if p.choosy() {
		at = p.fair()
	}
	if p.seeking = at < 0 && p.returnLong(time.Now()); p.seeking {
		p.wake.Wake()
		return 0, false
	}
	return max(at, 0), len(p.queue) > 0
}

// fair returns the place of the first job whose tenant holds less than half of the workers; -1
// if there is none in sight. p.mu must be held.
func (p *pool) fair() int {
	var spec *bulk.Spec // of the job before, which often is the same
	for at := range min(len(p.queue), pickMost) {
		if job := &p.queue[at]; job.Spec != spec {
			if spec = job.Spec; p.costs.running(spec.Tenant) < p.want/2 {
				return at
			}
		}
	}
	return -1
}

// take removes a job from the queue. p.mu must be held.
func (p *pool) take(at int) bulk.Job {
	job := p.queue[at]
	copy(p.queue[1:at+1], p.queue[:at])
	p.queue[0] = bulk.Job{}
	if p.queue = p.queue[1:]; len(p.queue) == 0 {
		p.queue = nil
	}
	return job
}

// returnLong releases the leased jobs whose attempts may be long, for a while: the workers that
// are left are for others. It reports whether jobs of others may still be leased. p.mu must be
// held.
func (p *pool) returnLong(now time.Time) (more bool) {
	var back []bulk.Job
	var spec *bulk.Spec
	long, kept := false, p.queue[:0]
	for i := range p.queue {
		job := &p.queue[i]
		if job.Spec != spec {
			spec = job.Spec
			long = p.costs.estimate(holderOf(spec), now).long
		}
		if long {
			back = append(back, *job)
		} else if len(back) > 0 {
			kept = append(kept, *job)
		} else {
			kept = p.queue[:i+1]
		}
	}
	clear(p.queue[len(kept):])
	p.queue = kept
	p.release(back, returnAfter)
	return !p.dry && !p.closing && len(p.queue)+len(p.running) < seekAhead*p.want
}
