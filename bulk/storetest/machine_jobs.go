package storetest

import (
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/bulk"
)

// admit grants random numbers of jobs to random actions, including actions without jobs.
func (m *machine) admit(t *rapid.T) {
	grants := []bulk.Grant{{Number: 1 << 50, Jobs: 5}}
	for range rapid.IntRange(1, 3).Draw(t, "grants") {
		if a := m.pick(func(a *modelAction) bool { return a.number > 0 }); a != nil {
			grants = append(grants, bulk.Grant{Number: a.number, Jobs: rapid.Int64Range(0, 12).Draw(t, "jobs")})
		}
	}
	m.admitGrants(grants)
}

func (m *machine) admitEverything(*rapid.T) {
	var grants []bulk.Grant
	for _, id := range m.model.order {
		if a := m.model.actions[id]; a.number > 0 {
			grants = append(grants, bulk.Grant{Number: a.number, Jobs: 100})
		}
	}
	m.admitGrants(grants)
}

// admitGrants compares the jobs that the store admits with what the limits allow, grant by
// grant.
func (m *machine) admitGrants(grants []bulk.Grant) {
	before := map[string]bulk.Counts{}
	for id, a := range m.model.actions {
		before[id] = a.last
	}
	wasReady, unsure := map[string]bool{}, m.model.anyUnsure()
	for _, a := range m.model.actions {
		wasReady[a.Type] = m.model.readyOf(a.Type) > 0
	}
	most := m.model.admitted(grants, false)
	want := m.model.admitted(grants, true)
	admitted := m.grant(grants...)
	total := int64(0)
	// A shard may have got the quotas that oversized grants requested.
	exact := m.model.fuzzy != m.model.window && (m.model.shards <= 1 || !m.model.limited)
	for _, id := range m.model.order {
		a := m.model.actions[id]
		a.last = m.action(id).Counts
		passed := a.last.Ready - before[id].Ready
		total += passed
		if passed > 0 && !wasReady[a.Type] {
			m.model.asked[a.Type] = m.model.window
		}
		m.check(passed >= 0 && passed <= most[id], "%s: %d admitted by %v, want at most %d", id, passed, grants, most[id])
		exact = exact && !m.model.throttled[a.congests()] && !unsure
	}
	m.check(total == int64(admitted), "Admit says %d, but %d became ready", admitted, total)
	if exact {
		for id, n := range want {
			passed := m.model.actions[id].last.Ready - before[id].Ready
			m.check(passed == n, "%s: %d admitted by %v, want %d", id, passed, grants, n)
		}
	}
	m.checkAdmitted(before)
}

// admitted returns how many jobs of each action the grants admit. If inTurn, grants are
// applied one after another, each in full, and the last counts are updated. Otherwise it
// returns the maximum for each action, whatever is admitted of the others.
func (m *model) admitted(grants []bulk.Grant, inTurn bool) map[string]int64 {
	admitted := map[string]int64{}
	for _, g := range grants {
		for id, a := range m.actions {
			if a.number != g.Number || !a.open() || m.idle(a.Type) && (inTurn || !m.unsure(a.Type)) {
				continue
			}
			n := min(g.Jobs, a.last.Pending)
			for _, l := range m.limitsOf(a) {
				n = min(n, m.left(l))
			}
			admitted[id] += n
			if inTurn {
				if n > 0 && m.readyOf(a.Type) == 0 {
					m.asked[a.Type] = m.window
				}
				a.last.Pending -= n
				a.last.Ready += n
			}
		}
	}
	return admitted
}

// checkAdmitted checks every limit of the admitted jobs.
func (m *machine) checkAdmitted(before map[string]bulk.Counts) {
	for id, a := range m.model.actions {
		if a.last.Ready == before[id].Ready {
			continue
		}
		for _, l := range m.model.limitsOf(a) {
			ready, inFlight := m.model.under(l.key)
			if l.rate > 0 {
				allowed := budget(l.rate, m.model.config.Window, m.model.window)
				m.check(m.model.starts[l.key]+ready <= allowed, "limit of %s: %d started and %d ready of %d", l.key, m.model.starts[l.key], ready, allowed)
			}
			if l.concurrency > 0 {
				m.check(inFlight+ready <= l.concurrency, "limit of %s: %d in flight and %d ready of %d", l.key, inFlight, ready, l.concurrency)
			}
		}
	}
}

func (m *machine) leaseSome(t *rapid.T) {
	types := rapid.SampledFrom([][]string{{"echo", bulk.WebhookType}, {"echo"}, {bulk.WebhookType}, {"none"}}).Draw(t, "types")
	r := bulk.LeaseRequest{
		Types: types, Max: rapid.IntRange(0, 15).Draw(t, "max"), Local: rapid.Bool().Draw(t, "local"),
		LeaseFor: rapid.SampledFrom([]time.Duration{205, 2005, 2005, 30005}).Draw(t, "for") * time.Millisecond,
	}
	ready := int64(0)
	for _, a := range m.model.actions {
		if a.open() && (a.Type == types[0] || len(types) == 2) {
			ready += a.last.Ready
		}
	}
	jobs := m.leaseAs(r)
	m.model.ask(r.Types)
	for _, j := range jobs {
		m.leased(j, r)
	}
	if !m.model.limited {
		m.check(int64(len(jobs)) == min(ready, int64(r.Max)), "leased %d of %d ready jobs, want %d", len(jobs), ready, min(ready, int64(r.Max)))
	}
}

// leased checks one leased job.
func (m *machine) leased(j bulk.Job, r bulk.LeaseRequest) {
	a := m.model.actions[j.Spec.ID]
	m.check(a != nil && j.Index < int64(len(a.jobs)), "leased %s, which there is not", j.ID())
	job := a.jobs[j.Index]
	m.check(a.open(), "leased %s of an action that is %s, paused: %v", j.ID(), a.status, a.paused)
	m.check(a.last.Ready > 0, "leased %s, but no job of its action is ready", j.ID())
	a.last.Ready--
	switch job.state {
	case modelWaits:
	case modelAside:
		m.check(!job.lo.After(time.Now()), "leased %s, which is due from %v on", j.ID(), job.lo)
		a.returned[job.reason]--
		m.check(a.returned[job.reason] >= 0, "leased %s, which was not dispatched", j.ID())
	default:
		m.t.Fatalf("leased %s, which is in state %d", j.ID(), job.state)
	}
	m.check(j.Attempt == job.used+1, "%s: attempt %d, want %d", j.ID(), j.Attempt, job.used+1)
	m.check(m.near(j.Deadline, time.Now().Add(r.LeaseFor)), "%s: deadline %v, want %v", j.ID(), j.Deadline, time.Now().Add(r.LeaseFor))
	m.check(m.model.leases[j.Lease] == nil, "%s: its lease %+v was another's", j.ID(), j.Lease)
	if job.fresh {
		over := a.overtaken(j.Index)
		m.check(over <= a.turnedBack || over <= a.turnedBack+m.action(a.ID).NonReady[bulk.KeyLimited], "%s overtook %d jobs, of which %d may have been turned back", j.ID(), over, a.turnedBack)
	}
	l := &modelLease{id: j.Lease, action: a, job: job, deadline: j.Deadline, local: r.Local, live: true, key: m.model.keyOf(a, j.Index)}
	m.model.leases[j.Lease] = l
	m.model.recent = append(m.model.recent, l)
	job.state, job.fresh, job.lease = modelLeased, false, l
	a.last.InFlight++
	m.checkKey(l)
	for _, l := range m.model.limitsOf(a) {
		m.model.starts[l.key]++
		_, inFlight := m.model.under(l.key)
		allowed := budget(l.rate, m.model.config.Window, m.model.window)
		m.check(m.model.starts[l.key] <= allowed, "limit of %s: %d started in a window of %d", l.key, m.model.starts[l.key], allowed)
		m.check(l.concurrency == 0 || inFlight <= l.concurrency, "limit of %s: %d in flight of %d", l.key, inFlight, l.concurrency)
	}
}

// checkKey checks the limit by key of a job that was leased.
func (m *machine) checkKey(leased *modelLease) {
	if leased.key == "" {
		return
	}
	limit, inFlight := m.model.keys[leased.action.Tenant], 0
	for _, l := range m.model.leases {
		if l.live && l.key == leased.key {
			inFlight++
		}
	}
	m.model.starts[leased.key]++
	allowed := budget(limit.RequestsPerSecond, m.model.config.Window, m.model.window)
	m.check(m.model.starts[leased.key] <= allowed, "%s: %d started in a window of %d", leased.key, m.model.starts[leased.key], allowed)
	m.check(limit.Concurrency == 0 || inFlight <= limit.Concurrency, "%s: %d in flight of %d", leased.key, inFlight, limit.Concurrency)
}

// settleSome settles random leases with random outcomes: present, past and invented ones.
func (m *machine) settleSome(t *rapid.T) {
	var settlements []bulk.Settlement
	for range rapid.IntRange(1, 8).Draw(t, "settlements") {
		s := bulk.Settlement{
			Kind:       rapid.SampledFrom([]bulk.SettlementKind{1, 1, 2, 3, 3, 4, 5, 6}).Draw(t, "kind"),
			RetryAfter: rapid.SampledFrom([]time.Duration{0, 0, 305, 2005}).Draw(t, "retry after") * time.Millisecond,
			LeaseFor:   rapid.SampledFrom([]time.Duration{105, 5005}).Draw(t, "for") * time.Millisecond,
			Error:      "why",
		}
		s.Lease = m.someLease(t)
		if rapid.IntRange(0, 15).Draw(t, "damage") == 15 {
			s.Lease.Fence += 50
		}
		settlements = append(settlements, s)
	}
	m.settleThese(settlements)
}

// someLease draws a lease: mostly a live one, else one of the last.
func (m *machine) someLease(t *rapid.T) bulk.LeaseID {
	leases := m.model.recent
	if rapid.IntRange(0, 3).Draw(t, "any lease") < 3 {
		live := slices.DeleteFunc(slices.Clone(leases), func(l *modelLease) bool { return !l.live })
		if len(live) > 0 {
			leases = live
		}
	}
	if len(leases) == 0 {
		return bulk.LeaseID{}
	}
	return leases[rapid.IntRange(max(0, len(leases)-40), len(leases)-1).Draw(t, "lease")].id
}

// settleWell settles every live lease of an action as succeeded, the most frequent outcome.
func (m *machine) settleWell(*rapid.T) {
	a := m.pick(func(a *modelAction) bool { return a.last.InFlight > 0 })
	if a == nil {
		return
	}
	var settlements []bulk.Settlement
	for _, l := range m.model.recent {
		if l.live && l.action == a {
			settlements = append(settlements, bulk.Settlement{Lease: l.id, Kind: bulk.Succeeded, Values: []byte("1")})
		}
	}
	m.settleThese(settlements)
}

func (m *machine) settleThese(settlements []bulk.Settlement) {
	verdicts, err := m.store.Settle(ctx, settlements)
	m.must(err)
	m.check(len(verdicts) == len(settlements), "%d verdicts on %d settlements", len(verdicts), len(settlements))
	released := map[*modelAction][]*modelJob{}
	for i, s := range settlements {
		l := m.model.leases[s.Lease]
		m.check(l.allowed(verdicts[i]), "settling %+v: %s, which may not be: lease %+v", s, verdicts[i], l)
		if verdicts[i] == bulk.Accepted && m.model.accept(l, s) {
			released[l.action] = append(released[l.action], l.job)
		}
	}
	for a, jobs := range released {
		m.followReleased(a, jobs)
	}
}

// followReleased finds out whether the store has returned released jobs to the line, or has
// made them non-ready until the next Dispatch.
func (m *machine) followReleased(a *modelAction, jobs []*modelJob) {
	counts := m.action(a.ID).Counts
	_, aside := a.count()
	for reason, n := range counts.NonReady {
		reason := bulk.NonReadyReason(reason)
		extra := n - (aside[reason] - a.returned[reason])
		if extra == 0 || slices.Contains(ownLimits, reason) {
			continue
		}
		m.check(extra == int64(len(jobs)), "%s: %d of %d released jobs were set aside for %s", a.ID, extra, len(jobs), reason)
		for _, j := range jobs {
			j.setAside(reason, time.Now(), time.Now())
		}
	}
}

// dispatchAll dispatches in small batches, until nothing more is due.
func (m *machine) dispatchAll(t *rapid.T) {
	batch := rapid.IntRange(1, 20).Draw(t, "batch")
	asideBefore, waited := map[string]int64{}, int64(0)
	for id, a := range m.model.actions {
		_, aside := a.count()
		for reason := range aside {
			asideBefore[id] += aside[reason] - a.returned[reason]
		}
		asideBefore[id] += a.last.NonReady[bulk.RateLimited]
		waited += a.last.NonReady[bulk.KeyLimited]
	}
	back, ended := m.model.expire()
	moved, next := m.dispatch(batch)
	total := int64(moved)
	for moved == batch || !next.IsZero() && !next.After(time.Now()) {
		m.check(moved > 0, "Dispatch(%d) moved nothing, but says that more is due at %v", batch, next)
		moved, next = m.dispatch(batch)
		total += int64(moved)
	}
	for _, id := range m.model.order {
		a := m.model.actions[id]
		counts := m.action(id).Counts
		waited -= counts.NonReady[bulk.KeyLimited]
		back += asideBefore[id] - (counts.NonReadyTotal() - counts.NonReady[bulk.KeyLimited])
		m.follow(a, counts, true)
		a.last = counts
	}
	m.checkNext(next)
	// Expired leases free keys, too, for jobs that Dispatch need not count.
	m.check(waited >= 0 && total >= back && total <= back+ended+waited, "Dispatch moved %d jobs, want %d, and up to %d that ended and %d that waited for their keys", total, back, ended, waited)
}

// follow adopts the number of jobs that the store has returned to the line, and checks that
// it was allowed and, if it was required, complete.
func (m *machine) follow(a *modelAction, counts bulk.Counts, had bool) {
	_, aside := a.count()
	for reason := range aside {
		if slices.Contains(ownLimits, bulk.NonReadyReason(reason)) {
			continue
		}
		may, must := int64(0), int64(0)
		for _, j := range a.jobs {
			if j.state == modelAside && int(j.reason) == reason {
				if !j.lo.After(time.Now()) {
					may++
				}
				if !j.hi.IsZero() && !j.hi.After(time.Now()) {
					must++
				}
			}
		}
		returned := aside[reason] - counts.NonReady[reason]
		m.check(returned <= may, "%s: %d jobs that were turned back for %s returned, but only %d are due", a.ID, returned, bulk.NonReadyReason(reason), may)
		m.check(!had || returned >= must, "%s: %d jobs that were turned back for %s returned, but %d are due", a.ID, returned, bulk.NonReadyReason(reason), must)
		m.check(returned >= a.returned[reason], "%s: jobs in the line were turned back for %s", a.ID, bulk.NonReadyReason(reason))
		a.returned[reason] = returned
	}
}

// checkNext checks when Dispatch asks to be called again.
func (m *machine) checkNext(next time.Time) {
	earliest := time.Time{}
	sooner := func(at time.Time) {
		if !at.IsZero() && (earliest.IsZero() || at.Before(earliest)) {
			earliest = at
		}
	}
	for _, l := range m.model.leases {
		if l.live {
			sooner(l.deadline)
		}
	}
	for _, a := range m.model.actions {
		for reason, n := range a.last.NonReady {
			if n > 0 {
				sooner(a.latest(bulk.NonReadyReason(reason)))
			}
		}
	}
	if !earliest.IsZero() {
		m.check(!next.IsZero() && !next.After(earliest.Add(time.Millisecond)), "Dispatch is next due at %v, want by %v", next, earliest)
	}
}

// latest returns when the last of the jobs that are non-ready for a reason is due; zero if that
// has no bound.
func (a *modelAction) latest(reason bulk.NonReadyReason) (at time.Time) {
	for _, j := range a.jobs {
		if j.state != modelAside || j.reason != reason {
			continue
		}
		if j.hi.IsZero() {
			return time.Time{}
		}
		if j.hi.After(at) {
			at = j.hi
		}
	}
	return at
}
