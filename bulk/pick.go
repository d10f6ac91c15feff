package bulk

import (
	"slices"
	"time"
)

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
func (p *pool) choosy() bool { return p.shared && p.want >= leastPool && p.name != WebhookType }

// share tells the pool whether several tenants have jobs of its type.
func (p *pool) share(shared bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shared = shared
}

// pick returns the place of the job that a free worker takes next: the first whose tenant holds
// less than half of the workers, so that a tenant whose attempts begin to hang takes no more
// than that. If there is none, it is the first, once no other can be leased. P.mu must be held.
func (p *pool) pick() (at int, found bool) {
	at = 0
	if p.choosy() {
		at = slices.IndexFunc(p.queue[:min(len(p.queue), pickMost)], func(job Job) bool {
			return p.tenants[job.Spec.Tenant] < p.want/2
		})
	}
	if p.seeking = at < 0 && p.returnLong(time.Now()); p.seeking {
		p.wake.Wake()
		return 0, false
	}
	return max(at, 0), len(p.queue) > 0
}

// take removes a job from the queue. p.mu must be held.
func (p *pool) take(at int) Job {
	job := p.queue[at]
	copy(p.queue[1:at+1], p.queue[:at])
	p.queue[0] = Job{}
	if p.queue = p.queue[1:]; len(p.queue) == 0 {
		p.queue = nil
	}
	return job
}

// returnLong releases the leased jobs whose attempts may be long, for a while: the workers that
// are left are for others. It reports whether jobs of others may still be leased. P.mu must be
// held.
func (p *pool) returnLong(now time.Time) (more bool) {
	var back []Job
	p.queue = slices.DeleteFunc(p.queue, func(job Job) bool {
		long := p.costs.estimate(holderOf(job.Spec), now).long
		if long {
			back = append(back, job)
		}
		return long
	})
	p.release(back, returnAfter)
	return !p.dry && !p.closing && len(p.queue)+len(p.running) < seekAhead*p.want
}

// shares reports whether several tenants have jobs of a type.
func (b *Backlog) shares(name string) bool {
	first, any := "", false
	another := func(tenant string) bool {
		if !any {
			first, any = tenant, true
		}
		return tenant != first
	}
	for of := range b.Held {
		if of.Type == name && another(of.Tenant) {
			return true
		}
	}
	for i := range b.Lines {
		if b.Lines[i].Type == name && another(b.Lines[i].Tenant) {
			return true
		}
	}
	return false
}
