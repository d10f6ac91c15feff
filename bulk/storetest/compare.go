package storetest

import (
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/bulk"
)

// compare compares all visible state of the store with the model.
func (m *machine) compare(t *rapid.T) {
	m.rt = t
	m.model.roll()
	var nonReady [4]int64
	for _, id := range m.model.order {
		a := m.model.actions[id]
		shown := m.action(id)
		m.compareAction(a, shown)
		for reason, n := range shown.NonReady {
			nonReady[reason] += n
		}
		for _, reason := range ownLimits {
			a.turnedBack += max(0, shown.NonReady[reason]-a.last.NonReady[reason])
		}
		a.last, a.entered = shown.Counts, shown.EnteredAt
	}
	m.compareBacklog(nonReady)
}

func (m *machine) compareAction(a *modelAction, shown bulk.Action) {
	c := shown.Counts
	m.check(shown.Status == a.status && shown.Paused == a.paused, "%s is %s, paused: %v; want %s, %v", a.ID, shown.Status, shown.Paused, a.status, a.paused)
	m.check(shown.Open == a.takes, "%s is open: %v, want %v", a.ID, shown.Open, a.takes)
	states, _ := a.count()
	m.check(c.Received == int64(len(a.jobs)), "%s: %d received, want %d", a.ID, c.Received, len(a.jobs))
	for name, pair := range map[string][2]int64{
		"in flight": {c.InFlight, states[modelLeased]},
		"succeeded": {c.Succeeded, states[modelSucceeded]},
		"failed":    {c.Failed, states[modelFailed]},
		"canceled":  {c.Canceled, states[modelCanceled]},
	} {
		m.check(pair[0] == pair[1], "%s: %d %s, want %d: %+v", a.ID, pair[0], name, pair[1], c)
	}
	m.follow(a, c, false)
	waits := states[modelWaits]
	for _, n := range a.returned {
		waits += n
	}
	limited := c.NonReady[bulk.RateLimited] + c.NonReady[bulk.KeyLimited]
	m.check(c.Pending+c.Ready+limited == waits, "%s: %d pending, %d ready and %d turned back by our limits, want %d together", a.ID, c.Pending, c.Ready, limited, waits)
	m.check(limited == 0 || m.model.limited, "%s: %d jobs are turned back by our limits, but there are none", a.ID, limited)
	m.check(c.Ready == 0 || a.status == bulk.Running, "%s is %s and has %d ready jobs", a.ID, a.status, c.Ready)
	m.check(a.status == bulk.Canceled || c.Throttled == a.throttles, "%s: throttled %d, want %d", a.ID, c.Throttled, a.throttles)
	m.check(c.Retried >= a.retries && c.Retried <= a.retriesMax, "%s: retried %d, want %d to %d", a.ID, c.Retried, a.retries, a.retriesMax)
}

// compareBacklog checks that the backlog has exactly the waiting jobs, and the remainder of
// every limit.
func (m *machine) compareBacklog(nonReady [4]int64) {
	var targets []string
	for of := range m.model.limits {
		if name, isTarget := strings.CutPrefix(of, "target "); isTarget {
			targets = append(targets, name)
		}
	}
	m.divide(bulk.Free{Total: 20, Types: map[string]int64{"echo": 10, bulk.WebhookType: 10}})
	b := m.backlog(targets...)
	m.check(b.Now.Equal(time.Now()), "the backlog's time is %v, want %v", b.Now, time.Now())
	m.check(b.NonReady == nonReady, "non-ready %v, want %v", b.NonReady, nonReady)
	m.check(b.Outbox == m.model.events.number && b.OldestEvent.IsZero() == (b.Outbox == 0) && !b.OldestEvent.After(b.Now),
		"%d events wait, the oldest of %v; want %d", b.Outbox, b.OldestEvent, m.model.events.number)
	m.compareLeft("all", b.Left, m.model.limitOf("all"))
	seen := map[string]bool{}
	for _, line := range b.Lines {
		m.compareLeft("the line of "+line.Tenant, line.Left, m.model.limitOf("tenant "+line.Tenant))
		for _, w := range line.Waiting {
			a := m.numbered(w.Number)
			m.check(!seen[a.ID] && a.open(), "%s is in the backlog, and %s, paused: %v, or there twice", a.ID, a.status, a.paused)
			seen[a.ID] = true
			priority := bulk.Priority(a.entered, line.Settings.BasePriority, int64(len(a.jobs)), a.last.Done(), time.Second)
			m.check(w.Jobs == a.last.Pending && w.Priority == priority, "%s waits with %+v, want priority %g, counts %+v", a.ID, w, priority, a.last)
			m.check(line.Tenant == a.Tenant && line.Type == a.Type, "%s waits in the line of %s, %s", a.ID, line.Tenant, line.Type)
			m.check(w.Left == bulk.NoLimit || m.model.throttled[a.congests()], "%s: congestion leaves %d, but nothing was throttled", a.ID, w.Left)
		}
	}
	types := map[string]bulk.TypeState{}
	for _, a := range m.model.actions {
		m.check(seen[a.ID] == (a.open() && a.last.Pending > 0), "%s with %d pending jobs, %s, paused: %v: in the backlog: %v", a.ID, a.last.Pending, a.status, a.paused, seen[a.ID])
		t := types[a.Type]
		t.Ready, t.InFlight = t.Ready+a.last.Ready, t.InFlight+a.last.InFlight
		types[a.Type] = t
	}
	for name, want := range types {
		got := b.Types[name]
		m.check(got.Idle == m.model.idle(name) || m.model.unsure(name), "type %s: idle: %v, want %v", name, got.Idle, !got.Idle)
		m.check(got.Ready == want.Ready && got.InFlight == want.InFlight, "type %s: %d ready and %d in flight, want %d and %d", name, got.Ready, got.InFlight, want.Ready, want.InFlight)
	}
	for _, name := range targets {
		l := m.model.limitOf("target " + name)
		if left, told := b.Targets[name]; told && m.model.throttled[name] {
			m.check(left >= 0 && left <= m.model.left(l), "target %s: %d left in the window, want at most %d", name, left, m.model.left(l))
		} else if told {
			m.compareLeft("target "+name, left, l)
		}
	}
}

func (m *machine) compareLeft(what string, left int64, l limit) {
	want := m.model.left(l)
	m.check(left == want || left >= 0 && left < want && (m.model.fuzzy == m.model.window || m.model.anyUnsure()), "%s: %d left in the window, want %d", what, left, want)
}

// numbered returns the action with a number of the store.
func (m *machine) numbered(number uint64) *modelAction {
	for _, a := range m.model.actions {
		if a.number == number {
			return a
		}
	}
	found, err := m.store.Actions(ctx, bulk.ActionFilter{Number: number})
	m.must(err)
	m.check(len(found) == 1 && m.model.actions[found[0].ID] != nil, "number %d is in the backlog, and that of %d actions", number, len(found))
	a := m.model.actions[found[0].ID]
	m.check(a.number == 0, "%s has the numbers %d and %d", a.ID, a.number, number)
	a.number = number
	return a
}

func (m *machine) readResults(*rapid.T) {
	for _, id := range m.model.order {
		m.checkResults(m.model.actions[id])
		m.checkJobs(m.model.actions[id])
	}
	unfinished, err := m.store.Actions(ctx, bulk.ActionFilter{Unfinished: true})
	m.must(err)
	m.followChanges()
	listed := map[string]bool{}
	for _, a := range unfinished {
		listed[a.ID] = true
		told := m.follower[a.ID]
		m.check(told.Status == a.Status && told.Done == a.Done() && told.InFlight == a.InFlight && told.Batches == a.Batches && told.Reduced == a.Reduced,
			"%s is %s with %+v, but Changes has told %+v", a.ID, a.Status, a.Counts, told)
	}
	m.check(len(listed) == len(m.follower), "%d actions are unfinished, and %d by what Changes has told", len(listed), len(m.follower))
	for _, a := range m.model.actions {
		drives := !a.status.Final() || a.status == bulk.Canceled && a.last.InFlight > 0
		m.check(listed[a.ID] || !drives, "%s is %s with %d in flight, and not listed as unfinished", a.ID, a.status, a.last.InFlight)
	}
}

// followChanges applies what has changed to the follower.
func (m *machine) followChanges() {
	if m.follower == nil {
		m.follower = map[string]bulk.Unfinished{}
	}
	for more := true; more; {
		changes, err := m.store.Changes(ctx, 2)
		m.must(err)
		for _, id := range changes.Ended {
			delete(m.follower, id)
		}
		for _, a := range changes.Actions {
			m.follower[a.Spec.ID] = a
		}
		more = changes.More
	}
}

// checkResults checks an action's outcomes and dead letters.
func (m *machine) checkResults(a *modelAction) {
	if len(a.Aggregate) > 0 && !a.ended {
		m.checkOutcomes(a.ID)
		for _, o := range m.outcomes(a.ID) {
			j := a.jobs[o.Index]
			m.check(o.Succeeded == (j.state == modelSucceeded), "the outcome of %s says succeeded: %v", bulk.JobID(a.ID, o.Index), o.Succeeded)
			m.check(j.crashes > 0 || o.Attempts == j.used, "the outcome of %s says %d attempts, want %d", bulk.JobID(a.ID, o.Index), o.Attempts, j.used)
		}
	}
	m.check(len(a.Aggregate) > 0 || a.last.Batches == 0, "%s aggregates nothing, but has %d batches of outcomes", a.ID, a.last.Batches)
	want := []int64{}
	for index, j := range a.jobs {
		if j.state == modelFailed && !j.replayed {
			want = append(want, int64(index))
		}
	}
	m.expectDead(a.ID, 0, len(a.jobs)+1, want...)
}

func (m *machine) done() bool {
	for _, a := range m.model.actions {
		if a.last.Done() < a.last.Received {
			return false
		}
	}
	return true
}

// finish lifts every limit, and runs the remaining jobs: none may be stuck.
func (m *machine) finish() {
	for _, of := range limited {
		m.limit(of, bulk.Limit{})
	}
	clear(m.model.limits)
	clear(m.model.keys)
	for _, tenant := range []string{"t1", "t2", "t3"} {
		m.compareStored(tenant)
	}
	for _, id := range m.model.order {
		a := m.model.actions[id]
		if a.status == bulk.Created || a.takes {
			m.transition(a, bulk.Transition{Kind: bulk.Seal, Total: int64(len(a.jobs))})
		}
		m.transition(a, bulk.Transition{Kind: bulk.Start})
		if a.paused && !a.status.Final() {
			m.transition(a, bulk.Transition{Kind: bulk.Resume})
		}
	}
	for round := 0; round < 100 && !m.done(); round++ {
		m.advance(time.Minute)
		m.compare(m.rt)
		m.dispatchAll(m.rt)
		m.compare(m.rt)
		m.admitEverything(m.rt)
		r := request(1000)
		for _, j := range m.leaseAs(r) {
			m.leased(j, r)
			m.settleThese([]bulk.Settlement{{Lease: j.Lease, Kind: bulk.Succeeded}})
		}
		m.compare(m.rt)
	}
	m.publishAll()
	for _, a := range m.model.actions {
		m.check(a.last.Done() == a.last.Received, "%s is not done in the end: %+v", a.ID, a.last)
		m.checkResults(a)
	}
}
