package room

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// maxTurns is how often a move is tried that finds the room changed each time.
const maxTurns = 5

// turn is one attempt at a move: the room it is made in, and what it may do.
type turn struct {
	known *known
	room  *Room
	ring  *Keyring
	terms Terms
	// now is an estimate of the store's time, never ahead of it.
	now time.Time
}

// move makes a move in a room, again if the room was changed meanwhile.
func (e *Engine) move(ctx context.Context, name, kind string, f func(turn) error) error {
	began := time.Now()
	err := e.moveInTurns(ctx, name, f)
	e.metrics.moved(kind, time.Since(began), err)
	return err
}

func (e *Engine) moveInTurns(ctx context.Context, name string, f func(turn) error) error {
	for range maxTurns {
		t, err := e.turn(ctx, name)
		if err != nil {
			return err
		}
		if err = f(t); err == nil {
			return nil
		}
		if errors.Is(err, ErrNoRoom) {
			e.catalog.drop(t.known)
		}
		if !errors.Is(err, ErrStale) {
			return err
		}
		if err := e.catalog.refresh(ctx); err != nil {
			return err
		}
	}
	return fmt.Errorf("room %s is being changed again and again: %w", name, ErrConflict)
}

// turn is what a move needs to begin.
func (e *Engine) turn(ctx context.Context, name string) (turn, error) {
	k, err := e.catalog.of(ctx, name)
	if err != nil {
		return turn{}, err
	}
	ring, err := e.keys.ring(ctx)
	if err != nil {
		return turn{}, err
	}
	r := k.room.Load()
	now, ok := e.clock.now()
	if !ok { // the room was made here, before any other was read
		if now, err = e.store.Now(ctx); err != nil {
			return turn{}, err
		}
		e.clock.observe(now)
	}
	return turn{k, r, ring, terms(r, now, e.outbox()), now}, nil
}
