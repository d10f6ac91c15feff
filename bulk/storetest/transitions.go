package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

var transitionCases = []testCase{
	{"every transition from every status", false, transitionTable},
	{"a life from upload to result", false, moveLife},
	{"an action without jobs", false, moveEmpty},
	{"a seal must add up", false, moveSeal},
	{"an action that fails", false, moveFail},
	{"reducing is a compare-and-set", false, moveReduce},
	{"a forgotten action is gone", false, moveForget},
	{"moves survive a restart", true, moveSurvives},
}

// stage brings a new action of two jobs to a status.
type stage struct {
	name  string
	reach func(k *kit, id string)
}

var stages = []stage{
	{"created", func(k *kit, id string) { k.create(aggregated(id)); k.upload(id, 2) }},
	{"created, paused", func(k *kit, id string) {
		k.create(aggregated(id))
		k.upload(id, 2)
		k.transition(id, bulk.Transition{Kind: bulk.Pause})
	}},
	{"dispatched", func(k *kit, id string) { reachDispatched(k, id) }},
	{"running", func(k *kit, id string) { k.run(aggregated(id), 2) }},
	{"running, paused", func(k *kit, id string) { k.run(aggregated(id), 2); k.transition(id, bulk.Transition{Kind: bulk.Pause}) }},
	{"running, in flight", func(k *kit, id string) { k.run(aggregated(id), 2); k.take(2) }},
	{"running, done", reachDone},
	{"open stream, empty", func(k *kit, id string) { k.stream(id, 0) }},
	{"open stream, in flight", func(k *kit, id string) { k.stream(id, 2); k.take(2) }},
	{"open stream, done", func(k *kit, id string) { k.stream(id, 2); k.succeed(k.take(2)...) }},
	{"sealed stream, done", func(k *kit, id string) {
		k.stream(id, 2)
		k.succeed(k.take(2)...)
		k.transition(id, bulk.Transition{Kind: bulk.Seal, Total: bulk.AtEnd})
	}},
	{"aggregating", reachAggregating},
	{"aggregating, reduced", reachReduced},
	{"completed", func(k *kit, id string) { reachReduced(k, id); k.transition(id, bulk.Transition{Kind: bulk.Complete}) }},
	{"failed", func(k *kit, id string) {
		reachReduced(k, id)
		k.transition(id, bulk.Transition{Kind: bulk.Fail, Error: "no"})
	}},
	{"canceled", func(k *kit, id string) {
		k.run(aggregated(id), 2)
		k.transition(id, bulk.Transition{Kind: bulk.Cancel})
	}},
	{"canceled, in flight", func(k *kit, id string) {
		k.run(aggregated(id), 2)
		k.take(1)
		k.transition(id, bulk.Transition{Kind: bulk.Cancel})
	}},
}

func aggregated(id string) bulk.Spec {
	s := spec(id, "tenant of "+id)
	s.Aggregate = []string{"count"}
	return s
}

func reachDispatched(k *kit, id string) {
	k.create(aggregated(id))
	k.upload(id, 2)
	k.transition(id, bulk.Transition{Kind: bulk.Seal, Total: 2})
}

func reachDone(k *kit, id string) {
	k.run(aggregated(id), 2)
	jobs := k.take(2)
	k.succeed(jobs[0])
	k.settle(bulk.Settlement{Kind: bulk.FailedForGood, Error: "bad"}, jobs[1])
}

func reachAggregating(k *kit, id string) {
	reachDone(k, id)
	k.transition(id, bulk.Transition{Kind: bulk.Aggregate})
}

func reachReduced(k *kit, id string) {
	reachAggregating(k, id)
	k.transition(id, bulk.Transition{Kind: bulk.Reduce, Reduced: k.action(id).Batches, Partial: []byte("partial")})
}

var tableMoves = []bulk.Transition{
	{Kind: bulk.Seal, Total: 2}, {Kind: bulk.Seal, Total: 3}, {Kind: bulk.Seal, Total: bulk.AtEnd}, {Kind: bulk.Start}, {Kind: bulk.Pause}, {Kind: bulk.Resume},
	{Kind: bulk.Cancel}, {Kind: bulk.Aggregate}, {Kind: bulk.Reduce, From: 0, Reduced: 1, Partial: []byte("p")},
	{Kind: bulk.Reduce, From: 9, Reduced: 10, Partial: []byte("q")},
	{Kind: bulk.Complete, Result: map[string]json.RawMessage{"count": json.RawMessage(`2`)}},
	{Kind: bulk.Fail, Error: "aggregation failed"}, {Kind: bulk.Drained}, {Kind: bulk.Replayed, Total: 1}, {Kind: bulk.Replayed, Total: 1, From: 9}, {Kind: bulk.Forget},
	{Kind: bulk.TransitionKind(99)},
}

// transitionTable makes every transition in every stage, and compares with Action.Apply.
func transitionTable(k *kit) {
	k.open(unlimited())
	n := 0
	for _, stage := range stages {
		for _, transition := range tableMoves {
			n++
			id := fmt.Sprintf("a%d", n)
			stage.reach(k, id)
			k.advance(time.Millisecond)
			k.tryTransition(id, transition, fmt.Sprintf("transition %d from %q", transition.Kind, stage.name))
			// Its leases end, so that the next stage does not lease its jobs.
			_, _ = k.store.Transition(ctx, id, bulk.Transition{Kind: bulk.Cancel}) // it may have ended, or be gone
		}
	}
}

func (k *kit) tryTransition(id string, transition bulk.Transition, what string) {
	k.t.Helper()
	before := k.action(id)
	want, wantErr := before.Apply(transition, time.Now())
	got, err := k.store.Transition(ctx, id, transition)
	var refused *bulk.TransitionError
	switch {
	case errors.As(wantErr, &refused):
		answered := k.expectRefusal(err, what)
		k.check(answered.From == before.Status, "%s: refused from %s", what, answered.From)
		k.same(k.action(id), before, what+": refused, but changed")
	case errors.Is(wantErr, bulk.ErrNoChange):
		k.check(errors.Is(err, bulk.ErrNoChange), "%s: %v, want ErrNoChange", what, err)
		k.same(got, before, what+": no change, but Transition returned another action")
		k.same(k.action(id), before, what+": no change, but changed")
	case transition.Kind == bulk.Forget:
		k.must(err)
		_, err := k.store.Action(ctx, id)
		k.check(errors.Is(err, bulk.ErrNotFound), "%s: forgotten, but Action answers %v", what, err)
	default:
		k.must(err)
		if transition.Kind == bulk.Cancel {
			c := &want.Counts
			c.Canceled += c.Pending + c.Ready + c.NonReadyTotal()
			c.Pending, c.Ready, c.NonReady = 0, 0, [len(c.NonReady)]int64{}
		}
		k.same(k.action(id), want, what)
		k.same(got, want, what+": as Transition returned it")
	}
}

// same compares two actions by all fields that transitions change. Ready jobs of a paused
// action may be pending again.
func (k *kit) same(got, want bulk.Action, what string) {
	k.t.Helper()
	for _, a := range []*bulk.Action{&got, &want} {
		a.CreatedAt, a.EnteredAt, a.FinishedAt = a.CreatedAt.UTC(), a.EnteredAt.UTC(), a.FinishedAt.UTC()
		a.Spec.RunAt = time.Time{}
		if len(a.Partial) == 0 {
			a.Partial = nil
		}
		if len(a.Result) == 0 {
			a.Result = nil
		}
		if a.Paused {
			a.Pending, a.Ready = a.Pending+a.Ready, 0
		}
	}
	k.check(reflect.DeepEqual(got, want), "%s:\n got %+v\nwant %+v", what, got, want)
}

func moveLife(k *kit) {
	k.open(unlimited())
	k.create(aggregated("a"))
	k.upload("a", 2)
	k.advance(time.Second)
	entered := time.Now()
	a := k.transition("a", bulk.Transition{Kind: bulk.Seal, Total: 2})
	k.check(a.Status == bulk.Dispatched && a.Total == 2 && a.EnteredAt.Equal(entered), "sealed: %+v", a)
	k.check(len(k.backlog().Lines) == 0, "a sealed action that has not started is in the backlog")
	a = k.transition("a", bulk.Transition{Kind: bulk.Start})
	k.check(a.Status == bulk.Running, "started: %s", a.Status)
	_, err := k.store.Transition(ctx, "a", bulk.Transition{Kind: bulk.Aggregate})
	k.expectRefusal(err, "Aggregate with jobs that are not finished")
	k.succeed(k.take(2)...)
	a = k.transition("a", bulk.Transition{Kind: bulk.Aggregate})
	k.check(a.Status == bulk.Aggregating && a.Succeeded == 2, "aggregating: %+v", a)
	_, err = k.store.Transition(ctx, "a", bulk.Transition{Kind: bulk.Complete})
	k.expectRefusal(err, "Complete with outcomes that are not reduced")
	k.transition("a", bulk.Transition{Kind: bulk.Reduce, Reduced: a.Batches, Partial: []byte("x")})
	k.advance(time.Second)
	a = k.transition("a", bulk.Transition{Kind: bulk.Complete, Result: map[string]json.RawMessage{"count": json.RawMessage(`2`)}})
	k.check(a.Status == bulk.Completed && string(a.Result["count"]) == "2" && a.FinishedAt.Equal(time.Now()), "completed: %+v", a)
}

func moveEmpty(k *kit) {
	k.open(unlimited())
	k.run(spec("a", "tenant"), 0)
	k.check(k.admitAll() == 0 && len(k.lease(1)) == 0, "an action without jobs gave a job")
	k.transition("a", bulk.Transition{Kind: bulk.Aggregate})
	a := k.transition("a", bulk.Transition{Kind: bulk.Complete})
	k.check(a.Status == bulk.Completed && a.Counts == bulk.Counts{}, "completed: %+v", a)
}

func moveSeal(k *kit) {
	k.open(unlimited())
	k.create(spec("a", "tenant"))
	k.upload("a", 3)
	for _, total := range []int64{0, 2, 4} {
		_, err := k.store.Transition(ctx, "a", bulk.Transition{Kind: bulk.Seal, Total: total})
		refused := k.expectRefusal(err, "a seal that does not add up")
		k.check(refused.Total == total && refused.Received == 3, "the error has %d and %d, want total %d and received 3", refused.Total, refused.Received, total)
	}
	k.upload("a", 1)
	k.transition("a", bulk.Transition{Kind: bulk.Seal, Total: 4})
}

func moveFail(k *kit) {
	k.open(unlimited())
	share := 0.4
	for id, want := range map[string]bulk.Status{"few": bulk.Completed, "many": bulk.Failed} {
		s := spec(id, "tenant")
		s.FailAbove = &share
		k.run(s, 5)
		jobs := k.take(5)
		failed := map[string]int{"few": 2, "many": 3}[id]
		k.settle(bulk.Settlement{Kind: bulk.FailedForGood, Error: "bad"}, jobs[:failed]...)
		k.succeed(jobs[failed:]...)
		k.transition(id, bulk.Transition{Kind: bulk.Aggregate})
		a := k.transition(id, bulk.Transition{Kind: bulk.Complete})
		k.check(a.Status == want, "%d of 5 failed: %s, want %s", failed, a.Status, want)
		k.check((a.Error != "") == (want == bulk.Failed), "%s has the error %q", a.Status, a.Error)
	}
}

func moveReduce(k *kit) {
	k.open(unlimited())
	k.run(aggregated("a"), 3)
	for i, j := range k.take(3) {
		k.succeed(j)
		partial := fmt.Sprintf("after %d", i+1)
		a := k.transition("a", bulk.Transition{Kind: bulk.Reduce, From: uint64(i), Reduced: uint64(i + 1), Partial: []byte(partial)})
		k.check(a.Reduced == uint64(i+1) && string(a.Partial) == partial, "reduced %d, partial %q", a.Reduced, a.Partial)
		_, err := k.store.Transition(ctx, "a", bulk.Transition{Kind: bulk.Reduce, From: uint64(i), Reduced: uint64(i + 1), Partial: []byte("twice")})
		k.expectRefusal(err, "reducing the same batch twice")
	}
	k.check(string(k.action("a").Partial) == "after 3", "partial %q", k.action("a").Partial)
}

// moveForget forgets an action with a job in flight, and creates another one with its id.
func moveForget(k *kit) {
	k.open(unlimited())
	k.run(aggregated("a"), 3)
	jobs := k.take(2)
	k.settle(bulk.Settlement{Kind: bulk.FailedForGood, Error: "bad"}, jobs[0])
	k.transition("a", bulk.Transition{Kind: bulk.Cancel})
	k.transition("a", bulk.Transition{Kind: bulk.Forget})
	k.check(k.verdict(jobs[1], bulk.Succeeded) == bulk.Unknown, "settling a job of a forgotten action is not unknown")
	all, err := k.store.Actions(ctx, bulk.ActionFilter{})
	k.must(err)
	k.check(len(all) == 0, "a forgotten action is listed")
	k.run(aggregated("a"), 2)
	clear(k.numbers)
	k.expect("a", where{Pending: 2})
	k.check(k.verdict(jobs[1], bulk.Succeeded) == bulk.Unknown, "a lease of the forgotten action is one of the new action of its id")
	dead, err := k.store.DeadLetters(ctx, "a", 0, 10)
	k.must(err)
	k.check(len(dead) == 0 && len(k.outcomes("a")) == 0, "the new action has dead letters or outcomes of the forgotten: %v", dead)
	k.expectIndexes(k.take(2), 0, 1)
	k.advance(time.Minute)
	moved, _ := k.dispatch(10)
	k.check(moved == 2, "Dispatch moved %d jobs, want the two expired ones of the new action", moved)
}

// moveSurvives restarts the store at every stage.
func moveSurvives(k *kit) {
	for way, restart := range k.restarts() {
		k.open(unlimited())
		for i, stage := range stages {
			id := fmt.Sprintf("%s%d", way, i)
			stage.reach(k, id)
			before := k.action(id)
			restart()
			k.same(k.action(id), before, "after "+way+" when "+stage.name)
			k.cancelIfOpen(id)
			before, gone := k.action(id), false
			if before.Status.Final() && before.InFlight == 0 {
				k.transition(id, bulk.Transition{Kind: bulk.Forget})
				gone = true
			}
			restart()
			_, err := k.store.Action(ctx, id)
			k.check(errors.Is(err, bulk.ErrNotFound) == gone, "after %s: forgotten is %v, but Action answers %v", way, gone, err)
		}
	}
}

// cancelIfOpen cancels an action, if it is not final.
func (k *kit) cancelIfOpen(id string) {
	k.store.Transition(ctx, id, bulk.Transition{Kind: bulk.Cancel})
}
