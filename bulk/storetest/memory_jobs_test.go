package storetest

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

func (m *memory) Backlog(context.Context) (bulk.Backlog, error) {
	unlock, err := m.lock()
	if err != nil {
		return bulk.Backlog{}, err
	}
	defer unlock()
	b := bulk.Backlog{
		Now: time.Now(), WindowEnds: time.Unix(0, (m.window+1)*int64(m.config.Window)),
		Left: bulk.NoLimit, Virtual: m.virtual[""],
		Types: map[string]bulk.TypeState{}, Targets: map[string]int64{},
		Found: m.found(),
	}
	b.Left = m.left(m.limiters(&memAction{})[0], true)
	m.showOutbox(&b)
	lines := map[string]int{}
	for _, a := range m.actions {
		for reason, n := range a.NonReady {
			b.NonReady[reason] += n
		}
		t := b.Types[a.Type]
		t.Ready, t.InFlight = t.Ready+a.Ready, t.InFlight+a.InFlight
		t.Idle = m.idle(a.Type)
		t.Finished, t.Virtual = m.finished[a.Type], m.virtual[a.Type]
		limits := m.limiters(a)
		if limits[2].rate > 0 || limits[2].concurrency > 0 {
			b.Targets[a.TargetName()] = m.left(limits[2], true)
		}
		waits := a.Status == bulk.Running && (!a.Paused || m.is("paused in backlog"))
		if waits && a.Pending > 0 {
			t.Waiting += a.Pending
			key := a.Tenant + "\x00" + a.Type
			at, known := lines[key]
			if !known {
				at = len(b.Lines)
				lines[key] = at
				b.Lines = append(b.Lines, bulk.Line{
					Tenant: a.Tenant, Type: a.Type, Settings: m.settings.Tenants[a.Tenant].WithDefaults(),
					Taken: m.tags[a.Tenant], TypeTaken: m.tags[key], Left: m.left(limits[1], true),
				})
			}
			b.Lines[at].Waiting = append(b.Lines[at].Waiting, bulk.Waiting{
				Number: a.number, Class: a.Class, EnteredAt: a.EnteredAt, Total: a.Total, Done: a.Done(),
				Jobs: a.Pending, Target: a.TargetName(), Left: bulk.NoLimit,
			})
		}
		b.Types[a.Type] = t
	}
	return b, nil
}

func (m *memory) Admit(_ context.Context, grants []bulk.Grant) (admitted int, err error) {
	unlock, err := m.lock()
	if err != nil {
		return 0, err
	}
	defer unlock()
	for _, g := range grants {
		a := m.byNumber(g.Number)
		if a == nil || a.Status != bulk.Running || a.Paused || m.idle(a.Type) {
			continue
		}
		for n := int64(0); n < g.Jobs && len(a.line) > 0 && m.allowed(a, true); n++ {
			at := 0
			if m.is("last in first out") {
				at = len(a.line) - 1
			}
			j := a.line[at]
			a.line = slices.Delete(a.line, at, at+1)
			j.put(memReady)
			if !slices.ContainsFunc(m.ready, func(j *memJob) bool { return j.action.Type == a.Type }) {
				m.asked[a.Type] = m.window
			}
			m.ready = append(m.ready, j)
			m.charge(a)
			admitted++
		}
	}
	return admitted, nil
}

// charge advances the tags of the division by one job.
func (m *memory) charge(a *memAction) {
	step := 1 / m.settings.Tenants[a.Tenant].WithDefaults().Weight
	if m.is("weight ignored") {
		step = 1
	}
	for of, key := range map[string]string{"": a.Tenant, a.Type: a.Tenant + "\x00" + a.Type} {
		m.virtual[of] = max(m.virtual[of], m.tags[key])
		m.tags[key] = m.virtual[of] + step
		if m.is("newcomer claims the past") {
			m.virtual[of] = 0
		}
	}
}

func (m *memory) Lease(_ context.Context, r bulk.LeaseRequest) (jobs []bulk.Job, err error) {
	unlock, err := m.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	types := slices.Clone(r.Types)
	for _, name := range types {
		m.asked[name] = m.window
	}
	if m.turn++; m.turn%2 == 0 && !m.is("types not in turn") {
		slices.Reverse(types)
	}
	for len(types) > 0 && len(jobs) < r.Max {
		at := slices.IndexFunc(m.ready, func(j *memJob) bool { return j.action.Type == types[0] })
		if at < 0 {
			types = types[1:]
			continue
		}
		if !m.is("types not in turn") {
			types = append(types[1:], types[0])
		}
		j := m.ready[at]
		m.ready = slices.Delete(m.ready, at, at+1)
		if !m.allowed(j.action, false) && !m.is("lease ignores limits") {
			j.nonReady(bulk.RateLimited, time.Unix(0, (m.window+1)*int64(m.config.Window)))
			continue
		}
		jobs = append(jobs, m.take(j, r))
	}
	return jobs, nil
}

func (m *memory) take(j *memJob, r bulk.LeaseRequest) bulk.Job {
	j.put(memInFlight)
	for _, l := range m.limiters(j.action) {
		m.started[l.key]++
	}
	if !m.is("fence stands still") || j.fence == 0 {
		j.fence++
	}
	j.attempts++
	j.due, j.local = time.Now().Add(r.LeaseFor), r.Local
	spec := j.action.Spec // A move replaces the action's while the job is read.
	return bulk.Job{
		Spec: &spec, Index: j.index, Payload: j.payload, Attempt: j.attempts, Deadline: j.due,
		Lease: bulk.LeaseID{Action: j.action.number, Index: uint32(j.index), Fence: j.fence},
	}
}

func (m *memory) Settle(_ context.Context, settlements []bulk.Settlement) (verdicts []bulk.Verdict, err error) {
	unlock, err := m.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	batches := map[*memAction][]bulk.Outcome{}
	for _, s := range settlements {
		verdicts = append(verdicts, m.settle(s, batches))
	}
	m.record(batches)
	return verdicts, nil
}

func (m *memory) record(batches map[*memAction][]bulk.Outcome) {
	for a, outcomes := range batches {
		if len(outcomes) == 0 || len(a.Aggregate) == 0 && !m.is("outcomes without aggregate") {
			continue
		}
		a.outcomes = append(a.outcomes, outcomes)
		a.Batches++
	}
}

func (m *memory) settle(s bulk.Settlement, batches map[*memAction][]bulk.Outcome) bulk.Verdict {
	a := m.byNumber(s.Lease.Action)
	if a == nil || int64(s.Lease.Index) >= a.Received {
		return bulk.Unknown
	}
	j := a.jobs[s.Lease.Index]
	switch {
	case j.settled[s.Lease.Fence] && !m.is("counts twice"):
		return bulk.Duplicate
	case s.Lease.Fence > j.fence:
		return bulk.Unknown
	case s.Lease.Fence != j.fence || j.state != memInFlight && !m.is("counts twice"):
		return bulk.Expired
	}
	now := time.Now()
	if s.Kind == bulk.Extended {
		if !m.is("extend does nothing") {
			j.due = now.Add(s.LeaseFor)
		}
		return bulk.Accepted
	}
	j.settled[j.fence] = true
	m.observe(j.action, s)
	switch s.Kind {
	case bulk.Succeeded:
		m.finish(j, memSucceeded, s, batches)
	case bulk.FailedForGood:
		m.finish(j, memFailed, s, batches)
	case bulk.FailedForNow:
		m.retry(j, s, batches)
	case bulk.Throttled:
		a.Throttled++
		if !m.is("throttle uses an attempt") {
			j.attempts--
		}
		m.turnBack(j, bulk.APIThrottled, now.Add(max(m.config.For(a.Type).BackoffBase, s.RetryAfter)))
	case bulk.Released:
		j.attempts--
		m.turnBack(j, bulk.TransientError, now)
	}
	return bulk.Accepted
}

func (m *memory) retry(j *memJob, s bulk.Settlement, batches map[*memAction][]bulk.Outcome) {
	c := m.config.For(j.action.Type)
	if j.action.Status == bulk.Canceled {
		m.turnBack(j, bulk.TransientError, time.Now())
		return
	}
	most := j.action.MaxAttempts
	if most == 0 || m.is("spec attempts ignored") {
		most = c.MaxAttempts
	}
	if j.attempts >= most {
		m.finish(j, memFailed, s, batches)
		return
	}
	delay := s.RetryAfter
	if delay <= 0 || m.is("retry-after ignored") {
		delay = bulk.RetryDelay(c.BackoffBase, c.BackoffCap, j.attempts, rand.Float64())
	}
	j.action.Retried++
	m.finished[j.action.Type]++
	m.turnBack(j, bulk.TransientError, time.Now().Add(delay))
}

func (m *memory) turnBack(j *memJob, reason bulk.NonReadyReason, due time.Time) {
	if j.action.Status == bulk.Canceled && !m.is("canceled jobs come back") {
		j.put(memCanceled)
		return
	}
	j.nonReady(reason, due)
}

func (m *memory) finish(j *memJob, state memState, s bulk.Settlement, batches map[*memAction][]bulk.Outcome) {
	a := j.action
	m.finished[a.Type]++
	j.put(state)
	text := s.Error[:min(len(s.Error), bulk.MaxErrorBytes)]
	if m.is("errors not cut") {
		text = s.Error
	}
	batches[a] = append(batches[a], bulk.Outcome{
		Index: j.index, Succeeded: state == memSucceeded, Attempts: j.attempts, Took: s.Took, Values: s.Values, Error: text,
	})
	m.announceEnded(j, s, text)
	if state == memFailed && !m.is("no dead letters") {
		a.dead = append(a.dead, bulk.DeadLetter{
			Action: a.ID, Index: j.index, Payload: j.payload, Error: text, Attempts: j.attempts, FailedAt: time.Now(),
		})
		slices.SortFunc(a.dead, func(x, y bulk.DeadLetter) int { return int(x.Index - y.Index) })
	}
}

func (m *memory) Dispatch(_ context.Context, most int) (moved int, next time.Time, err error) {
	unlock, err := m.lock()
	if err != nil {
		return 0, next, err
	}
	defer unlock()
	var waiting []*memJob
	for _, a := range m.actions {
		for _, j := range a.jobs {
			if j.state == memNonReady || j.state == memInFlight {
				waiting = append(waiting, j)
			}
		}
	}
	if !m.is("dispatch in index order") {
		slices.SortStableFunc(waiting, func(x, y *memJob) int { return x.due.Compare(y.due) })
	}
	front := map[*memAction][]*memJob{}
	for _, j := range waiting {
		switch {
		case j.due.After(time.Now()) && !m.is("dispatch too early"):
			if next.IsZero() || j.due.Before(next) {
				next = j.due
			}
		case moved == most:
			next = time.Now()
		default:
			moved++
			m.dispatch(j, front)
		}
	}
	for a, jobs := range front {
		if m.is("returned jobs go last") {
			a.line = append(a.line, jobs...)
		} else {
			a.line = append(jobs, a.line...)
		}
	}
	return moved, next, nil
}

func (m *memory) dispatch(j *memJob, front map[*memAction][]*memJob) {
	expired := j.state == memInFlight
	switch most := cmp.Or(j.action.MaxAttempts, m.config.For(j.action.Type).MaxAttempts); {
	case expired && j.action.Status == bulk.Canceled:
		j.put(memCanceled)
	case expired && j.attempts >= most && !m.is("expired for ever"):
		batches := map[*memAction][]bulk.Outcome{}
		m.finish(j, memFailed, bulk.Settlement{Error: "the lease expired"}, batches)
		m.record(batches)
	default:
		j.put(memPending)
		front[j.action] = append(front[j.action], j)
	}
}

// crashed takes back a job that was in flight when the process ended.
func (m *memory) crashed(j *memJob) {
	j.crashes++
	if !m.is("crash uses an attempt") {
		j.attempts--
	}
	switch {
	case j.action.Status == bulk.Canceled:
		j.put(memCanceled)
	case j.crashes >= m.config.MaxCrashes && !m.is("crashes for ever"):
		batches := map[*memAction][]bulk.Outcome{}
		m.finish(j, memFailed, bulk.Settlement{Error: "the process crashed while it ran"}, batches)
		m.record(batches)
	default:
		j.put(memPending)
		j.action.line = slices.Insert(j.action.line, 0, j)
	}
}
