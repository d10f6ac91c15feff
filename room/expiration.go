package room

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/sluice-project/sluice/lifecycle"
)

const (
	// idleInterval is the time between two calls of Expire for an empty room.
	idleInterval = 800 * time.Millisecond
	// lookJitter is the most that an Expire is delayed at random, so that instances do not
	// all call at once.
	lookJitter = 20 * time.Millisecond
	// statusInterval and idleStatusInterval are how often the visitors of a room are
	// counted, of one with visitors and of an empty one.
	statusInterval     = time.Second
	idleStatusInterval = 5 * time.Second
	// backoffBase and backoffCap bound the pause after a failure of the store: it doubles
	// from one to the other, with jitter. There is no last attempt.
	backoffBase = 50 * time.Millisecond
	backoffCap  = time.Second
)

// refreshRooms reads the rooms every RefreshInterval, and starts their expirations.
func (e *Engine) refreshRooms(ctx context.Context) error {
	e.startExpirations()
	return e.regularly(ctx, "read the rooms", e.config.RefreshInterval, func() error {
		err := e.catalog.refresh(ctx)
		e.startExpirations()
		return err
	})
}

func (e *Engine) startExpirations() {
	for _, k := range e.catalog.all() {
		e.startExpiration(k)
	}
}

// startExpiration starts the expiration of a room, once, if the engine runs.
func (e *Engine) startExpiration(k *cachedRoom) {
	if e.started.Load() && k.expiring.CompareAndSwap(false, true) {
		e.group.Go("expiration of "+k.name, func(ctx context.Context) error { return e.expireRoom(ctx, k) })
	}
}

// expireRoom is the expiration of one room: it calls Expire whenever something is due,
// until the room is removed.
func (e *Engine) expireRoom(ctx context.Context, k *cachedRoom) error {
	failures := 0
	for !k.removed.Load() {
		wait, err := e.expireOnce(ctx, k)
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

// expireOnce calls Expire for a room, and returns the time until the next call.
func (e *Engine) expireOnce(ctx context.Context, k *cachedRoom) (time.Duration, error) {
	select {
	case e.expirations <- struct{}{}:
		defer func() { <-e.expirations }()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	var due Due
	var last operation
	err := e.operate(ctx, k.name, "expire", func(op operation) (err error) {
		if op.cached != k { // it is another room of that name now
			return nil
		}
		last = op
		due, err = e.store.Expire(ctx, op.terms)
		return err
	})
	if err != nil || last.room == nil {
		return 0, err
	}
	e.clock.observe(due.Now)
	idle := due.Next.IsZero() && !due.More
	k.idle.Store(idle)
	if err := e.count(ctx, k, idle); err != nil {
		return 0, err
	}
	return untilNext(last.room, &last.terms, due, e.config.ExpireInterval, rand.N(lookJitter)), nil
}

// count counts a room's visitors, if it is time to.
func (e *Engine) count(ctx context.Context, k *cachedRoom, idle bool) error {
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
		k.outflow.add(status, k.room.Load().capacity())
		k.measured.Store(&measured{status, k.outflow.rate(), k.outflow.line()})
	}
	return nil
}

// untilNext returns how long to wait after an Expire: until the next deadline that it
// found, or of the schedule. An operation in the meantime sets deadlines no earlier than
// the shortest of the room's windows, so that is the longest wait, and nothing is late.
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

// shortestWindow returns the shortest time until a deadline that an operation may set.
func shortestWindow(s *Settings) time.Duration {
	if s.Mode == Park {
		return min(s.ClaimWindow, s.Stay)
	}
	return min(s.ClaimWindow, s.PassTTL)
}
