package bulk

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
)

// Replay runs the dead letters of a finished action, or of a stream, again, in a new action with
// the id "{id}.replay-{n}" and Spec.ReplayOf set; a long id is cut and has a digest. Those that the
// filter does not select stay. The dead letters are removed once the new action is sealed. A call that was
// interrupted can be repeated: it continues where it stopped, and with another filter it first completes the replay that
// was interrupted. Of a stream that has not finished, it runs those that precede the first job that has not
// ended: the others can be replayed later. A wrong field of the filter is a *ChangeError.
func (e *Engine) Replay(ctx context.Context, id string, only FailureFilter) (Action, error) {
	if err := only.check(); err != nil {
		return Action{}, err
	}
	only = only.normal()
	for {
		again, err := e.replayNext(ctx, id, only)
		if err != nil || again.replays() == only {
			return again, err
		}
	}
}

// replays returns which dead letters a replay runs again.
func (a *Action) replays() FailureFilter {
	if a.ReplayPart == nil {
		return FailureFilter{}
	}
	return a.ReplayPart.FailureFilter
}

// replayNext makes the next replay of an action: the one that was interrupted, or else that of the
// dead letters that a filter selects.
func (e *Engine) replayNext(ctx context.Context, id string, only FailureFilter) (Action, error) {
	old, err := e.store.Action(ctx, id)
	if err != nil {
		return old, err
	}
	replayed := Transition{Kind: Replayed, From: uint64(old.Replays)}
	if _, err := old.Apply(replayed, old.FinishedAt); err != nil {
		return old, err
	}
	part := ReplayPart{only, 0}
	if part.Below, err = e.ended(ctx, &old); err != nil {
		return old, err
	}
	again, err := e.store.Action(ctx, replayID(id, old.Replays+1))
	if errors.Is(err, ErrNotFound) || err == nil && again.ReplayOf != id {
		again, err = e.createReplay(ctx, &old, part)
	}
	if err != nil {
		return again, err
	}
	if again.ReplayPart != nil {
		part = *again.ReplayPart
	}
	if again.ReplayPart == nil || again.Status == Created {
		var below int64
		if again.Total, below, err = e.resend(ctx, &again, part); err != nil {
			return again, err
		}
		if again.ReplayPart == nil {
			replayed.Total = below
		}
	}
	if again.Status == Created {
		if again, err = e.Seal(ctx, again.ID, again.Total); err != nil {
			return again, err
		}
	}
	if again.ReplayPart != nil && !again.EnteredAt.IsZero() { // else it was canceled before it had all of them
		if err := e.dropLetters(ctx, id, part); err != nil {
			return again, err
		}
	}
	if _, err = e.store.Transition(ctx, id, replayed); errors.Is(err, ErrNoChange) {
		err = nil // by another call
	}
	return again, err
}

// createReplay creates the next replay of an action's dead letters, if a part has any.
func (e *Engine) createReplay(ctx context.Context, old *Action, part ReplayPart) (again Action, err error) {
	some, err := e.countLetters(ctx, old.ID, part, 1)
	if err != nil {
		return *old, err
	}
	if some == 0 {
		return *old, &TransitionError{ID: old.ID, From: old.Status, Why: "it has no dead letters to replay"}
	}
	spec := old.Spec
	spec.ID, spec.ReplayOf, spec.ReplayPart, spec.Stream = replayID(old.ID, old.Replays+1), old.ID, nil, false
	if part.Selects() {
		spec.ReplayPart = &part
	}
	if err := e.completeTarget(ctx, &spec); err != nil {
		return *old, err
	}
	again, _, err = e.create(ctx, spec, old.Trace.links()...)
	if errors.As(err, new(*ExistsError)) { // another call has created it, or somebody an action with its id
		if made, _ := e.store.Action(ctx, spec.ID); made.ReplayOf == old.ID {
			return made, nil
		}
	}
	return again, err
}

// resend appends the dead letters of a part to their replay. If an interrupted call has sealed the replay, it
// has only the first of them. It returns how many the replay has, and the index below which they were.
func (e *Engine) resend(ctx context.Context, again *Action, part ReplayPart) (sent, below int64, err error) {
	for letters, err := range e.selected(ctx, again.ReplayOf, part, replayBatch) {
		if err != nil {
			return sent, below, err
		}
		if again.Status != Created {
			letters = letters[:min(int64(len(letters)), again.Received-sent)]
		}
		if len(letters) == 0 {
			break
		}
		payloads := make([][]byte, len(letters))
		for i, letter := range letters {
			payloads[i], below = letter.Payload, letter.Index+1
		}
		if again.Status == Created {
			if _, err := e.store.Append(ctx, again.ID, sent, payloads); err != nil {
				return sent, below, err
			}
		}
		sent += int64(len(letters))
	}
	return sent, below, nil
}

// dropLetters removes the dead letters of a part, which have a replay.
func (e *Engine) dropLetters(ctx context.Context, id string, part ReplayPart) error {
	for letters, err := range e.selected(ctx, id, part, MaxDropped) {
		if err != nil {
			return err
		}
		drop := Transition{Kind: DropLetters}
		for i := range letters {
			drop.Letters = append(drop.Letters, letters[i].Index)
		}
		if _, err := e.store.Transition(ctx, id, drop); err != nil {
			return err
		}
	}
	return nil
}

// countLetters counts the dead letters of a part, and stops after the first ones that are as many as `enough`.
func (e *Engine) countLetters(ctx context.Context, id string, part ReplayPart, enough int64) (n int64, err error) {
	batch := countBatch
	if !part.Selects() {
		batch = int(min(enough, countBatch))
	}
	for letters, err := range e.selected(ctx, id, part, batch) {
		if n += int64(len(letters)); err != nil || n >= enough {
			return n, err
		}
	}
	return n, nil
}

// selected returns the dead letters of a part, by index, some at a time, of so many that are read at a time. After
// an error there are no more.
func (e *Engine) selected(ctx context.Context, id string, part ReplayPart, batch int) iter.Seq2[[]DeadLetter, error] {
	return func(yield func([]DeadLetter, error) bool) {
		for from := int64(0); ; {
			letters, err := e.store.DeadLetters(ctx, id, from, batch)
			if err != nil {
				yield(nil, err)
				return
			}
			if len(letters) == 0 || letters[0].Index >= part.Below {
				return
			}
			from = letters[len(letters)-1].Index + 1
			letters = slices.DeleteFunc(letters, func(l DeadLetter) bool { return l.Index >= part.Below || !part.Match(&l) })
			if len(letters) > 0 && !yield(letters, nil) {
				return
			}
		}
	}
}

// ended returns an index below which all jobs of an action have ended: its dead letters there stay
// as they are.
func (e *Engine) ended(ctx context.Context, a *Action) (int64, error) {
	if !a.FinishedAt.IsZero() {
		return math.MaxInt64, nil
	}
	first, err := e.store.Job(ctx, a.ID, FirstJob)
	var none *NoJobError
	if errors.As(err, &none) {
		return none.Received, nil
	}
	return first.Index, err
}

// LastReplay returns the id of the newest replay of the action; "" if it was never replayed.
func (a *Action) LastReplay() string {
	if a.Replays == 0 {
		return ""
	}
	return replayID(a.ID, a.Replays)
}

// replayID returns the id of the nth replay of an action. If that does not fit, the action's
// id is cut and a digest of it follows: long ids that begin alike need replays of their own.
func replayID(id string, n int) string {
	const most, digest = 128, 16 // most is that of isID
	suffix := fmt.Sprintf(".replay-%d", n)
	if len(id)+len(suffix) <= most {
		return id + suffix
	}
	sum := sha256.Sum256([]byte(id))
	return fmt.Sprintf("%s.%x%s", id[:most-len(suffix)-2*digest-1], sum[:digest], suffix)
}

// replayBatch is how many dead letters are read at a time to be sent, and countBatch to be counted; MaxPageBytes
// bounds them too.
const replayBatch, countBatch = 64, 1000
