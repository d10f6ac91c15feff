package bulk

import (
	"context"
	"crypto/sha256"
	"fmt"
)

// Replay runs the dead letters of a finished action again, in a new action with the id
// "{id}.replay-{n}" and Spec.ReplayOf set; a long id is cut and has a digest. The dead
// letters are removed once the new action is sealed. A call that was interrupted can be
// repeated: it continues where it stopped.
func (e *Engine) Replay(ctx context.Context, id string) (Action, error) {
	old, err := e.store.Action(ctx, id)
	if err != nil {
		return old, err
	}
	refuse := func(why string) (Action, error) {
		return old, &TransitionError{ID: id, From: old.Status, Why: why}
	}
	if old.FinishedAt.IsZero() {
		return refuse("its dead letters can be replayed when it has finished")
	}
	letters, err := e.store.DeadLetters(ctx, id, 0, replayBatch)
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
	next := int64(0)
	for sent := int64(0); len(letters) > 0; {
		payloads := make([][]byte, len(letters))
		for i, letter := range letters {
			payloads[i], next = letter.Payload, letter.Index+1
		}
		if again.Status == Created {
			if _, err := e.store.Append(ctx, spec.ID, sent, payloads); err != nil {
				return again, err
			}
		}
		sent += int64(len(letters))
		if letters, err = e.store.DeadLetters(ctx, id, next, replayBatch); err != nil {
			return again, err
		}
		again.Total = sent
	}
	if again.Status == Created {
		if again, err = e.Seal(ctx, spec.ID, again.Total); err != nil {
			return again, err
		}
	}
	_, err = e.store.Transition(ctx, id, Transition{Kind: Replayed, Total: next})
	return again, err
}

// replayID returns the id of the nth replay of an action. If that does not fit, the action's
// id is cut and a digest of it follows: long ids that begin alike need replays of their own.
func replayID(id string, n int) string {
	const most, digest = 128, 16 // most is that of idPattern
	suffix := fmt.Sprintf(".replay-%d", n)
	if len(id)+len(suffix) <= most {
		return id + suffix
	}
	sum := sha256.Sum256([]byte(id))
	return fmt.Sprintf("%s.%x%s", id[:most-len(suffix)-2*digest-1], sum[:digest], suffix)
}

// replayBatch is how many dead letters are read at a time; MaxPageBytes bounds them too.
const replayBatch = 64
