package bulk

import (
	"sync"
	"time"
)

// lent has the jobs that remote workers were given here, and how many more they wait for. It
// is safe for concurrent use.
type lent struct {
	mu      sync.Mutex
	jobs    map[LeaseID]lentJob
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
	return lent{jobs: map[LeaseID]lentJob{}, count: map[string]int64{}, waiting: map[string]int64{}}
}

// wait counts a request that waits for jobs, until done is called.
func (l *lent) wait(request *LeaseRequest) (done func()) {
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
func (e *Engine) lend(jobs []Job) {
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
		case settlement.Kind == Extended:
			job.until = now.Add(settlement.LeaseFor)
			e.lent.jobs[settlement.Lease] = job
		default:
			e.returned(settlement.Lease, job, now, settlement.Kind.ran())
		}
	}
}

// returned records that a job is no longer lent. e.lent.mu must be held.
func (e *Engine) returned(lease LeaseID, job lentJob, now time.Time, counts bool) {
	delete(e.lent.jobs, lease)
	e.lent.count[job.jobType]--
	e.costsOf(job.jobType).end(job.cost, job.since, now, counts)
}
