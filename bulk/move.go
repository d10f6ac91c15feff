package bulk

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// MoveKind names a move of the status machine.
type MoveKind uint8

// The moves.
const (
	// Seal says that Move.Total jobs were uploaded: CREATED → DISPATCHED.
	Seal MoveKind = iota + 1
	// Start begins an action whose time has come: DISPATCHED → RUNNING.
	Start
	// Pause stops admitting the action's jobs; Resume goes on.
	Pause
	Resume
	// Cancel starts no further job: any status that is not final → CANCELED.
	Cancel
	// Aggregate says that all jobs are done: RUNNING → AGGREGATING.
	Aggregate
	// Reduce records the aggregator's progress: Move.Reduced and Move.Partial,
	// if the action stands at Move.From batches; and Move.Error, if outcomes
	// could not be reduced.
	Reduce
	// Complete ends the action with Move.Result: AGGREGATING → COMPLETED, or
	// FAILED if more jobs failed than it allows.
	Complete
	// Fail ends the action with Move.Error: AGGREGATING → FAILED.
	Fail
	// Drained notes that nothing of a canceled action is in flight any more.
	Drained
	// Replayed notes that the dead letters below Move.Total are run again.
	Replayed
	// Forget removes a final action and all that belongs to it.
	Forget
)

// Move is one move of the status machine.
type Move struct {
	Kind    MoveKind
	Total   int64
	From    uint64
	Reduced uint64
	Partial []byte
	Result  map[string]json.RawMessage
	Error   string
}

// ErrNoChange tells that a move had been made before: not an error for a caller
// that only wants it made.
var ErrNoChange = errors.New("the move had been made before")

// Apply is the status machine: it returns the action after the move, a
// *MoveError if its status does not allow the move, or ErrNoChange if there is
// nothing to do. It reads the action's counts and changes none.
func (a Action) Apply(m Move, now time.Time) (Action, error) {
	refuse := func(why string) (Action, error) {
		return a, &MoveError{ID: a.ID, From: a.Status, Why: why, Total: m.Total, Received: a.Received}
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
		if a.Status == Canceled {
			return a, ErrNoChange
		}
		if a.Status.Final() || a.Status == Aggregating {
			return refuse("all its jobs have finished, so it cannot be canceled")
		}
		a.Status = Canceled
		if a.InFlight == 0 {
			a.FinishedAt = now
		}
	case Drained:
		if a.Status != Canceled || a.InFlight != 0 || !a.FinishedAt.IsZero() {
			return a, ErrNoChange
		}
		a.FinishedAt = now
	case Aggregate:
		if a.Status != Running {
			return a, ErrNoChange
		}
		if a.Done() != a.Total {
			return refuse("jobs are not finished")
		}
		a.Status = Aggregating
	case Reduce:
		if a.Reduced != m.From || a.Status.Final() {
			return refuse("another aggregator has reduced these outcomes")
		}
		a.Reduced, a.Partial = m.Reduced, m.Partial
		if a.Error == "" {
			a.Error = m.Error
		}
	case Complete, Fail:
		return a.finish(m, now)
	case Replayed:
		if a.FinishedAt.IsZero() { // jobs in flight may still become dead letters
			return refuse("its dead letters can be replayed when it has finished")
		}
		a.Replays++
	case Forget:
		if !a.Status.Final() {
			return refuse("only a finished action can be forgotten: cancel it first")
		}
	default:
		return refuse("unknown move")
	}
	return a, nil
}

func (a Action) seal(total int64, now time.Time) (Action, error) {
	refusal := &MoveError{ID: a.ID, From: a.Status, Total: total, Received: a.Received}
	switch {
	case a.Status == Created && total == a.Received:
		a.Status, a.Total, a.EnteredAt = Dispatched, total, now
		return a, nil
	case a.Status == Created:
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

func (a Action) finish(m Move, now time.Time) (Action, error) {
	if a.Status != Aggregating {
		return a, ErrNoChange
	}
	if m.Kind == Complete && a.Reduced != a.Batches {
		return a, &MoveError{ID: a.ID, From: a.Status, Why: "outcomes are not all reduced"}
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
