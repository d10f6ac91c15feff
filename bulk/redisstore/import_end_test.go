//go:build redis

package redisstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

// end adds rare cases to a history.
func (p *past) end(t testing.TB) {
	limits := []bulk.SettingsChange{{Limits: &bulk.Limits{}}, {Name: "t2", Tenant: &bulk.Tenant{}}, {Name: "api", Target: &bulk.TargetLimits{}}}
	for _, change := range limits {
		p.must(p.store.Set(t.Context(), change))
	}
	// An action canceled with two jobs at a remote worker.
	p.made = max(p.made, 100)
	canceled := p.begin(t, 5)
	p.lease(t, canceled, 2, false)
	p.move(canceled, bulk.Transition{Kind: bulk.Cancel})

	// An action partly reduced, with jobs turned back, and two jobs after their second crash.
	id := p.begin(t, 30)
	p.lease(t, id, 2, true)
	p.crash(p.t)
	p.lease(t, id, 3, true)
	jobs := p.lease(t, id, 20, false)
	p.settleAs(t, jobs[:5], bulk.Succeeded)
	a, err := p.store.Action(t.Context(), id)
	p.must(err)
	reduceOnce(p.t, p.store, a)
	for i, kind := range []bulk.SettlementKind{bulk.Succeeded, bulk.FailedForGood, bulk.FailedForNow, bulk.Throttled, bulk.Released} {
		p.settleAs(t, jobs[5+2*i:7+2*i], kind)
	}
}

// begin runs an action whose results are aggregated.
func (p *past) begin(t testing.TB, jobs int) (id string) {
	p.made++
	id = fmt.Sprint("a", p.made)
	_, _, err := p.store.Create(t.Context(), bulk.Spec{
		ID: id, Tenant: "t1", Type: "end", Aggregate: []string{"sum:n"},
	})
	p.must(err)
	payloads := make([][]byte, jobs)
	for i := range payloads {
		payloads[i] = fmt.Appendf(nil, `{"n":%d}`, i)
	}
	_, err = p.store.Append(t.Context(), id, 0, payloads)
	p.must(err)
	p.move(id, bulk.Transition{Kind: bulk.Seal, Total: int64(jobs)})
	p.move(id, bulk.Transition{Kind: bulk.Start})
	return id
}

// lease leases jobs of an action, and returns other jobs to their lines.
func (p *past) lease(t testing.TB, id string, jobs int, local bool) (of []bulk.Job) {
	p.t.Helper()
	admitAll(p.t, p.store)
	all, err := p.store.Lease(t.Context(), bulk.LeaseRequest{Types: []string{"end"}, Max: 100, LeaseFor: time.Minute, Local: local})
	p.must(err)
	p.leases = append(p.leases, all...)
	var others []bulk.Job
	for _, j := range all {
		if j.Spec.ID == id && len(of) < jobs {
			of = append(of, j)
		} else {
			others = append(others, j)
		}
	}
	if len(of) < jobs {
		p.t.Fatalf("%d jobs of %s, want %d", len(of), id, jobs)
	}
	p.settleAs(t, others, bulk.Released)
	return of
}

func (p *past) settleAs(t testing.TB, jobs []bulk.Job, kind bulk.SettlementKind) {
	settlements := make([]bulk.Settlement, len(jobs))
	for i := range jobs {
		settlements[i] = settlementOf(p.t, &jobs[i], kind)
	}
	_, err := p.store.Settle(t.Context(), settlements)
	p.must(err)
}
