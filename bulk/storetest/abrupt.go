package storetest

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

var abruptCases = []testCase{
	{"closing in the middle of calls", false, closeAmidst},
	{"a crash in the middle of calls", true, crashAmidst},
	{"a crash while events are published", true, crashEventsAmidst},
}

// calls counts the calls of several goroutines.
type calls struct {
	made   atomic.Int64
	want   int64
	enough chan struct{} // closed when there were as many as are wanted
}

func newCalls(want int64) *calls { return &calls{want: want, enough: make(chan struct{})} }

func (c *calls) add(n int64) {
	if made := c.made.Add(n); made >= c.want && made-n < c.want {
		close(c.enough)
	}
}

// closeAmidst closes a store while all methods are called: each call succeeds, or returns
// that the store is closed.
func closeAmidst(k *kit) {
	for range 5 {
		k.open(unlimited())
		k.keepEvents(1 << 40)
		k.run(aggregated("a"), 500)
		grant := bulk.Grant{Number: k.number("a"), Jobs: 5}
		s := k.store
		calls := []func() error{
			func() error { _, _, err := s.Create(ctx, spec(fmt.Sprint("c", rand.Int()), "tenant")); return err },
			func() error {
				id := fmt.Sprint("d", rand.Int())
				_, _, err := s.Create(ctx, spec(id, "tenant"))
				_, err2 := s.Append(ctx, id, 0, [][]byte{payload(id, 0)})
				return errors.Join(err, err2)
			},
			func() error { _, err := s.Admit(ctx, []bulk.Grant{grant}); return err },
			func() error { return leaseAndSettle(s) },
			func() error { _, _, err := s.Outcomes(ctx, "a", 0); return err },
			func() error { _, err := s.DeadLetters(ctx, "a", 0, 5); return err },
			func() error { _, err := s.Actions(ctx, bulk.ActionFilter{}); return err },
			func() error { _, err := s.Action(ctx, "a"); return err },
			func() error { _, _, err := s.Dispatch(ctx, 5); return err },
			func() error { return publishSome(s) },
			func() error { return s.Set(ctx, bulk.SettingsChange{Name: "x", Tenant: &bulk.Tenant{Weight: 2}}) },
		}
		errs := make([]error, len(calls))
		began := newCalls(300)
		var all sync.WaitGroup
		for i, call := range calls {
			all.Go(func() {
				for errs[i] == nil {
					began.add(1)
					errs[i] = call()
				}
			})
		}
		<-began.enough
		k.must(s.Close())
		all.Wait()
		for i, err := range errs {
			k.check(errors.Is(err, bulk.ErrClosed) || errors.Is(err, bulk.ErrNotFound), "call %d, when the store was closed: %v, want ErrClosed", i, err)
		}
	}
}

func publishSome(s bulk.Store) error {
	_, upTo, err := s.Events(ctx)
	if err != nil {
		return err
	}
	return s.Published(ctx, upTo)
}

func leaseAndSettle(s bulk.Store) error {
	jobs, err := s.Lease(ctx, request(3))
	if err != nil {
		return err
	}
	var settlements []bulk.Settlement
	for i, j := range jobs {
		kind := bulk.Succeeded
		if i == 1 {
			kind = bulk.FailedForGood
		}
		settlements = append(settlements, bulk.Settlement{Lease: j.Lease, Kind: kind})
	}
	_, err = s.Settle(ctx, settlements)
	return err
}

// acknowledged has the acknowledged operations before a crash.
type acknowledged struct {
	sync.Mutex
	received map[string]int64
	settled  map[bulk.LeaseID]string // action
	leased   map[bulk.LeaseID]bool
}

// crashAmidst crashes the store several times while a crowd uploads and works. Acknowledged
// operations must survive; others may.
func crashAmidst(k *kit) {
	const perAction = 120
	for _, restart := range k.restarts() {
		k.open(unlimited())
		told := &acknowledged{received: map[string]int64{}, settled: map[bulk.LeaseID]string{}, leased: map[bulk.LeaseID]bool{}}
		for n := range 4 {
			k.create(aggregated(fmt.Sprint("a", n)))
		}
		for round := range 8 {
			s := k.store
			calls := newCalls(int64(10 + round*15))
			var all sync.WaitGroup
			for n := range 4 {
				all.Go(func() { told.upload(s, fmt.Sprint("a", n), perAction, calls) })
				all.Go(func() { told.work(s, calls) })
			}
			<-calls.enough
			before := told.snapshot()
			restart()
			all.Wait()
			k.checkTold(before)
			told = before // operations acknowledged during the crash may be lost
		}
		k.completeTold(told, perAction)
	}
}

// upload uploads an action from the store's position, and seals and starts it.
func (a *acknowledged) upload(s bulk.Store, id string, jobs int64, calls *calls) {
	action, err := s.Action(ctx, id)
	for at := action.Received; err == nil && action.Status == bulk.Created && at < jobs; {
		calls.add(1)
		at, err = s.Append(ctx, id, at, [][]byte{payload(id, at), payload(id, at+1)})
		if err == nil {
			a.Lock()
			a.received[id] = at
			a.Unlock()
		}
	}
	if err == nil {
		s.Transition(ctx, id, bulk.Transition{Kind: bulk.Seal, Total: jobs})
		s.Transition(ctx, id, bulk.Transition{Kind: bulk.Start})
	}
	calls.add(1000)
}

// work leases and settles until the store closes.
func (a *acknowledged) work(s bulk.Store, calls *calls) {
	lease(s, calls, func(jobs []bulk.Job) bool { return a.settle(s, jobs) })
}

// lease admits and leases jobs, and calls settle with them, until it returns false or the
// store closes.
func lease(s bulk.Store, calls *calls, settle func([]bulk.Job) bool) {
	for {
		calls.add(1)
		b, err := Backlog(ctx, s)
		if err != nil {
			return
		}
		var grants []bulk.Grant
		for _, line := range b.Lines {
			for _, w := range line.Waiting {
				grants = append(grants, bulk.Grant{Number: w.Number, Jobs: 3})
			}
		}
		s.Admit(ctx, grants)
		jobs, err := s.Lease(ctx, request(4))
		if err != nil {
			return
		}
		if len(jobs) == 0 {
			runtime.Gosched()
		}
		if !settle(jobs) {
			return
		}
	}
}

func (a *acknowledged) settle(s bulk.Store, jobs []bulk.Job) bool {
	var settlements []bulk.Settlement
	a.Lock()
	for i, j := range jobs {
		a.leased[j.Lease] = true
		if i < 3 { // the last stays in flight
			settlements = append(settlements, bulk.Settlement{Lease: j.Lease, Kind: bulk.Succeeded})
		}
	}
	a.Unlock()
	verdicts, err := s.Settle(ctx, settlements)
	a.Lock()
	defer a.Unlock()
	for i, v := range verdicts {
		if v == bulk.Accepted {
			a.settled[settlements[i].Lease] = jobs[i].Spec.ID
		}
	}
	return err == nil
}

// snapshot copies the operations acknowledged so far.
func (a *acknowledged) snapshot() *acknowledged {
	a.Lock()
	defer a.Unlock()
	return &acknowledged{received: maps.Clone(a.received), settled: maps.Clone(a.settled), leased: maps.Clone(a.leased)}
}

func (k *kit) checkTold(told *acknowledged) {
	k.t.Helper()
	settled := map[string]int64{}
	for lease, id := range told.settled {
		settled[id]++
		v := k.verdicts(bulk.Settlement{Kind: bulk.Succeeded}, bulk.Job{Lease: lease, Spec: &bulk.Spec{}})[0]
		k.check(v == bulk.Duplicate, "lease %+v was settled before the crash; settling it again: %s", lease, v)
	}
	for id, received := range told.received {
		a := k.action(id)
		k.check(a.Received >= received, "%s: %d jobs after the crash, but %d were acknowledged", id, a.Received, received)
		k.check(a.Succeeded >= settled[id], "%s: %d succeeded after the crash, but %d were acknowledged", id, a.Succeeded, settled[id])
		k.checkOutcomes(id)
	}
	for lease := range told.leased {
		if told.settled[lease] != "" {
			continue
		}
		v := k.verdicts(bulk.Settlement{Kind: bulk.Extended, LeaseFor: time.Minute}, bulk.Job{Lease: lease, Spec: &bulk.Spec{}})[0]
		k.check(v != bulk.Unknown, "lease %+v was given before the crash, and is unknown after it", lease)
	}
}

// completeTold runs the remaining jobs.
func (k *kit) completeTold(told *acknowledged, jobs int64) {
	k.t.Helper()
	calls := newCalls(0) // nobody waits for them
	for n := range 4 {
		id := fmt.Sprint("a", n)
		told.upload(k.store, id, jobs, calls)
		k.check(k.action(id).Status == bulk.Running, "%s is %s", id, k.action(id).Status)
	}
	for range 20 {
		k.advance(2 * time.Minute)
		k.dispatch(1000)
		k.admitAll()
		k.succeed(k.lease(1000)...)
	}
	for n := range 4 {
		id := fmt.Sprint("a", n)
		a := k.action(id)
		k.check(a.Done() == jobs, "%s: %+v, want all %d done", id, a.Counts, jobs)
		k.checkOutcomes(id)
	}
}
