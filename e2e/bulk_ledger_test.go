package e2e

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

// bulkWindow is the window that limits are counted in: the default.
const bulkWindow = time.Second

// bulkLedger records the leases of remote workers, so that the service is checked by what is seen
// outside. A lease's deadline minus its length is the start of the attempt by the store's clock; so
// the attempts of a window can be counted, except those that no worker learned of because an
// instance died first.
type bulkLedger struct {
	t    *testing.T
	plan bulkPlan

	mu     sync.Mutex
	jobs   map[string][]*heldLease
	leases map[string]*heldLease
	// phases are the times when each phase began and ended.
	phases []span
	late   int
}

// heldLease is one attempt of a job.
type heldLease struct {
	job      remoteJob
	from     time.Time
	accepted int
	// counted means that the service reported that this lease settled the job, now or before.
	counted bool
}

type span struct{ from, to time.Time }

func newBulkLedger(t *testing.T, plan bulkPlan) *bulkLedger {
	return &bulkLedger{
		t: t, plan: plan, jobs: map[string][]*heldLease{}, leases: map[string]*heldLease{},
		phases: make([]span, len(plan.phases)),
	}
}

func (l *bulkLedger) begin(phase int) { l.phases[phase].from = time.Now() }

// begun reports whether a phase has begun.
func (l *bulkLedger) begun(phase int) bool { return !l.phases[phase].from.IsZero() }

func (l *bulkLedger) end(phase int) { l.phases[phase].to = time.Now() }

// anyCounted reports whether the service has reported that it counted any of the leased jobs.
func (l *bulkLedger) anyCounted() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, held := range l.leases {
		if held.counted {
			return true
		}
	}
	return false
}

func (l *bulkLedger) leased(jobs []remoteJob, length time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, j := range jobs {
		if l.leases[j.Lease] != nil && !l.plan.forgets {
			l.t.Errorf("the lease %s of %s was given twice", j.Lease, j.ID)
		}
		held := &heldLease{job: j, from: j.Deadline.Add(-length)}
		l.leases[j.Lease] = held
		l.jobs[j.ID] = append(l.jobs[j.ID], held)
	}
}

// settled records the verdict on a lease that was acknowledged at a time. The store and this
// process are on one machine and have one clock.
func (l *bulkLedger) settled(job remoteJob, sent time.Time, verdict string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	held := l.leases[job.Lease]
	switch verdict {
	case "accepted":
		held.accepted++
		held.counted = true
		if sent.After(job.Deadline.Add(time.Millisecond)) {
			l.t.Errorf("%s: the lease that ended at %s was accepted when acknowledged at %s", job.ID, job.Deadline, sent)
		}
	case "duplicate":
		held.counted = true
	case "expired":
		l.late++
	default:
		if !l.plan.forgets {
			l.t.Errorf("%s: the verdict on its lease is %s", job.ID, verdict)
		}
	}
}

// kept checks that jobs had no lease but one that was held, and that it counted.
func (l *bulkLedger) kept(held []remoteJob) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, j := range held {
		if leases := l.jobs[j.ID]; len(leases) != 1 || !leases[0].counted {
			l.t.Errorf("%s had %d leases, want the one that was held, and that it counts", j.ID, len(leases))
		}
	}
}

// sawAll checks that each job of an action was leased with the payload that was sent.
func (l *bulkLedger) sawAll(a *bulkAction) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for n := range l.plan.jobs {
		leases := l.jobs[bulk.JobID(a.id, int64(n))]
		if len(leases) == 0 {
			l.t.Errorf("job %d of %s was never leased", n, a.id)
			return
		}
		for _, held := range leases {
			if string(held.job.Payload) != payloadOf(n) || held.job.Action != a.id {
				l.t.Errorf("job %d of %s came as %+v", n, a.id, held.job)
			}
		}
	}
}

// check verifies all records; webhooks are the times when the target was called.
func (l *bulkLedger) check(webhooks []time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	attempts := 0
	for id, leases := range l.jobs {
		attempts += len(leases)
		if !l.plan.forgets {
			l.checkJob(id, leases)
		}
	}
	l.t.Logf("remote workers had %d leases of %d jobs; %d acknowledgements were late", attempts, len(l.jobs), l.late)
	if l.plan.limit == 0 || l.plan.forgets {
		return
	}
	l.checkWindows("of all", l.plan.limit, l.starts(""))
	if l.plan.tenantLimit > 0 {
		l.checkWindows("of "+tenantName(0), l.plan.tenantLimit, l.starts("remote-0"))
	}
	if l.plan.keyLimit > 0 {
		for key := range int64(2) {
			l.checkWindows(fmt.Sprint("with the key ", key), l.plan.keyLimit, l.startsOf(func(j *remoteJob) bool {
				action, index, err := bulk.ParseJobID(j.ID)
				return err == nil && strings.HasPrefix(action+"-", "remote-1-") && index%2 == key
			}))
		}
	}
	l.checkWebhooks(webhooks)
}

// checkJob checks that no two leases of a job overlap, that it was not leased again after it had
// been counted, and that it was counted at most once.
func (l *bulkLedger) checkJob(id string, leases []*heldLease) {
	slices.SortFunc(leases, func(a, b *heldLease) int { return a.from.Compare(b.from) })
	accepted := 0
	for i, held := range leases {
		accepted += held.accepted
		if i == 0 {
			continue
		}
		before := leases[i-1]
		if held.from.Before(before.job.Deadline) {
			l.t.Errorf("%s was leased at %s while another lease held until %s", id, held.from, before.job.Deadline)
		}
		if before.counted {
			l.t.Errorf("%s was leased at %s after an attempt was counted", id, held.from)
		}
	}
	if accepted > 1 {
		l.t.Errorf("%s was accepted %d times", id, accepted)
	}
}

// pressed reports whether remote workers came near each limit in some window, so that the limits
// were tested.
func (l *bulkLedger) pressed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	most := func(action string) (most int) {
		for _, started := range l.starts(action) {
			most = max(most, started)
		}
		return most
	}
	return most("") > l.plan.limit/4 && (l.plan.tenantLimit == 0 || most("remote-0") > l.plan.tenantLimit/4)
}

// starts counts the attempts of an action in all its rounds, or of all actions, by the window in
// which they started.
func (l *bulkLedger) starts(action string) map[int64]int {
	return l.startsOf(func(j *remoteJob) bool { return action == "" || strings.HasPrefix(j.Action+"-", action+"-") })
}

// startsOf is starts of some jobs.
func (l *bulkLedger) startsOf(some func(*remoteJob) bool) map[int64]int {
	windows := map[int64]int{}
	for _, held := range l.leases {
		if some(&held.job) {
			windows[bulk.WindowIndex(held.from, bulkWindow)]++
		}
	}
	return windows
}

func (l *bulkLedger) checkWindows(what string, limit int, windows map[int64]int) {
	most, full := 0, 0
	for index, started := range windows {
		most = max(most, started)
		if started == limit {
			full++
		}
		if started > limit {
			l.t.Errorf("in the window at %s, %d attempts %s started, and the limit is %d", bulk.WindowStart(index, bulkWindow), started, what, limit)
		}
	}
	l.t.Logf("%d windows with attempts %s, %d of them full; at most %d of %d", len(windows), what, full, most, limit)
}

// checkWebhooks is less exact: a call comes some time after its attempt started. But all calls up
// to a window belong to attempts since the phase began, and in each window there are at most as
// many as the limit.
func (l *bulkLedger) checkWebhooks(calls []time.Time) {
	if len(calls) == 0 {
		return
	}
	slices.SortFunc(calls, time.Time.Compare)
	for n, phase := range l.phases {
		first, count := bulk.WindowIndex(phase.from, bulkWindow), 0
		for _, call := range calls {
			if call.Before(phase.from) || call.After(phase.to) {
				continue
			}
			count++
			if most := int(bulk.WindowIndex(call, bulkWindow)-first+1) * l.plan.limit; count > most {
				l.t.Errorf("%d calls in phase %d at %s, and at most %d attempts may have started", count, n, call, most)
				return
			}
		}
	}
}
