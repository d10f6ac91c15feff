package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

// kit is what cases use: a store, and helpers for the calls of its callers. Its methods fail
// the test if the store returns an error.
type kit struct {
	t       testing.TB
	factory Factory
	store   bulk.Store
	numbers map[string]uint64
	most    int64 // the last argument of KeepEvents
}

var ctx = context.Background()

// unlimited is the config of most cases: nothing is limited until a case sets a limit.
func unlimited() bulk.Config {
	return bulk.Config{RequestsPerSecond: -1}.WithDefaults()
}

// open opens a new store. It is closed when the case ends or opens another one.
func (k *kit) open(config bulk.Config) {
	k.t.Helper()
	if k.store == nil {
		k.t.Cleanup(func() { k.store.Close() })
	} else {
		k.must(k.store.Close())
	}
	k.store, k.numbers, k.most = k.factory.Open(k.t, config), map[string]uint64{}, 0
}

func (k *kit) must(err error) {
	k.t.Helper()
	if err != nil {
		k.t.Fatalf("the store answered: %v", err)
	}
}

// check fails and ends the case unless ok.
func (k *kit) check(ok bool, format string, args ...any) {
	k.t.Helper()
	if !ok {
		k.t.Fatalf(format, args...)
	}
}

// spec is the spec of an action of the type "echo".
func spec(id, tenant string) bulk.Spec {
	return bulk.Spec{ID: id, Tenant: tenant, Type: "echo"}
}

// targeted is the spec of an action against a target.
func targeted(id, tenant, target string) bulk.Spec {
	s := spec(id, tenant)
	s.Type, s.Target = bulk.WebhookType, &bulk.Target{Name: target, URL: "http://" + target + "/"}
	return s
}

func payload(id string, index int64) []byte {
	return fmt.Appendf(nil, `{"action":%q,"n":%d}`, id, index)
}

func (k *kit) create(s bulk.Spec) bulk.Action {
	k.t.Helper()
	a, created, err := k.store.Create(ctx, s)
	k.must(err)
	k.check(created, "Create(%s): created is false for a new action", s.ID)
	return a
}

// upload appends n jobs to an action.
func (k *kit) upload(id string, n int) {
	k.t.Helper()
	from := k.action(id).Received
	payloads := make([][]byte, n)
	for i := range payloads {
		payloads[i] = payload(id, from+int64(i))
	}
	received, err := k.store.Append(ctx, id, from, payloads)
	k.must(err)
	k.check(received == from+int64(n), "Append(%s): received %d, want %d", id, received, from+int64(n))
}

func (k *kit) transition(id string, m bulk.Transition) bulk.Action {
	k.t.Helper()
	a, err := k.store.Transition(ctx, id, m)
	if err != nil && !errors.Is(err, bulk.ErrNoChange) {
		k.t.Fatalf("Transition(%s, kind %d): %v", id, m.Kind, err)
	}
	return a
}

// run creates an action, uploads n jobs, seals and starts it. The clock advances by a
// millisecond, so that no two actions have the same time.
func (k *kit) run(s bulk.Spec, n int) {
	k.t.Helper()
	k.create(s)
	if n > 0 {
		k.upload(s.ID, n)
	}
	k.advance(time.Millisecond)
	k.transition(s.ID, bulk.Transition{Kind: bulk.Seal, Total: int64(n)})
	k.transition(s.ID, bulk.Transition{Kind: bulk.Start})
}

// action returns an action, and checks that its counts add up.
func (k *kit) action(id string) bulk.Action {
	k.t.Helper()
	a, err := k.store.Action(ctx, id)
	k.must(err)
	k.addsUp(a)
	return a
}

func (k *kit) addsUp(a bulk.Action) {
	k.t.Helper()
	c := a.Counts
	sum := c.Pending + c.Ready + c.NonReadyTotal() + c.InFlight + c.Succeeded + c.Failed + c.Canceled
	k.check(sum == c.Received, "%s: the counts add up to %d, not to the %d received: %+v", a.ID, sum, c.Received, c)
	for _, n := range append(c.NonReady[:], c.Pending, c.Ready, c.InFlight, c.Succeeded, c.Failed, c.Canceled) {
		k.check(n >= 0, "%s: a negative count: %+v", a.ID, c)
	}
}

// where is the number of an action's jobs in each state. It ignores the reason of non-ready
// jobs.
type where struct{ Pending, Ready, NonReady, InFlight, Succeeded, Failed, Canceled int64 }

func (k *kit) expect(id string, want where) {
	k.t.Helper()
	c := k.action(id).Counts
	got := where{c.Pending, c.Ready, c.NonReadyTotal(), c.InFlight, c.Succeeded, c.Failed, c.Canceled}
	k.check(got == want, "counts of %s: %+v, want %+v", id, got, want)
}

// Backlog returns the whole backlog of a store, and what is left of limited targets for which no job
// waits.
func Backlog(ctx context.Context, s bulk.Store, targets ...string) (whole bulk.Backlog, err error) {
	err = s.Fetch(ctx, func(b *bulk.Backlog) {
		b.List("")
		for _, name := range targets {
			if left := b.Bounds.Target(name); left != bulk.NoLimit {
				b.Targets[name] = left
			}
		}
		whole = *b
	})
	whole.Queue, whole.Bounds = nil, nil
	return whole, err
}

func (k *kit) backlog(targets ...string) bulk.Backlog {
	k.t.Helper()
	b, err := Backlog(ctx, k.store, targets...)
	k.must(err)
	return b
}

// waiting returns an action's entry of a backlog, with its line; nil if there is none.
func (k *kit) waiting(id string, b bulk.Backlog) (*bulk.Line, *bulk.Waiting) {
	k.t.Helper()
	number := k.number(id)
	for i := range b.Lines {
		for j := range b.Lines[i].Waiting {
			if b.Lines[i].Waiting[j].Number == number {
				return &b.Lines[i], &b.Lines[i].Waiting[j]
			}
		}
	}
	return nil, nil
}

// number returns the store's number of an action. It takes it from the backlog, so its first
// call must come while jobs of the action wait.
func (k *kit) number(id string) uint64 {
	k.t.Helper()
	if n, known := k.numbers[id]; known {
		return n
	}
	for _, line := range k.backlog().Lines {
		for _, w := range line.Waiting {
			found, err := k.store.Actions(ctx, bulk.ActionFilter{Number: w.Number})
			k.must(err)
			k.check(len(found) == 1, "Actions(number %d): %d found, want the one that waits", w.Number, len(found))
			k.numbers[found[0].ID] = w.Number
		}
	}
	n, known := k.numbers[id]
	k.check(known, "%s has jobs that wait but is not in the backlog", id)
	return n
}

// admit grants n jobs of an action, and returns how many were admitted.
func (k *kit) admit(id string, n int64) int {
	k.t.Helper()
	return k.grant(bulk.Grant{Number: k.number(id), Jobs: n})
}

func (k *kit) grant(grants ...bulk.Grant) int {
	k.t.Helper()
	n, err := k.store.Admit(ctx, grants)
	k.must(err)
	return n
}

// admitAll admits all waiting jobs.
func (k *kit) admitAll() (admitted int) {
	k.t.Helper()
	var grants []bulk.Grant
	for _, line := range k.backlog().Lines {
		for _, w := range line.Waiting {
			grants = append(grants, bulk.Grant{Number: w.Number, Jobs: w.Jobs})
		}
	}
	return k.grant(grants...)
}

// request is a lease request of a remote worker for all types used here.
func request(n int) bulk.LeaseRequest {
	return bulk.LeaseRequest{Types: []string{"echo", bulk.WebhookType}, Max: n, LeaseFor: 30 * time.Second}
}

// lease leases up to n ready jobs of any type, for 30 s.
func (k *kit) lease(n int) []bulk.Job {
	k.t.Helper()
	return k.leaseAs(request(n))
}

func (k *kit) leaseAs(r bulk.LeaseRequest) []bulk.Job {
	k.t.Helper()
	jobs, err := k.store.Lease(ctx, r)
	k.must(err)
	k.check(len(jobs) <= max(0, r.Max), "Lease(max %d) returned %d jobs", r.Max, len(jobs))
	for i := range jobs {
		j := &jobs[i]
		want := payload(j.Spec.ID, j.Index)
		k.check(string(j.Payload) == string(want), "job %s has the payload %.60q, want %q", j.ID(), j.Payload, want)
		k.check(slices.Contains(r.Types, j.Spec.Type), "job %s is of type %s, which was not asked for", j.ID(), j.Spec.Type)
	}
	return jobs
}

// take admits and leases exactly n jobs.
func (k *kit) take(n int) []bulk.Job {
	k.t.Helper()
	k.admitAll()
	jobs := k.lease(n)
	k.check(len(jobs) == n, "leased %d jobs, want %d", len(jobs), n)
	return jobs
}

func (k *kit) takeOne() bulk.Job {
	k.t.Helper()
	return k.take(1)[0]
}

// settle settles jobs like s, in one call; all must be accepted.
func (k *kit) settle(s bulk.Settlement, jobs ...bulk.Job) {
	k.t.Helper()
	for i, v := range k.verdicts(s, jobs...) {
		k.check(v == bulk.Accepted, "settling %s: %s, want accepted", jobs[i].ID(), v)
	}
}

func (k *kit) verdicts(s bulk.Settlement, jobs ...bulk.Job) []bulk.Verdict {
	k.t.Helper()
	settlements := make([]bulk.Settlement, len(jobs))
	for i, j := range jobs {
		settlements[i] = s
		settlements[i].Lease = j.Lease
	}
	verdicts, err := k.store.Settle(ctx, settlements)
	k.must(err)
	k.check(len(verdicts) == len(jobs), "%d verdicts on %d settlements", len(verdicts), len(jobs))
	return verdicts
}

func (k *kit) verdict(j bulk.Job, kind bulk.SettlementKind) bulk.Verdict {
	k.t.Helper()
	return k.verdicts(bulk.Settlement{Kind: kind}, j)[0]
}

func (k *kit) succeed(jobs ...bulk.Job) {
	k.t.Helper()
	k.settle(bulk.Settlement{Kind: bulk.Succeeded}, jobs...)
}

func (k *kit) dispatch(n int) (moved int, next time.Time) {
	k.t.Helper()
	moved, next, err := k.store.Dispatch(ctx, n)
	k.must(err)
	k.check(moved <= n, "Dispatch(%d) moved %d jobs", n, moved)
	return moved, next
}

func (k *kit) set(change bulk.SettingsChange) {
	k.t.Helper()
	k.must(k.store.Set(ctx, change))
}

// limit sets the limit of "all", "tenant NAME", "target NAME" or "type NAME".
func (k *kit) limit(of string, l bulk.Limit) {
	k.t.Helper()
	kind, name, _ := strings.Cut(of, " ")
	change := bulk.SettingsChange{Name: name}
	switch kind {
	case "all":
		change.Limits = &bulk.Limits{RequestsPerSecond: l.RequestsPerSecond, Concurrency: l.Concurrency, Pacing: l.Pacing}
	case "tenant":
		change.Tenant = &bulk.Tenant{RequestsPerSecond: l.RequestsPerSecond, Concurrency: l.Concurrency, Pacing: l.Pacing}
	case "target":
		change.Target = &bulk.TargetLimits{RequestsPerSecond: l.RequestsPerSecond, Concurrency: l.Concurrency, Pacing: l.Pacing}
	case "type":
		change.Type = &bulk.TypeLimits{RequestsPerSecond: l.RequestsPerSecond, TotalConcurrency: l.Concurrency, Pacing: l.Pacing}
	}
	k.set(change)
}

// limitAll sets the global limit.
func (k *kit) limitAll(rate float64) {
	k.t.Helper()
	k.limit("all", bulk.Limit{RequestsPerSecond: rate})
}

func (k *kit) limitTenant(name string, rate float64) {
	k.t.Helper()
	k.limit("tenant "+name, bulk.Limit{RequestsPerSecond: rate})
}

func (k *kit) limitTarget(name string, rate float64, concurrency int) {
	k.t.Helper()
	k.limit("target "+name, bulk.Limit{RequestsPerSecond: rate, Concurrency: concurrency})
}

func indexes(jobs []bulk.Job) []int64 {
	list := make([]int64, len(jobs))
	for i, j := range jobs {
		list[i] = j.Index
	}
	return list
}

func (k *kit) expectIndexes(jobs []bulk.Job, want ...int64) {
	k.t.Helper()
	k.check(slices.Equal(indexes(jobs), want), "leased jobs %v, want %v", indexes(jobs), want)
}

// expectRefusal checks that an error is a *bulk.TransitionError.
func (k *kit) expectRefusal(err error, what string) *bulk.TransitionError {
	k.t.Helper()
	var refused *bulk.TransitionError
	k.check(errors.As(err, &refused), "%s: %v, want a *TransitionError", what, err)
	return refused
}
