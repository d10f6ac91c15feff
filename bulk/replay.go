package bulk

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Replay runs the dead letters of a finished action, or of a stream, again, in a new action with
// the id "{id}.replay-{n}" and Spec.ReplayOf set; a long id is cut and has a digest. The dead
// letters are removed once the new action is sealed. A call that was interrupted can be
// repeated: it continues where it stopped. Of a stream that has not finished, it runs those that
// precede the first job that has not ended: the others can be replayed later.
func (e *Engine) Replay(ctx context.Context, id string) (Action, error) {
	old, err := e.store.Action(ctx, id)
	if err != nil {
		return old, err
	}
	refuse := func(why string) (Action, error) {
		return old, &TransitionError{ID: id, From: old.Status, Why: why}
	}
	replayed := Transition{Kind: Replayed, From: uint64(old.Replays)}
	if _, err := old.Apply(replayed, old.FinishedAt); err != nil {
		return old, err
	}
	end, err := e.ended(ctx, &old)
	if err != nil {
		return old, err
	}
	letters, err := e.lettersBelow(ctx, id, 0, end)
	if err != nil {
		return old, err
	}
	if len(letters) == 0 {
		return refuse("it has no dead letters to replay")
	}
	spec := old.Spec
	spec.ID, spec.ReplayOf, spec.Stream = replayID(id, old.Replays+1), id, false
	if err := e.completeTarget(ctx, &spec); err != nil {
		return old, err
	}
	again, _, err := e.create(ctx, spec, old.Trace.links()...)
	if err != nil {
		return again, err
	}
	if again.Total, replayed.Total, err = e.resend(ctx, &again, letters, end); err != nil {
		return again, err
	}
	if again.Status == Created {
		if again, err = e.Seal(ctx, spec.ID, again.Total); err != nil {
			return again, err
		}
	}
	if _, err = e.store.Transition(ctx, id, replayed); errors.Is(err, ErrNoChange) {
		err = nil // by another call
	}
	return again, err
}

// resend appends dead letters to their replay: those given, which are the first, and those that follow
// below the end. If an interrupted call has sealed the replay, it has only the first of them. It
// returns how many the replay has, and the index below which they were.
func (e *Engine) resend(ctx context.Context, again *Action, letters []DeadLetter, end int64) (sent, below int64, err error) {
	for {
		if again.Status != Created {
			letters = letters[:min(int64(len(letters)), again.Received-sent)]
		}
		if len(letters) == 0 {
			return sent, below, nil
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
		if letters, err = e.lettersBelow(ctx, again.ReplayOf, below, end); err != nil {
			return sent, below, err
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

// lettersBelow returns some dead letters of an action, by index, that precede the end.
func (e *Engine) lettersBelow(ctx context.Context, id string, from, end int64) ([]DeadLetter, error) {
	letters, err := e.store.DeadLetters(ctx, id, from, replayBatch)
	return slices.DeleteFunc(letters, func(l DeadLetter) bool { return l.Index >= end }), err
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

// replayBatch is how many dead letters are read at a time; MaxPageBytes bounds them too.
const replayBatch = 64
