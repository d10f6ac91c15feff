package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sluice-project/sluice/lifecycle"
	"github.com/sluice-project/sluice/room"
)

// maxAttempts is how often an operation is tried that finds the room changed each time.
const maxAttempts = 5

// operation is one attempt at an operation: its room, and what it may do.
type operation struct {
	cached *cachedRoom
	room   *Room
	ring   *Keyring
	terms  room.Terms
	// now is an estimate of the store's time, never ahead of it.
	now time.Time
	// shown is the ticket that the visitor has shown, with its text; zero: none.
	shown     Ticket
	shownText string
}

// kind is what an operation does, as in its metrics.
type kind int

// The kinds. An opExpire does not use the room.
const (
	opEnter kind = iota
	opAsk
	opAskAll
	opAskPass
	opRenew
	opLeave
	opRevoke
	opExpire
	kinds
)

var kindNames = [kinds]string{"enter", "ask", "ask_all", "ask_pass", "renew", "leave", "revoke", "expire"}

// operate runs an operation on a room, and retries if the room was changed.
func (e *Engine) operate(ctx context.Context, name string, what kind, f func(operation) error) error {
	began := time.Now()
	err := e.retryStale(ctx, name, func() error {
		op, err := e.begin(ctx, name)
		if err != nil {
			return err
		}
		err = f(op)
		if errors.Is(err, room.ErrNoRoom) {
			e.catalog.drop(op.cached)
		} else if what != opExpire {
			e.use(op.cached) // after the operation, so that the expiration sees what it did
		}
		return err
	})
	e.metrics.observe(what, time.Since(began), err)
	return err
}

// retryStale calls try again, with the rooms read again, while the room was changed.
func (e *Engine) retryStale(ctx context.Context, name string, try func() error) error {
	for range maxAttempts {
		if err := try(); !errors.Is(err, room.ErrStale) {
			return err
		}
		if err := e.catalog.refresh(ctx); err != nil {
			return err
		}
	}
	return fmt.Errorf("room %s is being changed continually: %w", name, room.ErrConflict)
}

// begin returns what an operation needs.
func (e *Engine) begin(ctx context.Context, name string) (operation, error) {
	k, err := e.catalog.get(ctx, name)
	if err != nil {
		return operation{}, err
	}
	ring, err := e.keys.ring(ctx)
	if err != nil {
		return operation{}, err
	}
	now, ok := e.clock.now()
	if !ok { // the room was created here, before any other was read
		if now, err = e.store.Now(ctx); err != nil {
			return operation{}, err
		}
		e.clock.observe(now)
	}
	r := k.at(now)
	return operation{cached: k, room: r, ring: ring, terms: *k.terms(r, now, e.outbox()), now: now}, nil
}

// retriable reports whether a loop should go on after an error of the store.
func retriable(err error) bool {
	return err != nil && !errors.Is(err, room.ErrBroken) && !errors.Is(err, room.ErrClosed)
}

// regularly calls f with pauses of about every, and with growing ones while it fails. It
// returns when ctx ends or an error is not retriable.
func (e *Engine) regularly(ctx context.Context, what string, every time.Duration, f func() error) error {
	failures := 0
	wait := every
	for lifecycle.Sleep(ctx, nil, wait) {
		err := f()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			failures, wait = 0, every-rand.N(every/10)
		case !retriable(err):
			return err
		default:
			failures++
			wait = min(every, backoff(failures))
			if failures == 1 {
				e.log.Error(what, "error", err)
			}
		}
	}
	return ctx.Err()
}

// backoff returns how long to wait after so many failures in a row.
func backoff(failures int) time.Duration {
	most := min(backoffCap, backoffBase<<min(failures-1, 10))
	return most/2 + rand.N(most/2)
}
