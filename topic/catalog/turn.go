package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sluice-project/sluice/topic"
)

// A quota bounds what exists that an owner has created. Each node counts by itself, so two could create at the same time what
// only one may. Whoever creates something for an owner with a quota first takes a turn: a write of turnKey. Then it reads all
// that was written before, counts, and creates on the condition that nobody has taken a turn since.

const (
	turnKey = "quota-turn"
	// mostTurns bounds the turns that a call takes, and turnPause what is added to the longest pause before the next one, 20 times. The
	// pauses are random, so that nodes that take turns at the same time do not disturb each other for ever.
	mostTurns = 100
	turnPause = 10 * time.Millisecond
)

// InTurn takes a turn and calls f with the condition under which it may write. If another turn has begun in the meantime, f returns
// ErrConflict, and InTurn starts again, at most 100 times. The guards are conditions of the turn itself; check returns an error if
// they cannot hold any more. The callers of one node come one after another, so that only nodes disturb each other.
func InTurn(ctx context.Context, meta topic.Meta, guards func() []topic.Guard, check func() error, f func(turn topic.Guard) error) error {
	for taken := range mostTurns {
		turn, err := takeTurn(ctx, meta, guards())
		if err == nil {
			err = f(turn)
		}
		if !errors.Is(err, topic.ErrConflict) {
			return err
		}
		if err := cmp.Or(check(), pause(ctx, rand.N(time.Duration(min(taken+1, 20))*turnPause)), meta.Sync(ctx)); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: other nodes create topics and groups for owners with quotas all the time; try again", topic.ErrConflict)
}

// pause waits, unless ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// takeTurn begins a turn; ErrConflict if another one has just begun.
func takeTurn(ctx context.Context, meta topic.Meta, guards []topic.Guard) (topic.Guard, error) {
	item, err := Get(ctx, meta, turnKey)
	if err != nil {
		return topic.Guard{}, err
	}
	revision, err := meta.Put(ctx, turnKey, []byte("1"), item.Revision, guards...)
	return topic.Guard{Key: turnKey, Revision: revision}, err
}
