package room

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/sluice-project/sluice/lifecycle"
)

const (
	// idleInterval is the time between two looks at a room with nobody in it.
	idleInterval = 800 * time.Millisecond
	// lookJitter is the most that a look is late by chance, so that instances do not
	// all come at once.
	lookJitter = 20 * time.Millisecond
	// statusInterval and idleStatusInterval are how often the visitors of a room are
	// counted, with anybody in it and with nobody.
	statusInterval     = time.Second
	idleStatusInterval = 5 * time.Second
	// backoffBase and backoffCap bound the pause after a failure of the store: it
	// doubles from the one to the other, with jitter. There is no last attempt.
	backoffBase = 50 * time.Millisecond
	backoffCap  = time.Second
)

// refreshRooms reads the rooms now and then, and has each of them looked after.
func (e *Engine) refreshRooms(ctx context.Context) error {
	e.tendAll()
	return e.regularly(ctx, "read the rooms", e.config.RefreshInterval, func() error {
		err := e.catalog.refresh(ctx)
		e.tendAll()
		return err
	})
}

func (e *Engine) tendAll() {
	for _, k := range e.catalog.all() {
		e.tendRoom(k)
	}
}

// tendRoom begins the expiration of a room, once, if the engine runs.
func (e *Engine) tendRoom(k *known) {
	if e.started.Load() && k.tended.CompareAndSwap(false, true) {
		e.group.Go("expiration of "+k.name, func(ctx context.Context) error { return e.tend(ctx, k) })
	}
}

// tend is the expiration of one room: it looks at it whenever something is due,
// until the room is removed.
func (e *Engine) tend(ctx context.Context, k *known) error {
	failures := 0
	for !k.removed.Load() {
		wait, err := e.visit(ctx, k)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			failures = 0
		case errors.Is(err, ErrNoRoom):
			e.catalog.drop(k)
			return nil
		case !retriable(err):
			return err
		default:
			failures++
			wait = backoff(failures)
			if failures == 1 {
				e.log.Error("expiration", "room", k.name, "error", err)
			}
		}
		if !lifecycle.Sleep(ctx, k.wake, wait) {
			return ctx.Err()
		}
	}
	return nil
}

// visit does what is due in a room, and returns after how long the next is.
func (e *Engine) visit(ctx context.Context, k *known) (time.Duration, error) {
	select {
	case e.visits <- struct{}{}:
		defer func() { <-e.visits }()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	var due Due
	var at turn
	err := e.move(ctx, k.name, "expire", func(t turn) (err error) {
		if t.known != k { // another room of that name has come
			return nil
		}
		at = t
		due, err = e.store.Expire(ctx, t.terms)
		return err
	})
	if err != nil || at.room == nil {
		return 0, err
	}
	e.clock.observe(due.Now)
	idle := due.Next.IsZero() && !due.More
	k.idle.Store(idle)
	if err := e.count(ctx, k, idle); err != nil {
		return 0, err
	}
	return untilNext(at.room, &at.terms, due, e.config.ExpireInterval, rand.N(lookJitter)), nil
}

// count takes the numbers of a room's visitors, if it is time to.
func (e *Engine) count(ctx context.Context, k *known, idle bool) error {
	every := statusInterval
	if idle {
		every = idleStatusInterval
	}
	if now := time.Now(); k.counted.IsZero() || now.Sub(k.counted) >= every || idle != k.countedIdle {
		status, err := e.store.Status(ctx, k.name)
		if err != nil {
			return err
		}
		k.counted, k.countedIdle = now, idle
		k.outflow.add(status, k.room.Load().Settings.Capacity)
		k.measured.Store(&measured{status, k.outflow.rate(), k.outflow.line()})
	}
	return nil
}

// untilNext is how long to wait after a look at a room: until the next that is due
// by what it found, or by the schedule. What another move begins meanwhile is due
// after the shortest of the room's windows at the earliest, so that is the most,
// and nothing is late.
func untilNext(r *Room, t *Terms, due Due, interval, jitter time.Duration) time.Duration {
	if due.More {
		return 0
	}
	most := min(interval, shortestWindow(&r.Settings))
	if due.Next.IsZero() {
		most = idleInterval
	}
	wait := most
	for _, at := range []time.Time{due.Next, nextCall(r, t, due.Now)} {
		if !at.IsZero() {
			wait = min(wait, at.Sub(due.Now))
		}
	}
	if wait < most {
		return min(max(wait, time.Millisecond)+min(jitter, most/10), most)
	}
	return wait - min(jitter, most/10)
}

// shortestWindow is the shortest time after which something may be due that has just
// begun.
func shortestWindow(s *Settings) time.Duration {
	if s.Mode == Park {
		return min(s.ClaimWindow, s.Stay)
	}
	return min(s.ClaimWindow, s.PassTTL)
}

// regularly calls f again and again, with pauses of about every; after an error
// that may pass, with growing ones.
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

// backoff is how long to wait after so many failures in a row.
func backoff(failures int) time.Duration {
	most := min(backoffCap, backoffBase<<min(failures-1, 10))
	return most/2 + rand.N(most/2)
}
