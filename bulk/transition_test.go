package bulk

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"time"
)

// The results of a transition that are not a status: the status remains ("same"), there is
// nothing to do, or the transition is refused.
const (
	same    Status = "same"
	nothing Status = "nothing"
	refused Status = "refused"
)

// transitions is the complete status machine, for an action with two finished jobs, whose
// outcomes are all reduced, and with none in flight.
var transitions = map[TransitionKind]map[Status]Status{
	Seal: {Created: Dispatched, Dispatched: nothing, Running: nothing, Aggregating: nothing,
		Completed: nothing, Failed: nothing, Canceled: refused},
	Start: {Created: nothing, Dispatched: Running, Running: nothing, Aggregating: nothing,
		Completed: nothing, Failed: nothing, Canceled: nothing},
	Pause: {Created: same, Dispatched: same, Running: same, Aggregating: same,
		Completed: refused, Failed: refused, Canceled: refused},
	Resume: {Created: nothing, Dispatched: nothing, Running: nothing, Aggregating: nothing,
		Completed: refused, Failed: refused, Canceled: refused},
	Cancel: {Created: Canceled, Dispatched: Canceled, Running: Canceled, Aggregating: refused,
		Completed: refused, Failed: refused, Canceled: nothing},
	Aggregate: {Created: nothing, Dispatched: nothing, Running: Aggregating, Aggregating: nothing,
		Completed: nothing, Failed: nothing, Canceled: nothing},
	Reduce: {Created: same, Dispatched: same, Running: same, Aggregating: same,
		Completed: refused, Failed: refused, Canceled: refused},
	Complete: {Created: nothing, Dispatched: nothing, Running: nothing, Aggregating: Completed,
		Completed: nothing, Failed: nothing, Canceled: nothing},
	Fail: {Created: nothing, Dispatched: nothing, Running: nothing, Aggregating: Failed,
		Completed: nothing, Failed: nothing, Canceled: nothing},
	Drained: {Created: nothing, Dispatched: nothing, Running: nothing, Aggregating: nothing,
		Completed: nothing, Failed: nothing, Canceled: nothing},
	Replayed: {Created: refused, Dispatched: refused, Running: refused, Aggregating: refused,
		Completed: same, Failed: same, Canceled: same},
	DropLetters: {Created: refused, Dispatched: refused, Running: refused, Aggregating: refused,
		Completed: same, Failed: same, Canceled: same},
	Forget: {Created: refused, Dispatched: refused, Running: refused, Aggregating: refused,
		Completed: same, Failed: same, Canceled: same},
	0:          {Created: refused, Running: refused, Completed: refused},
	Forget + 1: {Created: refused, Running: refused, Completed: refused},
}

var transitionTime = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func actionIn(status Status) Action {
	a := Action{Spec: Spec{ID: "a"}, Status: status, Total: 2, Counts: Counts{Received: 2, Succeeded: 2, Batches: 1}, Reduced: 1}
	if status == Created {
		a.Total = 0
	}
	if status.Final() {
		a.FinishedAt = transitionTime.Add(-time.Hour)
	}
	return a
}

func TestApplyMakesEachTransition(t *testing.T) {
	for kind, of := range transitions {
		for from, want := range of {
			before := actionIn(from)
			before.Replays = 1
			after, err := before.Apply(Transition{Kind: kind, Total: 2, From: 1, Reduced: 1}, transitionTime)
			var got Status
			var transitionError *TransitionError
			switch {
			case errors.Is(err, ErrNoChange):
				got = nothing
			case errors.As(err, &transitionError):
				got = refused
				if transitionError.ID != "a" || transitionError.From != from || transitionError.Why == "" {
					t.Errorf("transition %d from %s: the refusal is %+v", kind, from, transitionError)
				}
			case err != nil:
				t.Fatalf("transition %d from %s: %v", kind, from, err)
			case after.Status == from:
				got = same
			default:
				got = after.Status
			}
			if got != want {
				t.Errorf("transition %d from %s: %s, want %s", kind, from, got, want)
			}
			if err != nil && !reflect.DeepEqual(after, before) {
				t.Errorf("transition %d from %s was not made, but changed the action to %+v", kind, from, after)
			}
			if after.Counts != before.Counts {
				t.Errorf("transition %d from %s changed counts", kind, from)
			}
			if entered := from.Final(); err == nil && after.Status.Final() && !entered && !after.FinishedAt.Equal(transitionTime) {
				t.Errorf("transition %d from %s: finished at %s, want %s", kind, from, after.FinishedAt, transitionTime)
			}
		}
	}
}

func TestEveryMoveIsInTheTable(t *testing.T) {
	for kind := Seal; kind <= Forget; kind++ {
		if n := len(transitions[kind]); n != 7 {
			t.Errorf("transition %d: the table has %d statuses, want 7", kind, n)
		}
	}
}

func TestSealNeedsTheTotal(t *testing.T) {
	a := actionIn(Created)
	_, err := a.Apply(Transition{Kind: Seal, Total: 3}, transitionTime)
	var refusal *TransitionError
	if !errors.As(err, &refusal) || refusal.Total != 3 || refusal.Received != 2 {
		t.Errorf("sealed with one too many: %+v", err)
	}
	sealed, err := a.Apply(Transition{Kind: Seal, Total: 2}, transitionTime)
	if err != nil || sealed.Total != 2 || !sealed.EnteredAt.Equal(transitionTime) {
		t.Errorf("sealed: %+v, error %v", sealed, err)
	}
	if _, err := sealed.Apply(Transition{Kind: Seal, Total: 3}, transitionTime); !errors.As(err, &refusal) {
		t.Errorf("sealed again with another total: %v", err)
	}
}

func TestCanceledIsFinishedWhenNothingIsInFlight(t *testing.T) {
	a := actionIn(Running)
	a.Succeeded, a.InFlight = 1, 1
	a, err := a.Apply(Transition{Kind: Cancel}, transitionTime)
	if err != nil || a.Status != Canceled || !a.FinishedAt.IsZero() {
		t.Fatalf("canceled with a job in flight: %+v, error %v", a, err)
	}
	if _, err := a.Apply(Transition{Kind: Drained}, transitionTime); !errors.Is(err, ErrNoChange) {
		t.Errorf("drained with a job in flight: %v", err)
	}
	a.InFlight = 0
	a, err = a.Apply(Transition{Kind: Drained}, transitionTime.Add(time.Second))
	if err != nil || !a.FinishedAt.Equal(transitionTime.Add(time.Second)) {
		t.Errorf("drained: %+v, error %v", a, err)
	}
}

func TestPauseAndResume(t *testing.T) {
	a := actionIn(Running)
	paused, err := a.Apply(Transition{Kind: Pause}, transitionTime)
	if err != nil || !paused.Paused {
		t.Fatalf("paused: %+v, error %v", paused, err)
	}
	if _, err := paused.Apply(Transition{Kind: Pause}, transitionTime); !errors.Is(err, ErrNoChange) {
		t.Errorf("paused twice: %v", err)
	}
	if resumed, err := paused.Apply(Transition{Kind: Resume}, transitionTime); err != nil || resumed.Paused {
		t.Errorf("resumed: %+v, error %v", resumed, err)
	}
}

func TestAggregateWaitsForAllJobs(t *testing.T) {
	a := actionIn(Running)
	a.Succeeded, a.InFlight = 1, 1
	var refusal *TransitionError
	if _, err := a.Apply(Transition{Kind: Aggregate}, transitionTime); !errors.As(err, &refusal) {
		t.Errorf("with a job in flight: %v", err)
	}
	a.InFlight, a.Failed = 0, 1
	if after, err := a.Apply(Transition{Kind: Aggregate}, transitionTime); err != nil || after.Status != Aggregating {
		t.Errorf("one succeeded, one failed: %+v, error %v", after, err)
	}
}

func TestReduceIsMadeOnce(t *testing.T) {
	a := actionIn(Running)
	a.Batches = 3
	first := Transition{Kind: Reduce, From: 1, Reduced: 2, Partial: []byte("p"), Error: "first"}
	a, err := a.Apply(first, transitionTime)
	if err != nil || a.Reduced != 2 || string(a.Partial) != "p" || a.Error != "first" {
		t.Fatalf("reduced: %+v, error %v", a, err)
	}
	var refusal *TransitionError
	if _, err := a.Apply(first, transitionTime); !errors.As(err, &refusal) {
		t.Errorf("the same batch again: %v", err)
	}
	a, err = a.Apply(Transition{Kind: Reduce, From: 2, Reduced: 3, Error: "second"}, transitionTime)
	if err != nil || a.Error != "first" {
		t.Errorf("the error is %q, want the first; error %v", a.Error, err)
	}
}

func TestCompleteNeedsAllOutcomes(t *testing.T) {
	a := actionIn(Aggregating)
	a.Batches, a.Partial = 2, []byte("p")
	result := map[string]json.RawMessage{"count": json.RawMessage("2")}
	var refusal *TransitionError
	if _, err := a.Apply(Transition{Kind: Complete, Result: result}, transitionTime); !errors.As(err, &refusal) {
		t.Errorf("with a batch that is not reduced: %v", err)
	}
	a.Reduced = 2
	done, err := a.Apply(Transition{Kind: Complete, Result: result}, transitionTime)
	if err != nil || done.Status != Completed || string(done.Result["count"]) != "2" || done.Partial != nil || done.Error != "" {
		t.Errorf("completed: %+v, error %v", done, err)
	}
	failed, err := a.Apply(Transition{Kind: Fail, Error: "overflow"}, transitionTime)
	if err != nil || failed.Status != Failed || failed.Error != "overflow" {
		t.Errorf("failed: %+v, error %v", failed, err)
	}
}

func TestFailAbove(t *testing.T) {
	for _, c := range []struct {
		name          string
		share         *float64
		failed, total int64
		want          Status
	}{
		{"any share is allowed", nil, 10, 10, Completed},
		{"all may fail", share64(1), 10, 10, Completed},
		{"none may, none did", share64(0), 0, 10, Completed},
		{"none may, one did", share64(0), 1, 10, Failed},
		{"as many as may", share64(0.29), 29, 100, Completed},
		{"as many as may, of many", share64(0.07), 70_000, 1_000_000, Completed},
		{"one more than may", share64(0.29), 30, 100, Failed},
		{"no jobs", share64(0), 0, 0, Completed},
	} {
		a := actionIn(Aggregating)
		a.FailAbove, a.Total, a.Failed = c.share, c.total, c.failed
		a.Succeeded, a.Received = c.total-c.failed, c.total
		after, err := a.Apply(Transition{Kind: Complete}, transitionTime)
		if err != nil || after.Status != c.want || (after.Error != "") != (c.want == Failed) {
			t.Errorf("%s: %s (%q), error %v; want %s", c.name, after.Status, after.Error, err, c.want)
		}
	}
}

func TestReplaysAreCounted(t *testing.T) {
	a := actionIn(Completed)
	a, err := a.Apply(Transition{Kind: Replayed}, transitionTime)
	if err != nil || a.Replays != 1 {
		t.Errorf("replayed: %+v, error %v", a, err)
	}
	if _, err := a.Apply(Transition{Kind: Replayed}, transitionTime); !errors.Is(err, ErrNoChange) {
		t.Errorf("replayed for the first time again: %v", err)
	}
}
