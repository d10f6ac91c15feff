package storetest

import (
	"errors"
	"fmt"

	"github.com/sluice-project/sluice/bulk"
)

var quotaCases = []testCase{
	{"unfinished actions are bounded", false, quotaOfActions},
	{"stored jobs are bounded", false, quotaOfJobs},
	{"stored bytes are bounded", false, quotaOfBytes},
	{"the config has quotas for tenants without", false, quotaOfConfig},
	{"a lowered quota refuses what is new only", false, quotaLowered},
	{"jobs count until their action ends", false, quotaUntilEnd},
	{"a forgotten action does not count", false, quotaForgotten},
	{"what is stored counts after a restart", true, quotaRestart},
	{"only an empty action is canceled as one", false, cancelEmpty},
	{"concurrent uploads stay within a quota", false, quotaTogether},
}

// refusedBy checks that an error is of a quota of tenant "t".
func (k *kit) refusedBy(err error, quota string, most int64) {
	k.t.Helper()
	var refused *bulk.QuotaError
	k.check(errors.As(err, &refused) && *refused == bulk.QuotaError{Tenant: "t", Quota: quota, Most: most}, "%v, want the *QuotaError of %s, %d", err, quota, most)
}

func (k *kit) quota(t bulk.Tenant) {
	k.t.Helper()
	k.set(bulk.SettingsChange{Name: "t", Tenant: &t})
}

// tryCreate creates an action of tenant "t".
func (k *kit) tryCreate(id string) error {
	_, _, err := k.store.Create(ctx, spec(id, "t"))
	return err
}

// tryAppend appends n jobs of the same size at the end of an action, and returns the size of one.
func (k *kit) tryAppend(id string, n int) (size int64, err error) {
	payloads := make([][]byte, n)
	for i := range payloads {
		payloads[i] = fmt.Appendf(nil, `{"n":%010d}`, i)
		size = int64(len(payloads[i]))
	}
	_, err = k.store.Append(ctx, id, bulk.AtEnd, payloads)
	return size, err
}

// end cancels an action that has no jobs in flight.
func (k *kit) end(id string) {
	k.t.Helper()
	a := k.transition(id, bulk.Transition{Kind: bulk.Cancel})
	k.check(!a.FinishedAt.IsZero(), "%s is canceled without jobs in flight, and has not ended", id)
}

func quotaOfActions(k *kit) {
	k.open(unlimited())
	k.quota(bulk.Tenant{MaxActions: 2})
	k.must(k.tryCreate("a"))
	k.must(k.tryCreate("b"))
	k.refusedBy(k.tryCreate("c"), bulk.MaxActionsQuota, 2)
	k.refusedBy(k.tryCreate(""), bulk.MaxActionsQuota, 2)
	k.must(k.tryCreate("b")) // it exists
	k.create(spec("other", "other"))
	_, err := k.store.Action(ctx, "c")
	k.check(errors.Is(err, bulk.ErrNotFound), "the refused action: %v, want ErrNotFound", err)
	all, err := k.store.Actions(ctx, bulk.ActionFilter{})
	k.must(err)
	k.check(len(all) == 3, "%d actions, want 3", len(all))

	k.end("a")
	k.must(k.tryCreate("c"))
	k.refusedBy(k.tryCreate("d"), bulk.MaxActionsQuota, 2)
	k.quota(bulk.Tenant{})
	k.must(k.tryCreate("d"))
}

func quotaOfJobs(k *kit) {
	k.open(unlimited())
	k.quota(bulk.Tenant{MaxJobs: 10})
	k.create(spec("a", "t"))
	k.create(spec("b", "t"))
	k.upload("a", 6)
	k.upload("b", 4)
	received, err := k.store.Append(ctx, "b", 3, [][]byte{payload("b", 3), payload("b", 4)})
	k.refusedBy(err, bulk.MaxJobsQuota, 10)
	k.check(received == 4, "the refused upload has %d jobs, want 4", received)
	k.expect("b", where{Pending: 4})
	// Jobs that the action has are not new.
	received, err = k.store.Append(ctx, "b", 2, [][]byte{payload("b", 2), payload("b", 3)})
	k.must(err)
	k.check(received == 4, "a repeated upload has %d jobs, want 4", received)

	k.end("a")
	k.upload("b", 6)
	_, err = k.tryAppend("b", 1)
	k.refusedBy(err, bulk.MaxJobsQuota, 10)
}

func quotaOfBytes(k *kit) {
	k.open(unlimited())
	k.create(spec("a", "t"))
	size, err := k.tryAppend("a", 1)
	k.must(err)
	k.quota(bulk.Tenant{MaxBytes: 10 * size})
	k.create(spec("b", "t"))
	_, err = k.tryAppend("b", 9)
	k.must(err)
	_, err = k.tryAppend("b", 1)
	k.refusedBy(err, bulk.MaxBytesQuota, 10*size)
	k.end("a")
	_, err = k.tryAppend("b", 1)
	k.must(err)
}

func quotaOfConfig(k *kit) {
	config := unlimited()
	config.TenantMaxActions, config.TenantMaxJobs, config.TenantMaxBytes = 2, 2, 1<<20
	k.open(config)
	k.must(k.tryCreate("a"))
	_, err := k.tryAppend("a", 3)
	k.refusedBy(err, bulk.MaxJobsQuota, 2)
	_, err = k.tryAppend("a", 2)
	k.must(err)
	k.quota(bulk.Tenant{MaxActions: 1, MaxBytes: 10})
	k.refusedBy(k.tryCreate("b"), bulk.MaxActionsQuota, 1)
	_, err = k.tryAppend("a", 1)
	k.refusedBy(err, bulk.MaxJobsQuota, 2)
	k.quota(bulk.Tenant{MaxActions: 3, MaxJobs: 3})
	_, err = k.tryAppend("a", 1)
	k.must(err)
	k.must(k.tryCreate("b"))
	k.must(k.tryCreate("c"))
	k.refusedBy(k.tryCreate("d"), bulk.MaxActionsQuota, 3)
}

func quotaLowered(k *kit) {
	k.open(unlimited())
	k.run(spec("a", "t"), 3)
	k.create(spec("b", "t"))
	k.quota(bulk.Tenant{MaxActions: 1, MaxJobs: 1, MaxBytes: 1})
	k.refusedBy(k.tryCreate("c"), bulk.MaxActionsQuota, 1)
	_, err := k.tryAppend("b", 1)
	k.refusedBy(err, bulk.MaxJobsQuota, 1)
	k.transition("b", bulk.Transition{Kind: bulk.Seal, Total: 0})
	k.succeed(k.take(3)...)
	k.expect("a", where{Succeeded: 3})
}

// complete ends an action whose jobs are done.
func (k *kit) complete(id string) {
	k.t.Helper()
	k.transition(id, bulk.Transition{Kind: bulk.Aggregate})
	k.transition(id, bulk.Transition{Kind: bulk.Complete})
}

func quotaUntilEnd(k *kit) {
	k.open(unlimited())
	k.quota(bulk.Tenant{MaxActions: 3, MaxJobs: 4})
	k.run(spec("a", "t"), 2)
	k.create(spec("b", "t"))
	k.upload("b", 1)
	jobs := k.take(2)
	k.succeed(jobs[0])
	k.settle(bulk.Settlement{Kind: bulk.FailedForGood, Error: "it failed"}, jobs[1])
	_, err := k.tryAppend("b", 2)
	k.refusedBy(err, bulk.MaxJobsQuota, 4)
	k.complete("a")
	_, err = k.tryAppend("b", 3)
	k.must(err)

	// An action that was canceled counts while jobs of it are in flight.
	k.transition("b", bulk.Transition{Kind: bulk.Seal, Total: 4})
	k.transition("b", bulk.Transition{Kind: bulk.Start})
	flying := k.take(1)
	k.transition("b", bulk.Transition{Kind: bulk.Cancel})
	k.create(spec("c", "t"))
	_, err = k.tryAppend("c", 1)
	k.refusedBy(err, bulk.MaxJobsQuota, 4)
	k.succeed(flying...)
	k.transition("b", bulk.Transition{Kind: bulk.Drained})
	_, err = k.tryAppend("c", 4)
	k.must(err)
}

func quotaForgotten(k *kit) {
	k.open(unlimited())
	k.quota(bulk.Tenant{MaxActions: 1, MaxJobs: 2})
	for range 3 { // with jobs in flight, and without
		k.run(spec("a", "t"), 2)
		k.take(1)
		k.transition("a", bulk.Transition{Kind: bulk.Cancel})
		k.refusedBy(k.tryCreate("b"), bulk.MaxActionsQuota, 1)
		k.transition("a", bulk.Transition{Kind: bulk.Forget})
		k.numbers = map[string]uint64{}
		k.create(spec("b", "t"))
		k.upload("b", 2)
		k.end("b")
		k.transition("b", bulk.Transition{Kind: bulk.Forget})
	}
}

func quotaRestart(k *kit) {
	k.eachRestart(unlimited(), func(restart func()) {
		k.create(spec("a", "t"))
		size, err := k.tryAppend("a", 2)
		k.must(err)
		stream := spec("s", "t")
		stream.Stream = true
		k.create(stream)
		_, err = k.tryAppend("s", 2)
		k.must(err)
		_, err = k.tryAppend("s", 1)
		k.must(err)
		k.run(spec("done", "t"), 1)
		k.succeed(k.store1("done")...)
		k.complete("done")
		k.quota(bulk.Tenant{MaxActions: 2, MaxJobs: 6, MaxBytes: 7 * size})
		restart()
		k.refusedBy(k.tryCreate("c"), bulk.MaxActionsQuota, 2)
		_, err = k.tryAppend("a", 2)
		k.refusedBy(err, bulk.MaxJobsQuota, 6)
		k.quota(bulk.Tenant{MaxBytes: 6 * size})
		_, err = k.tryAppend("a", 2)
		k.refusedBy(err, bulk.MaxBytesQuota, 6*size)
		_, err = k.tryAppend("a", 1)
		k.must(err)
		restart()
		_, err = k.tryAppend("s", 1)
		k.refusedBy(err, bulk.MaxBytesQuota, 6*size)
		k.end("a")
		restart()
		_, err = k.tryAppend("s", 3)
		k.must(err)
		_, err = k.tryAppend("s", 1)
		k.refusedBy(err, bulk.MaxBytesQuota, 6*size)
	})
}

// store1 admits and leases the one job of an action.
func (k *kit) store1(id string) []bulk.Job {
	k.t.Helper()
	k.admit(id, 1)
	for _, j := range k.lease(10) {
		if j.Spec.ID == id {
			return []bulk.Job{j}
		}
	}
	k.t.Fatalf("no job of %s was leased", id)
	return nil
}

func cancelEmpty(k *kit) {
	k.open(unlimited())
	k.create(spec("a", "t"))
	k.upload("a", 1)
	k.create(spec("sealed", "t"))
	k.transition("sealed", bulk.Transition{Kind: bulk.Seal})
	k.run(spec("runs", "t"), 1)
	for _, id := range []string{"a", "sealed", "runs"} {
		_, err := k.store.Transition(ctx, id, bulk.Transition{Kind: bulk.Cancel, IfEmpty: true})
		k.expectRefusal(err, "cancel "+id+" if it is empty")
	}
	k.create(spec("empty", "t"))
	a := k.transition("empty", bulk.Transition{Kind: bulk.Cancel, IfEmpty: true})
	k.check(a.Status == bulk.Canceled && !a.FinishedAt.IsZero(), "the empty action is %+v, want CANCELED and finished", a)
}

// compareStored checks that the store counts what the model has of a tenant, no more and no less.
func (m *machine) compareStored(tenant string) {
	probe := spec("probe of "+tenant, tenant)
	m.model.events.tellTransition(bulk.Action{}, m.kit.create(probe))
	m.model.actions[probe.ID] = &modelAction{Spec: probe, status: bulk.Created}
	m.model.order = append(m.model.order, probe.ID)
	var stored bulk.Stored
	for id, a := range m.model.actions {
		if a.Tenant != tenant || !m.action(id).FinishedAt.IsZero() {
			continue
		}
		stored = stored.Add(bulk.Stored{Actions: 1, Jobs: int64(len(a.jobs))})
		for i := range a.jobs {
			stored.Bytes += int64(len(payload(id, int64(i))))
		}
	}
	counts, err := m.store.StoredOf(ctx, []string{tenant, "nobody"})
	m.must(err)
	m.check(len(counts) == 2 && counts[tenant] == stored && counts["nobody"] == bulk.Stored{}, "the store counts %+v, want %+v of %s", counts, stored, tenant)
	one := payload(probe.ID, 0)
	most := stored.Add(bulk.Stored{Jobs: 1, Bytes: int64(len(one))})
	for _, t := range []struct {
		quota bulk.Tenant
		name  string
	}{
		{bulk.Tenant{MaxJobs: most.Jobs, MaxBytes: most.Bytes - 1}, bulk.MaxBytesQuota},
		{bulk.Tenant{MaxJobs: most.Jobs, MaxBytes: most.Bytes}, ""},
		{bulk.Tenant{MaxJobs: most.Jobs}, bulk.MaxJobsQuota},
	} {
		m.set(bulk.SettingsChange{Name: tenant, Tenant: &t.quota})
		_, err := m.store.Append(ctx, probe.ID, bulk.AtEnd, [][]byte{one})
		refused, _ := errors.AsType[*bulk.QuotaError](err)
		m.check((err == nil) == (t.name == "") && (err == nil || refused != nil && refused.Quota == t.name),
			"with %+v stored, one more job under the quotas %+v: %v", stored, t.quota, err)
	}
	m.model.actions[probe.ID].grow(1)
	m.set(bulk.SettingsChange{Name: tenant, Tenant: &bulk.Tenant{MaxActions: stored.Actions}})
	_, _, err = m.store.Create(ctx, spec("one more of "+tenant, tenant))
	m.check(errors.As(err, new(*bulk.QuotaError)), "with %d unfinished actions, one more: %v", stored.Actions, err)
	m.set(bulk.SettingsChange{Name: tenant, Tenant: &bulk.Tenant{}})
}

// quotaTogether has as many uploads as can be, at the same time, of which some are refused: all that
// fits is taken, and no more.
func quotaTogether(k *kit) {
	k.open(unlimited())
	k.quota(bulk.Tenant{MaxJobs: 50})
	const uploads, jobs = 8, 10
	answers := make(chan error, uploads)
	for i := range uploads {
		id := fmt.Sprint("a", i)
		k.create(spec(id, "t"))
		go func() {
			_, err := k.tryAppend(id, jobs)
			answers <- err
		}()
	}
	taken := 0
	for range uploads {
		if err := <-answers; err == nil {
			taken++
		} else {
			k.refusedBy(err, bulk.MaxJobsQuota, 50)
		}
	}
	k.check(taken == 5, "%d uploads of %d jobs were taken, want 5", taken, jobs)
}
