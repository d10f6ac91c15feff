package bulk

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// TransitionKind is a kind of transition of the status machine.
type TransitionKind uint8

// The transitions.
const (
	// Seal ends the upload, of Transition.Total jobs, or of those received if it is AtEnd:
	// CREATED → DISPATCHED. A stream stays RUNNING, and is no longer open.
	Seal TransitionKind = iota + 1
	// Start starts an action when it is due: DISPATCHED → RUNNING.
	Start
	// Pause stops admitting the action's jobs; Resume continues.
	Pause
	Resume
	// Cancel starts no further job: from any status that is not final → CANCELED. With
	// Transition.IfEmpty, only from CREATED, if no jobs were uploaded.
	Cancel
	// Aggregate reports whether all jobs are done: RUNNING → AGGREGATING.
	Aggregate
	// Reduce records the aggregator's progress: Transition.Reduced and Transition.Partial,
	// if the action stands at Transition.From batches; and Transition.Error, if outcomes
	// could not be reduced.
	Reduce
	// Complete ends the action with Transition.Result: AGGREGATING → COMPLETED, or
	// FAILED if more jobs failed than it allows.
	Complete
	// Fail ends the action with Transition.Error: AGGREGATING → FAILED.
	Fail
	// Drained records that no job of a canceled action is in flight any more.
	Drained
	// Replayed removes the dead letters below index Transition.Total, which run again, if it was
	// made Transition.From times before: of a finished action, or of a stream.
	Replayed
	// DropLetters removes the dead letters at the indexes Transition.Letters, at most MaxDropped: of a finished
	// action, or of a stream. Replayed follows.
	DropLetters
	// Forget deletes a final action and all its data.
	Forget
)

// Transition is one transition of the status machine.
type Transition struct {
	Kind    TransitionKind
	Total   int64
	From    uint64
	Reduced uint64
	Partial []byte
	Result  map[string]json.RawMessage
	Error   string
	Letters []int64
	IfEmpty bool
}

// MaxDropped bounds Transition.Letters.
const MaxDropped = 1000

// ErrNoChange is the error of a transition that was made before. Most callers ignore it.
var ErrNoChange = errors.New("the transition was made before")

// Apply is the status machine: it returns the action after the transition, a
// *TransitionError if its status does not allow the transition, or ErrNoChange if there
// is nothing to do. It reads the action's counts and changes none.
func (a Action) Apply(m Transition, now time.Time) (Action, error) {
	refuse := func(why string) (Action, error) {
		return a, &TransitionError{ID: a.ID, From: a.Status, Why: why, Total: m.Total, Received: a.Received}
	}
	switch m.Kind {
	case Seal:
		return a.seal(m.Total, now)
	case Start:
		if a.Status != Dispatched {
			return a, ErrNoChange
		}
		a.Status = Running
	case Pause, Resume:
		pause := m.Kind == Pause
		if a.Status.Final() {
			return refuse("a finished action cannot be paused or resumed")
		}
		if a.Paused == pause {
			return a, ErrNoChange
		}
		a.Paused = pause
	case Cancel:
		return a.cancel(m, now)
	case Drained:
		if a.Status != Canceled || a.InFlight != 0 || !a.FinishedAt.IsZero() {
			return a, ErrNoChange
		}
		a.FinishedAt = now
	case Aggregate:
		if a.Status != Running {
			return a, ErrNoChange
		}
		if a.Open || a.Done() != a.Total {
			return refuse("jobs are not finished")
		}
		a.Status = Aggregating
	case Reduce:
		if a.Reduced != m.From || a.Status.Final() {
			return refuse("another aggregator has reduced these outcomes")
		}
		a.Reduced, a.Partial = m.Reduced, m.Partial
		a.Error = cmp.Or(a.Error, m.Error)
	case Complete, Fail:
		return a.finish(m, now)
	case Replayed, DropLetters:
		return a.replay(m)
	case Forget:
		if !a.Status.Final() {
			return refuse("only a finished action can be forgotten: cancel it first")
		}
	default:
		return refuse("unknown transition")
	}
	return a, nil
}

func (a Action) seal(total int64, now time.Time) (Action, error) {
	refusal := &TransitionError{ID: a.ID, From: a.Status, Total: total, Received: a.Received}
	if total == AtEnd {
		total = a.Received
	}
	switch {
	case a.Open && total == a.Received:
		a.Open, a.Total = false, total
		return a, nil
	case a.Status == Created && total == a.Received:
		a.Status, a.Total, a.EnteredAt = Dispatched, total, now
		return a, nil
	case a.Takes():
		refusal.Why = fmt.Sprintf("sealed with a total of %d, but %d jobs were received", total, a.Received)
		return a, refusal
	case total == a.Total && a.Status != Canceled:
		return a, ErrNoChange
	case a.Status == Canceled:
		refusal.Why = "a canceled action cannot be sealed"
		return a, refusal
	default:
		refusal.Why = fmt.Sprintf("it is sealed already, with a total of %d", a.Total)
		return a, refusal
	}
}

func (a Action) replay(m Transition) (Action, error) {
	switch {
	case !a.Replayable():
		return a, &TransitionError{ID: a.ID, From: a.Status, Why: "its dead letters can be replayed when it has finished"}
	case len(m.Letters) > MaxDropped:
		return a, &TransitionError{ID: a.ID, From: a.Status, Why: fmt.Sprintf("at most %d dead letters are removed at a time", MaxDropped)}
	case m.Kind == DropLetters:
		return a, nil
	case m.From != uint64(a.Replays):
		return a, ErrNoChange
	}
	a.Replays++
	return a, nil
}

func (a Action) cancel(m Transition, now time.Time) (Action, error) {
	switch {
	case a.Status == Canceled:
		return a, ErrNoChange
	case a.Status.Final() || a.Status == Aggregating:
		return a, &TransitionError{ID: a.ID, From: a.Status, Received: a.Received, Why: "all its jobs have finished, so it cannot be canceled"}
	case m.IfEmpty && (a.Status != Created || a.Received > 0):
		return a, &TransitionError{ID: a.ID, From: a.Status, Received: a.Received, Why: "it has jobs, or was sealed"}
	case a.Open:
		a.Open, a.Total = false, a.Received
	}
	a.Status = Canceled
	if a.InFlight == 0 {
		a.FinishedAt = now
	}
	return a, nil
}

func (a Action) finish(m Transition, now time.Time) (Action, error) {
	if a.Status != Aggregating {
		return a, ErrNoChange
	}
	if m.Kind == Complete && a.Reduced != a.Batches {
		return a, &TransitionError{ID: a.ID, From: a.Status, Why: "outcomes are not all reduced"}
	}
	a.Status, a.FinishedAt = Completed, now
	a.Result, a.Error, a.Partial = m.Result, m.Error, nil
	if m.Kind == Fail {
		a.Status = Failed
	} else if a.FailAbove != nil && float64(a.Failed)/float64(a.Total) > *a.FailAbove {
		a.Status = Failed
		a.Error = fmt.Sprintf("%d of %d jobs failed: more than the share of %g that fail_above allows",
			a.Failed, a.Total, *a.FailAbove)
	}
	return a, nil
}
