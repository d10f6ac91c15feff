package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/keys"
)

// Lease implements bulk.Store.
func (s *Store) Lease(_ context.Context, request bulk.LeaseRequest) (leased []bulk.Job, err error) {
	done, err := s.hold()
	if err != nil {
		return nil, err
	}
	defer done()
	var writes writes
	var unread error
	bytes := 0
	for more := true; more && err == nil; {
		most := min(holdMost, request.Max-len(leased))
		offers := s.offers(request.Types, most)
		s.readPayloads(&offers, request.Local, bytes)
		before := len(leased)
		err = writes.add(s.enterCall(func(c *call) error {
			unread = errors.Join(unread, c.leaseOffers(request, offers, &leased))
			return nil
		}))
		for i := range leased[before:] {
			bytes += len(leased[before+i].Payload)
		}
		// If other calls have taken all of them, the next ones are offered.
		more = len(offers) == most && len(leased) < request.Max || len(leased) == 0 && len(offers) > 0
	}
	if err = errors.Join(err, writes.wait(), unread); err != nil {
		return nil, err
	}
	return leased, nil
}

// offer is a ready job whose payload is read before it is leased: payloads are read without
// s.mu, and jobs that exceed the bound of bytes are not taken.
type offer struct {
	number  uint64
	index   uint32
	payload []byte
	err     error
	// keys are those of the job, by what computes its tenant's.
	spec *bulk.Spec
	by   *keys.Keys
	keys []bulk.KeyUse
}

// offers returns the jobs that leaseOffers takes next, without their payloads.
func (s *Store) offers(types []string, most int) (offers []offer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	turn, seen := s.turn, map[*jobType]int{}
	offers = make([]offer, 0, min(most, s.ready(types)))
	for len(offers) < most {
		k := s.nextReady(types, &turn, seen)
		if k == nil {
			break
		}
		j := k.ready.at(seen[k])
		seen[k]++
		offers = append(offers, offer{number: j.action.number, index: j.index, spec: j.action.spec, by: j.action.line.tenant.keys})
	}
	return offers
}

// ready returns how many jobs of some types are ready.
func (s *Store) ready(types []string) (jobs int) {
	for _, name := range types {
		if k := s.types[name]; k != nil {
			jobs += k.ready.len()
		}
	}
	return jobs
}

// readPayloads reads the payloads of offers, with their keys, and drops the offers that do not fit to the bytes that
// were leased before. Those of remote workers are copies, which keep no pages in memory.
func (s *Store) readPayloads(offers *[]offer, local bool, bytes int) {
	for i := range *offers {
		o := &(*offers)[i]
		o.payload, o.err = s.pages.payload(o.number, o.index)
		if before := bytes; before > 0 && before+len(o.payload) > bulk.MaxPageBytes {
			*offers = (*offers)[:i]
			return
		}
		bytes += len(o.payload)
		if !local {
			o.payload = slices.Clone(o.payload)
		}
		o.keys = o.by.Of(o.spec, o.payload)
	}
}

// leaseOffers leases the offered jobs that are still the next ones. It returns the first error of
// those whose payload could not be read.
func (c *call) leaseOffers(request bulk.LeaseRequest, offers []offer, leased *[]bulk.Job) (unread error) {
	s, before := c.s, len(*leased)
	*leased = slices.Grow(*leased, len(offers))
	for _, name := range request.Types {
		s.wake(name, c.window)
	}
	for len(offers) > 0 {
		k := s.nextReady(request.Types, &s.turn, nil)
		if k == nil {
			break
		}
		j := k.ready.at(0)
		at := slices.IndexFunc(offers, func(o offer) bool { return o.number == j.action.number && o.index == j.index })
		if at < 0 || offers[at].by != j.action.line.tenant.keys { // its limits by key have changed
			break
		}
		o := offers[at]
		offers = offers[at+1:]
		k.ready.pop()
		s.charge(j.action, -1)
		j.action.record.Ready--
		s.occupy(j.action, -1)
		if over := s.exceeded(j.action, c.now); over != nil {
			s.turnBack(j, over)
			continue
		}
		if k, charge := s.waitsFor(j, o.keys, c.now); k != nil {
			s.waitFor(j, k, charge, c.now)
			continue
		}
		job := c.lease(j, request)
		s.holdKeys(j, o.keys, true, c.now)
		job.Payload = o.payload
		if *leased = append(*leased, job); o.err != nil && unread == nil {
			unread = fmt.Errorf("job %s: %w", job.ID(), o.err)
		}
	}
	if len(*leased) > before {
		c.started()
	}
	return unread
}

// nextReady returns the next type with ready jobs, besides those seen, in rotation over all
// calls, so that small requests starve no type. It returns nil if no job is ready.
func (s *Store) nextReady(types []string, turn *uint64, seen map[*jobType]int) *jobType {
	for range types {
		*turn++
		if k := s.types[types[*turn%uint64(len(types))]]; k != nil && k.ready.len() > seen[k] {
			return k
		}
	}
	return nil
}

// exceeded returns a limit that allows no further attempt; nil if there is none. Admission
// has checked them, but a limit may have been lowered since.
func (s *Store) exceeded(a *action, now time.Time) *counter {
	for _, c := range [...]*counter{&s.global, &a.line.tenant.counter, &a.target.counter} {
		if !s.mayStart(c, now) {
			return c
		}
	}
	return nil
}

// turnBack makes a ready job wait for the next window of a limit.
func (s *Store) turnBack(j *job, over *counter) {
	s.giveUp(j, s.now())
	j.reason, j.at = reasonRateLimited, s.ends(over)
	s.setAside(j)
}

// lease starts an attempt and charges it to the window.
func (c *call) lease(j *job, request bulk.LeaseRequest) bulk.Job {
	s, a := c.s, j.action
	s.global.started++
	a.line.tenant.counter.started++
	a.limiter.roll(c.window)
	a.limiter.started++
	a.target.started++
	a.target.auto.started()
	j.fence++
	j.attempts++
	j.local = request.Local
	j.at = c.now.Add(request.LeaseFor)
	s.launch(j)
	if j.local {
		c.note(a, evLeased, j.index, 0)
	} else {
		c.note(a, evLent, j.index, millis(j.at))
	}
	return bulk.Job{
		Spec: a.spec, Index: int64(j.index), Attempt: int(j.attempts), Deadline: j.at,
		Lease: bulk.LeaseID{Action: a.number, Index: j.index, Fence: j.fence},
	}
}

// Settle implements bulk.Store.
func (s *Store) Settle(_ context.Context, settlements []bulk.Settlement) ([]bulk.Verdict, error) {
	verdicts := make([]bulk.Verdict, 0, len(settlements))
	var writes writes
	var err error
	for some := range slices.Chunk(settlements, holdMost) {
		err = errors.Join(err, writes.add(s.enterCall(func(c *call) error {
			for i := range some {
				verdict, err := c.settle(&some[i])
				c.keep(err)
				verdicts = append(verdicts, verdict)
			}
			return nil
		})))
	}
	if err = errors.Join(err, writes.wait()); err != nil {
		return nil, err
	}
	return verdicts, nil
}

func (c *call) settle(settlement *bulk.Settlement) (bulk.Verdict, error) {
	lease := settlement.Lease
	a := c.s.actions[lease.Action]
	if a == nil {
		return c.s.lateVerdict(lease, c.now)
	}
	if f := a.final(lease.Index); f != 0 {
		return finalVerdict(f, lease.Fence, c.now), nil
	}
	j := a.jobs[lease.Index]
	if j == nil {
		return bulk.Unknown, nil
	}
	state := bulk.LeaseState{Known: true, Fence: j.fence, InFlight: j.phase == inFlight, Deadline: j.at, Lapsed: j.lapsed}
	verdict := state.Verdict(lease.Fence, c.now)
	if verdict == bulk.Accepted {
		c.end(j, settlement)
	}
	return verdict, nil
}

// finalVerdict judges a settlement of a finished job. Fences are compared as finals
// keep them.
func finalVerdict(final uint8, fence uint32, now time.Time) bulk.Verdict {
	state := bulk.LeaseState{Finished: true, Fence: uint32(final & fenceMask)}
	return state.Verdict(uint32(finalOf(fence, false)), now)
}

// end applies an accepted settlement.
func (c *call) end(j *job, settlement *bulk.Settlement) {
	s, a := c.s, j.action
	effect := settlement.Kind.Effect(a.record.Status == bulk.Canceled, int(j.attempts), a.config.MaxAttempts)
	if effect == bulk.StaysInFlight {
		j.at = c.now.Add(settlement.LeaseFor)
		s.leases.Set(j)
		if !j.local {
			c.note(a, evExtended, j.index, millis(j.at))
		}
		return
	}
	s.settleCost(j, settlement.Cost, c.now)
	s.land(j)
	switch settlement.Kind {
	case bulk.Released:
	case bulk.Throttled:
		a.limiter.observe(c.window, 0, 1)
		a.target.auto.throttled(settlement.Took)
	default:
		a.limiter.observe(c.window, 1, 0)
		a.target.auto.passed(settlement.Took)
		a.line.jobType.finished++
	}
	switch effect {
	case bulk.Succeeds:
		c.succeed(j, settlement)
	case bulk.Fails:
		c.fail(j, settlement.Error, settlement.Took)
	case bulk.IsCanceled:
		c.cancel(j)
	case bulk.IsThrottled:
		c.throttle(j, settlement)
	case bulk.ReturnsToLine:
		c.release(j, bulk.BoundRetryAfter(settlement.RetryAfter))
	case bulk.IsRetried:
		c.retry(j, settlement)
	}
}

// release returns a job to its line, or makes it non-ready for a while.
func (c *call) release(j *job, delay time.Duration) {
	j.attempts--
	if delay == 0 {
		c.note(j.action, evReleased, j.index, 0)
		c.s.goBack(j)
		return
	}
	j.reason, j.at = reasonTransient, c.now.Add(delay)
	c.note(j.action, evPostponed, j.index, millis(j.at))
	c.s.setAside(j)
}

// throttle makes a job non-ready until its slot comes.
func (c *call) throttle(j *job, settlement *bulk.Settlement) {
	a := j.action
	j.attempts--
	j.reason = reasonThrottled
	j.at = c.now.Add(bulk.ThrottleDelay(a.config.BackoffBase, a.limiter.bookings.jobs,
		a.limiter.ratePerSecond(c.s.config.Window), bulk.BoundRetryAfter(settlement.RetryAfter)))
	a.record.Throttled++
	c.note(a, evThrottled, j.index, millis(j.at))
	c.s.setAside(j)
}

// retry makes a job non-ready until its next attempt.
func (c *call) retry(j *job, settlement *bulk.Settlement) {
	a := j.action
	delay := bulk.BoundRetryAfter(settlement.RetryAfter)
	if delay == 0 {
		delay = bulk.RetryDelay(a.config.BackoffBase, a.config.BackoffCap, int(j.attempts), rand.Float64())
	}
	j.reason, j.at = reasonTransient, c.now.Add(delay)
	a.record.Retried++
	c.note(a, evRetry, j.index, millis(j.at))
	c.s.setAside(j)
}

// Dispatch implements bulk.Store.
func (s *Store) Dispatch(_ context.Context, most int) (moved int, next time.Time, err error) {
	err = s.do(func(c *call) error {
		for j := s.due.First(); moved < most && j != nil && !j.at.After(c.now); j = s.due.First() {
			s.takeUp(j)
			s.goBack(j)
			moved++
		}
		moved += s.lookAtKeys(most-moved, c.now)
		for j := s.leases.First(); moved < most && j != nil && j.at.Before(c.now); j = s.leases.First() {
			c.expire(j)
			moved++
		}
		next = s.nextDue()
		return nil
	})
	return moved, next, err
}

// nextDue returns when Dispatch has something to do; zero if it is not known.
func (s *Store) nextDue() (next time.Time) {
	if j := s.due.First(); j != nil {
		next = j.at
	}
	if j := s.leases.First(); j != nil && (next.IsZero() || j.at.Before(next)) {
		next = j.at
	}
	if k := s.looks.First(); k != nil && (next.IsZero() || k.at.Before(next)) {
		next = k.at
	}
	return next
}

// expire ends an expired lease: the job returns to its line, or fails after its last
// attempt. A local lease expires only if its process could not extend it: that is like a crash.
func (c *call) expire(j *job) {
	s, a := c.s, j.action
	s.land(j)
	switch {
	case a.record.Status == bulk.Canceled:
		c.cancel(j)
	case j.local:
		if c.crash(j) {
			s.goBack(j)
		}
	case int(j.attempts) >= a.config.MaxAttempts:
		c.fail(j, fmt.Sprintf("the lease expired before it was settled, in attempt %d of %d", j.attempts, a.config.MaxAttempts), 0)
	default:
		a.record.Retried++
		c.note(a, evExpired, j.index, 0)
		s.goBack(j)
		j.lapsed = true
	}
}

// crash gives the attempt of a job back, and counts a crash instead. It returns false if that was
// one too many: then the job has failed.
func (c *call) crash(j *job) (lives bool) {
	j.attempts--
	j.crashes++
	if int(j.crashes) >= c.s.config.MaxCrashes {
		c.fail(j, fmt.Sprintf("in flight at %d crashes of the process", j.crashes), 0)
		return false
	}
	c.note(j.action, evCrashed, j.index, 0)
	j.lapsed = true
	return true
}

// millis returns a time as in the job log: in milliseconds, rounded up, so that no lease
// ends earlier after a restart than its deadline.
func millis(at time.Time) int64 { return at.Add(time.Millisecond - time.Nanosecond).UnixMilli() }
