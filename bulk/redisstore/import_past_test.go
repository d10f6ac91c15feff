//go:build redis

package redisstore

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/aggregate"
	"github.com/sluice-project/sluice/bulk/pebblestore"
	"github.com/sluice-project/sluice/bulk/storetest"
)

// past is an embedded store with a random history.
type past struct {
	t      *rapid.T
	config bulk.Config
	fs     *vfs.MemFS
	store  *pebblestore.Store
	made   int
	leases []bulk.Job // all leases ever given
	open   []bulk.Job // leases that were not settled finally
	seen   map[string]int
}

func newPast(t *rapid.T, seen map[string]int) *past {
	p := &past{
		t: t, fs: vfs.NewCrashableMem(), seen: seen,
		config: bulk.Config{RequestsPerSecond: -1, MaxAttempts: 3, MaxCrashes: 2, BackoffBase: time.Second, BackoffCap: 4 * time.Second}.WithDefaults(),
	}
	p.reopen(p.fs)
	t.Cleanup(func() { p.store.Close() })
	return p
}

// reopen opens the store of a file system.
func (p *past) reopen(fs *vfs.MemFS) {
	var err error
	p.fs = fs
	p.store, err = pebblestore.Open("data", pebblestore.Options{Bulk: p.config, FS: fs, Logger: slog.New(slog.DiscardHandler)})
	p.must(err)
}

func (p *past) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// happen makes a random history.
func (p *past) happen(ctx testing.TB) {
	if rapid.Bool().Draw(p.t, "events") {
		p.must(p.store.KeepEvents(ctx.Context(), 1<<40))
	}
	for range 2 {
		p.create(p.t)
		p.run(p.t)
	}
	moves := map[string]func(*rapid.T){
		"create": p.create, "append": p.append, "run": p.run, "pause": p.pause, "cancel": p.cancel, "forget": p.forget,
		"work 1": p.work, "work 2": p.work, "work 3": p.work, "settle 1": p.settle, "settle 2": p.settle, "settle 3": p.settle,
		"settle all": p.settleAll, "dispatch": p.dispatch, "crash": p.crash, "reduce": p.reduce, "complete": p.complete,
		"publish": p.publish, "setting": p.setting, "schedule": p.schedule,
	}
	for range 2 {
		p.t.Repeat(moves)
	}
	if rapid.Bool().Draw(p.t, "the end") {
		p.end(ctx)
	}
}

func (p *past) actions(ok func(a *bulk.Action) bool) (found []bulk.Action) {
	all, err := p.store.Actions(p.t.Context(), bulk.ActionFilter{})
	p.must(err)
	for i := range all {
		if ok(&all[i]) {
			found = append(found, all[i])
		}
	}
	return found
}

// pick draws one of some actions; nil if there is none.
func (p *past) pick(ok func(a *bulk.Action) bool) *bulk.Action {
	found := p.actions(ok)
	if len(found) == 0 {
		return nil
	}
	return &found[rapid.IntRange(0, len(found)-1).Draw(p.t, "action")]
}

func (p *past) create(t *rapid.T) {
	if p.made >= 12 {
		return
	}
	p.made++
	spec := bulk.Spec{
		ID: fmt.Sprint("a", p.made), Tenant: rapid.SampledFrom([]string{"t1", "t2", "t3", "t4"}).Draw(t, "tenant"), Type: "echo",
		MaxAttempts: rapid.IntRange(0, 2).Draw(t, "most"), Class: bulk.Class(rapid.IntRange(0, 2).Draw(t, "class")),
	}
	if rapid.Bool().Draw(t, "target") {
		spec.Type, spec.Target = bulk.WebhookType, &bulk.Target{Name: "api", URL: "http://api/?<&>"}
	}
	if rapid.Bool().Draw(t, "aggregate") {
		spec.Aggregate = []string{"count", "sum:n", "top-errors"}
	}
	spec.Key = rapid.SampledFrom([]string{"", "customer 7"}).Draw(t, "key")
	spec.KeepResults = rapid.Bool().Draw(t, "results")
	if rapid.Bool().Draw(t, "job events") {
		spec.Events = []string{bulk.JobEvents}
	}
	spec.Stream = rapid.IntRange(0, 2).Draw(t, "stream") == 0
	_, _, err := p.store.Create(t.Context(), spec)
	p.must(err)
	p.append(t)
}

func (p *past) append(t *rapid.T) {
	a := p.pick(func(a *bulk.Action) bool { return a.Takes() })
	if a == nil {
		return
	}
	jobs := rapid.IntRange(0, 60).Draw(t, "jobs")
	if rapid.IntRange(0, 5).Draw(t, "many") == 0 {
		jobs = rapid.IntRange(1000, 1500).Draw(t, "more jobs")
		p.seen["actions of several pages"]++
	}
	payloads := make([][]byte, jobs)
	for i := range payloads {
		payloads[i] = fmt.Appendf(nil, `{"n":%d}`, a.Received+int64(i))
	}
	_, err := p.store.Append(t.Context(), a.ID, a.Received, payloads)
	p.must(err)
}

func (p *past) run(t *rapid.T) {
	if a := p.pick(func(a *bulk.Action) bool { return a.Takes() }); a != nil {
		if a.Open && rapid.IntRange(0, 4).Draw(t, "seal") > 0 {
			return
		}
		p.move(a.ID, bulk.Transition{Kind: bulk.Seal, Total: a.Received})
		pass(time.Millisecond)
		p.move(a.ID, bulk.Transition{Kind: bulk.Start})
	}
}

func (p *past) move(id string, move bulk.Transition) bulk.Action {
	a, err := p.store.Transition(p.t.Context(), id, move)
	var refused *bulk.TransitionError
	if err != nil && !errors.Is(err, bulk.ErrNoChange) && !errors.As(err, &refused) {
		p.t.Fatal(err)
	}
	return a
}

func (p *past) pause(*rapid.T) {
	if a := p.pick(func(a *bulk.Action) bool { return !a.Status.Final() }); a != nil {
		kind := bulk.Pause
		if a.Paused {
			kind = bulk.Resume
		}
		p.move(a.ID, bulk.Transition{Kind: kind})
	}
}

func (p *past) cancel(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "really") > 0 {
		return
	}
	if a := p.pick(func(a *bulk.Action) bool { return !a.Status.Final() }); a != nil {
		p.move(a.ID, bulk.Transition{Kind: bulk.Cancel})
	}
	for _, a := range p.actions(func(a *bulk.Action) bool { return a.Status == bulk.Canceled && a.FinishedAt.IsZero() }) {
		p.move(a.ID, bulk.Transition{Kind: bulk.Drained})
	}
}

func (p *past) forget(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "really") > 0 {
		return
	}
	if a := p.pick(func(a *bulk.Action) bool { return a.Status.Final() }); a != nil {
		p.move(a.ID, bulk.Transition{Kind: bulk.Forget})
	}
}

func (p *past) work(t *rapid.T) {
	admitAll(t, p.store)
	request := bulk.LeaseRequest{
		Types: []string{"echo", bulk.WebhookType}, Max: rapid.IntRange(1, 700).Draw(t, "max"),
		LeaseFor: time.Duration(rapid.IntRange(5, 90).Draw(t, "lease")) * time.Second, Local: rapid.Bool().Draw(t, "local"),
	}
	jobs, err := p.store.Lease(t.Context(), request)
	p.must(err)
	p.leases, p.open = append(p.leases, jobs...), append(p.open, jobs...)
}

// admitAll grants all waiting jobs.
func admitAll(t *rapid.T, s bulk.Store) {
	b, err := storetest.Backlog(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	var grants []bulk.Grant
	for _, line := range b.Lines {
		for _, w := range line.Waiting {
			grants = append(grants, bulk.Grant{Number: w.Number, Jobs: w.Jobs})
		}
	}
	if _, err := s.Admit(t.Context(), grants); err != nil {
		t.Fatal(err)
	}
}

var settlementKinds = []bulk.SettlementKind{
	bulk.Succeeded, bulk.Succeeded, bulk.FailedForGood, bulk.FailedForNow, bulk.FailedForNow, bulk.Throttled, bulk.Released, bulk.Extended,
}

func (p *past) settle(t *rapid.T) {
	if len(p.open) == 0 {
		return
	}
	first := rapid.IntRange(0, len(p.open)-1).Draw(t, "first")
	n := min(rapid.IntRange(1, 40).Draw(t, "settled"), len(p.open)-first)
	kind := rapid.SampledFrom(settlementKinds).Draw(t, "kind")
	var settlements []bulk.Settlement
	for _, j := range p.open[first : first+n] {
		settlements = append(settlements, settlementOf(t, &j, kind))
	}
	_, err := p.store.Settle(t.Context(), settlements)
	p.must(err)
	if kind != bulk.Extended {
		p.open = append(p.open[:first:first], p.open[first+n:]...)
	}
}

func (p *past) settleAll(t *rapid.T) {
	var settlements []bulk.Settlement
	for i := range p.open {
		settlements = append(settlements, settlementOf(t, &p.open[i], bulk.Succeeded))
	}
	_, err := p.store.Settle(t.Context(), settlements)
	p.must(err)
	p.open = nil
}

// settlementOf returns a settlement of a worker whose result is the payload.
func settlementOf(t *rapid.T, j *bulk.Job, kind bulk.SettlementKind) bulk.Settlement {
	s := bulk.Settlement{Lease: j.Lease, Kind: kind, Took: 3 * time.Millisecond, LeaseFor: time.Minute}
	switch kind {
	case bulk.Succeeded:
		s.Result = []byte(`{"n":1,"text":"<&>"}`)
		if len(j.Spec.Aggregate) > 0 {
			var err error
			if s.Values, err = aggregatesOf(t, j.Spec).Map(j.Payload); err != nil {
				t.Fatal(err)
			}
		}
	case bulk.FailedForGood, bulk.FailedForNow:
		s.Error = fmt.Sprint("no luck with ", j.Index%3)
	case bulk.Throttled:
		s.RetryAfter = time.Duration(j.Index%5) * time.Second
	}
	return s
}

func aggregatesOf(t *rapid.T, spec *bulk.Spec) *aggregate.Set {
	aggregates, err := aggregate.Parse(spec.Aggregate, nil)
	if err != nil {
		t.Fatal(err)
	}
	return aggregates
}

func (p *past) dispatch(t *rapid.T) {
	pass(time.Duration(rapid.IntRange(1, 30_000).Draw(t, "ms")) * time.Millisecond)
	_, _, err := p.store.Dispatch(t.Context(), 10_000)
	p.must(err)
}

// crash ends the process: its workers have lost their jobs.
func (p *past) crash(t *rapid.T) {
	events, _, err := p.store.Events(t.Context())
	p.must(err)
	p.must(p.store.Close())
	p.reopen(p.fs)
	if len(events) > 0 {
		p.must(p.store.KeepEvents(t.Context(), 1<<40))
	}
}

func (p *past) reduce(t *rapid.T) {
	a := p.pick(func(a *bulk.Action) bool { return a.Reduced < a.Batches && !a.Status.Final() })
	if a != nil {
		reduceOnce(t, p.store, *a)
	}
}

// reduceOnce adds some outcomes to the partial result.
func reduceOnce(t *rapid.T, s bulk.Store, a bulk.Action) bulk.Action {
	outcomes, upTo, err := s.Outcomes(t.Context(), a.ID, a.Reduced)
	if err != nil {
		t.Fatal(err)
	}
	partial, err := aggregatesOf(t, &a.Spec).Reduce(a.Partial, outcomes)
	if err != nil {
		t.Fatal(err)
	}
	a, err = s.Transition(t.Context(), a.ID, bulk.Transition{Kind: bulk.Reduce, From: a.Reduced, Reduced: upTo, Partial: partial})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (p *past) complete(t *rapid.T) { completeAll(t, p.store) }

// completeAll ends the actions whose jobs are done.
func completeAll(t *rapid.T, s bulk.Store) {
	must := func(a bulk.Action, err error) bulk.Action {
		if err != nil && !errors.Is(err, bulk.ErrNoChange) {
			t.Fatal(err)
		}
		return a
	}
	all, err := s.Actions(t.Context(), bulk.ActionFilter{Unfinished: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if a.Status == bulk.Canceled && a.InFlight == 0 {
			must(s.Transition(t.Context(), a.ID, bulk.Transition{Kind: bulk.Drained}))
		}
		if a.Status != bulk.Running || a.Open || a.Done() < a.Total {
			continue
		}
		must(s.Transition(t.Context(), a.ID, bulk.Transition{Kind: bulk.Aggregate}))
		for a = must(s.Action(t.Context(), a.ID)); a.Reduced < a.Batches; {
			a = reduceOnce(t, s, a)
		}
		var result map[string]json.RawMessage
		if len(a.Aggregate) > 0 {
			if result, err = aggregatesOf(t, &a.Spec).Result(a.Partial); err != nil {
				t.Fatal(err)
			}
		}
		must(s.Transition(t.Context(), a.ID, bulk.Transition{Kind: bulk.Complete, Result: result}))
	}
}

func (p *past) publish(t *rapid.T) {
	_, upTo, err := p.store.Events(t.Context())
	p.must(err)
	if rapid.Bool().Draw(t, "published") {
		p.must(p.store.Published(t.Context(), upTo))
	}
}

func (p *past) setting(t *rapid.T) {
	p.must(p.store.Set(t.Context(), rapid.SampledFrom([]bulk.SettingsChange{
		{Limits: &bulk.Limits{RequestsPerSecond: 5000}},
		{Name: "t1", Tenant: &bulk.Tenant{Weight: 2.5, BasePriority: 7}},
		{Name: "t2", Tenant: &bulk.Tenant{RequestsPerSecond: 700}},
		{Name: "api", Target: &bulk.TargetLimits{Concurrency: 900}},
		{Name: "api", Target: &bulk.TargetLimits{Auto: true}},
		{Name: "echo", Type: &bulk.TypeLimits{Concurrency: 3}},
	}).Draw(t, "setting")))
}

func (p *past) schedule(t *rapid.T) {
	all, err := p.store.Schedules(t.Context())
	p.must(err)
	s := bulk.Schedule{
		Name: rapid.SampledFrom([]string{"nightly", "hourly"}).Draw(t, "name"), Cron: "@hourly", TimeZone: "UTC",
		Spec: bulk.Spec{Tenant: "t1", Type: "echo"}, Jobs: [][]byte{[]byte("1"), fmt.Append(nil, p.made)},
		CreatedAt: time.Now().UTC(), LastAction: "a1",
	}
	for i := range all {
		if all[i].Name == s.Name {
			s.Revision = all[i].Revision
		}
	}
	_, err = p.store.PutSchedule(t.Context(), s)
	p.must(err)
}
