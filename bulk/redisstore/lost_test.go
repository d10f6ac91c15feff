//go:build redis

package redisstore

import (
	"errors"
	"fmt"
	"testing"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/internal/testkit/redistest"
)

// losses makes one call repeatedly in new circumstances, and each time loses another of the
// answers that it needs: the first, the second, and so on until it needs no more. After each
// loss it repeats the call, and check examines the result of both. It fails if the caller
// never saw a loss.
type losses struct {
	t     *testing.T
	proxy *proxy
	store *Store
	clock *clock
	calls int // counts prepared calls
}

// mostAnswers is more than any call needs.
const mostAnswers = 40

// mostRounds is how often all answers are lost, one by one, until a loss is seen.
const mostRounds = 10

func (l *losses) of(prepare func(id string), call func(id string) error, check func(id string, twice bool)) {
	l.t.Helper()
	seen, rounds := 0, 1
	for n := 1; ; n++ {
		if n > mostAnswers {
			l.t.Fatalf("a call needs more than %d answers", mostAnswers)
		}
		l.calls++
		id := fmt.Sprintf("%s-%d", l.t.Name(), l.calls)
		prepare(id)
		l.proxy.lose(n)
		err := call(id)
		lost := l.proxy.lost()
		if err != nil && (!lost || !errors.Is(err, bulk.ErrUnavailable)) {
			l.t.Fatalf("answer %d is lost: %v; the error is %v", n, lost, err)
		}
		if err != nil {
			seen++
			recovered(l.t, func() error { return call(id) })
		}
		check(id, err != nil)
		switch {
		case lost:
		case seen > 0:
			return
		case rounds == mostRounds:
			l.t.Fatal("no loss came to the caller")
		default:
			// Answers of shards that are asked concurrently may have arrived as one.
			n, rounds = 0, rounds+1
		}
	}
}

func newLosses(t *testing.T, shards int) *losses {
	l := &losses{t: t, clock: newClock()}
	l.proxy = newProxy(t, redistest.Start(t, redistest.Options{}).Addr())
	l.store = open(t, Options{URL: l.proxy.url(), Shards: shards})
	l.store.now = l.clock.now
	everything(t, l.store) // the server knows all scripts
	limits := []bulk.SettingsChange{
		{Limits: &bulk.Limits{RequestsPerSecond: 1e6}},
		{Name: "host", Target: &bulk.TargetLimits{RequestsPerSecond: 1e6, Concurrency: 1e6}},
		{Name: "t", Tenant: &bulk.Tenant{RequestsPerSecond: 1e6}},
	}
	for _, change := range limits {
		if err := l.store.Set(t.Context(), change); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// TestLostAnswers checks, for every call and every lost answer of the server, that repeating
// the call is safe.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	for _, shards := range shardCounts(1, 3) {
		t.Run(fmt.Sprint(shards), func(t *testing.T) {
			t.Parallel()
			for name, test := range map[string]func(*losses){
				"create": lostCreate, "append": lostAppend, "status": lostStatus, "results": lostResults,
				"cancel": lostCancel, "forget": lostForget, "admit": lostAdmit, "lease": lostLease,
				"settle": lostSettle, "dispatch": lostDispatch, "set": lostSet, "events": lostEvents, "open": lostOpen,
			} {
				t.Run(name, func(t *testing.T) { test(newLosses(t, shards)) })
			}
		})
	}
}

func webhooks(id string) bulk.Spec {
	return bulk.Spec{
		ID: id, Tenant: "t", Type: bulk.WebhookType, Target: &bulk.Target{Name: "host", URL: "http://host/"}, Aggregate: []string{"count"},
	}
}

func lostCreate(l *losses) {
	call := func(id string) error { _, _, err := l.store.Create(l.t.Context(), webhooks(id)); return err }
	l.of(func(string) {}, call, func(id string, _ bool) {
		if a := action(l.t, l.store, id); a.Status != bulk.Created || !a.Spec.Equal(webhooks(id)) {
			l.t.Errorf("%s is %+v", id, a)
		}
		found, err := l.store.Actions(l.t.Context(), bulk.ActionFilter{})
		times := 0
		for _, a := range found {
			if a.ID == id {
				times++
			}
		}
		if err != nil || times != 1 {
			l.t.Errorf("%s is there %d times, %v", id, times, err)
		}
	})
}

func lostAppend(l *losses) {
	const jobs = 2*appendJobs + 10 // three scripts
	call := func(id string) error {
		received, err := l.store.Append(l.t.Context(), id, 5, payloads(5, jobs))
		if err == nil && received != jobs+5 {
			l.t.Errorf("%d received, want %d", received, jobs+5)
		}
		return err
	}
	l.of(func(id string) { upload(l.t, l.store, webhooks(id), 5) }, call, func(id string, _ bool) {
		for _, move := range []bulk.Transition{{Kind: bulk.Seal, Total: jobs + 5}, {Kind: bulk.Start}} {
			if _, err := l.store.Transition(l.t.Context(), id, move); err != nil {
				l.t.Fatal(err)
			}
		}
		for i, j := range take(l.t, l.store, jobs+5) {
			if want := fmt.Sprintf(`{"n":%d}`, i); string(j.Payload) != want || j.Index != int64(i) {
				l.t.Fatalf("job %d of %s is %d with %s", i, id, j.Index, j.Payload)
			}
		}
	})
}

// move makes a transition and checks the status after it.
func (l *losses) move(id string, move bulk.Transition, want bulk.Status) error {
	a, err := l.store.Transition(l.t.Context(), id, move)
	if errors.Is(err, bulk.ErrNoChange) { // the transition was made before
		err = nil
	}
	if err == nil && a.Status != want {
		l.t.Errorf("%s is %s after move %d, want %s", id, a.Status, move.Kind, want)
	}
	return err
}

func (l *losses) moved(move bulk.Transition, want bulk.Status, prepare func(id string)) {
	l.t.Helper()
	l.of(prepare, func(id string) error { return l.move(id, move, want) }, func(id string, _ bool) {
		if a := action(l.t, l.store, id); a.Status != want {
			l.t.Errorf("%s is %s, want %s", id, a.Status, want)
		}
	})
}

func lostStatus(l *losses) {
	l.t.Run("seal", func(t *testing.T) {
		l := &losses{t: t, proxy: l.proxy, store: l.store, clock: l.clock}
		l.moved(bulk.Transition{Kind: bulk.Seal, Total: 3}, bulk.Dispatched, func(id string) { upload(t, l.store, webhooks(id), 3) })
	})
	sealed := func(id string) {
		upload(l.t, l.store, webhooks(id), 3)
		if err := l.move(id, bulk.Transition{Kind: bulk.Seal, Total: 3}, bulk.Dispatched); err != nil {
			l.t.Fatal(err)
		}
	}
	running := func(id string) { start(l.t, l.store, webhooks(id), 3) }
	done := func(id string) {
		running(id)
		l.settle(bulk.Succeeded, take(l.t, l.store, 3))
	}
	paused := func(id string) {
		running(id)
		if err := l.move(id, bulk.Transition{Kind: bulk.Pause}, bulk.Running); err != nil {
			l.t.Fatal(err)
		}
	}
	for _, test := range []struct {
		name    string
		kind    bulk.TransitionKind
		want    bulk.Status
		prepare func(string)
	}{
		{"start", bulk.Start, bulk.Running, sealed}, {"pause", bulk.Pause, bulk.Running, running},
		{"resume", bulk.Resume, bulk.Running, paused}, {"aggregate", bulk.Aggregate, bulk.Aggregating, done},
	} {
		l.t.Run(test.name, func(t *testing.T) {
			l := &losses{t: t, proxy: l.proxy, store: l.store, clock: l.clock}
			l.moved(bulk.Transition{Kind: test.kind}, test.want, test.prepare)
			l.drain()
		})
	}
}

// drain cancels all waiting jobs, so that the next test has only its own.
func (l *losses) drain() {
	l.t.Helper()
	found, err := l.store.Actions(l.t.Context(), bulk.ActionFilter{Unfinished: true})
	if err != nil {
		l.t.Fatal(err)
	}
	for _, a := range found {
		if a.Status == bulk.Aggregating {
			_, err = l.store.Transition(l.t.Context(), a.ID, bulk.Transition{Kind: bulk.Fail, Error: "drained"})
		} else {
			_, err = l.store.Transition(l.t.Context(), a.ID, bulk.Transition{Kind: bulk.Cancel})
		}
		if err != nil && !errors.Is(err, bulk.ErrNoChange) {
			l.t.Fatal(err)
		}
	}
}

func (l *losses) settle(kind bulk.SettlementKind, jobs []bulk.Job) {
	l.t.Helper()
	verdicts, err := l.store.Settle(l.t.Context(), settlements(kind, jobs))
	if err != nil {
		l.t.Fatal(err)
	}
	for _, v := range verdicts {
		if v != bulk.Accepted {
			l.t.Fatalf("settled: %s, want accepted", v)
		}
	}
}

// aggregating returns an action with three outcomes that are not reduced.
func (l *losses) aggregating(id string) {
	l.t.Helper()
	start(l.t, l.store, webhooks(id), 3)
	l.settle(bulk.Succeeded, take(l.t, l.store, 3))
	if err := l.move(id, bulk.Transition{Kind: bulk.Aggregate}, bulk.Aggregating); err != nil {
		l.t.Fatal(err)
	}
}

// lostResults checks that a repeated reduction is refused, and that an aggregator that reads
// the present state continues from there.
func lostResults(l *losses) {
	l.of(l.aggregating, func(id string) error {
		_, err := l.store.Transition(l.t.Context(), id, bulk.Transition{Kind: bulk.Reduce, Reduced: 3, Partial: []byte("three")})
		if refused := (*bulk.TransitionError)(nil); errors.As(err, &refused) {
			return nil
		}
		return err
	}, func(id string, _ bool) {
		a := action(l.t, l.store, id)
		if a.Reduced != 3 || string(a.Partial) != "three" {
			l.t.Errorf("%s has reduced %d into %q", id, a.Reduced, a.Partial)
		}
	})
	l.drain()
	l.moved(bulk.Transition{Kind: bulk.Complete}, bulk.Completed, func(id string) {
		l.aggregating(id)
		if err := l.move(id, bulk.Transition{Kind: bulk.Reduce, Reduced: 3}, bulk.Aggregating); err != nil {
			l.t.Fatal(err)
		}
	})
	l.moved(bulk.Transition{Kind: bulk.Fail, Error: "why"}, bulk.Failed, l.aggregating)
}

// flying makes an action with a job that has succeeded, one in flight, one that is non-ready
// and one in line.
func (l *losses) flying(id string) (inFlight bulk.Job) {
	l.t.Helper()
	start(l.t, l.store, webhooks(id), 4)
	jobs := take(l.t, l.store, 3)
	l.settle(bulk.Succeeded, jobs[:1])
	l.settle(bulk.Throttled, jobs[1:2])
	return jobs[2]
}

func lostCancel(l *losses) {
	l.of(func(id string) { l.flying(id) }, func(id string) error { return l.move(id, bulk.Transition{Kind: bulk.Cancel}, bulk.Canceled) },
		func(id string, _ bool) {
			if a := action(l.t, l.store, id); a.Counts.Canceled != 2 || a.InFlight != 1 || a.Succeeded != 1 {
				l.t.Errorf("counts of %s are %+v", id, a.Counts)
			}
		})
	l.of(func(id string) {
		job := l.flying("d" + id)
		if err := l.move("d"+id, bulk.Transition{Kind: bulk.Cancel}, bulk.Canceled); err != nil {
			l.t.Fatal(err)
		}
		l.settle(bulk.Released, []bulk.Job{job})
	}, func(id string) error { return l.move("d"+id, bulk.Transition{Kind: bulk.Drained}, bulk.Canceled) }, func(id string, _ bool) {
		if a := action(l.t, l.store, "d"+id); a.FinishedAt.IsZero() || a.Counts.Canceled != 3 {
			l.t.Errorf("%s ended at %v with %+v", id, a.FinishedAt, a.Counts)
		}
	})
}

func lostForget(l *losses) {
	call := func(id string) error {
		_, err := l.store.Transition(l.t.Context(), id, bulk.Transition{Kind: bulk.Forget})
		if errors.Is(err, bulk.ErrNotFound) { // it was deleted before
			return nil
		}
		return err
	}
	l.of(func(id string) {
		start(l.t, l.store, webhooks(id), 2)
		l.settle(bulk.FailedForGood, take(l.t, l.store, 2))
		l.drain2(id)
	}, call, func(id string, _ bool) {
		if _, err := l.store.Action(l.t.Context(), id); !errors.Is(err, bulk.ErrNotFound) {
			l.t.Errorf("%s after it was forgotten: %v", id, err)
		}
		// Nothing is left of the action, and its id is free.
		n, err := l.store.lookup(l.t.Context(), id)
		if !errors.Is(err, bulk.ErrNotFound) {
			l.t.Errorf("the id %s leads to %d, %v", id, n, err)
		}
		if _, created, err := l.store.Create(l.t.Context(), webhooks(id)); err != nil || !created {
			l.t.Errorf("%s cannot be had again: %v, %v", id, created, err)
		}
		l.drain()
	})
}

// drain2 ends an action whose jobs are done.
func (l *losses) drain2(id string) {
	l.t.Helper()
	for _, move := range []bulk.Transition{{Kind: bulk.Aggregate}, {Kind: bulk.Fail, Error: "why"}} {
		if _, err := l.store.Transition(l.t.Context(), id, move); err != nil {
			l.t.Fatal(err)
		}
	}
}
