package engine

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/sluice-project/sluice/lifecycle"
	"github.com/sluice-project/sluice/room"
)

const (
	// lookJitter is the most that an Expire is delayed at random, so that instances do not
	// all call at once.
	lookJitter = 20 * time.Millisecond
	// useTime is for how long after an operation a room with somebody in it counts as used
	// here: longer than the pauses between two polls.
	useTime = 2 * time.Minute
	// sweepInterval is how often each room is looked at in any case, by one instance, and
	// sweepPause the time between two rooms: so it takes longer with more than 1,200 rooms.
	sweepInterval = 2 * time.Minute
	sweepPause    = 100 * time.Millisecond
	// backoffBase and backoffCap bound the pause after a failure of the store: it doubles
	// from one to the other, with jitter. There is no last attempt.
	backoffBase = 50 * time.Millisecond
	backoffCap  = time.Second
)

// refreshRooms reads the rooms if they were changed, every RefreshInterval.
func (e *Engine) refreshRooms(ctx context.Context) error {
	return e.regularly(ctx, "read the rooms", e.config.RefreshInterval, func() error { return e.catalog.refreshChanged(ctx) })
}

// sweep looks at all rooms from time to time, so that visits end also where nobody asks any
// more and the instance is gone that tended the room, and events are published of rooms that only
// instances without a publisher use. One instance of those with a publisher does it, and one
// of those without.
func (e *Engine) sweep(ctx context.Context) error {
	for {
		begun, wait := time.Now(), sweepInterval
		for _, k := range e.catalog.all() {
			if !e.sweeper.held() {
				wait = ownershipInterval // even if it is held a moment later: these rooms were not looked at
				break
			}
			if err := e.sweepRoom(ctx, k); err != nil && !retriable(err) {
				return err
			}
			if !lifecycle.Sleep(ctx, nil, sweepPause) {
				return ctx.Err()
			}
		}
		if !lifecycle.Sleep(ctx, nil, max(wait-time.Since(begun), sweepPause)) {
			return ctx.Err()
		}
	}
}

// sweepRoom uses a room that is not empty.
func (e *Engine) sweepRoom(ctx context.Context, k *cachedRoom) error {
	status, err := e.store.Status(ctx, k.name)
	switch {
	case errors.Is(err, room.ErrNoRoom):
		e.catalog.drop(k)
		return nil
	case err == nil && status.Waiting+status.Inside+status.EventsWaiting > 0:
		e.use(k)
	}
	return err
}

// use records that a room is used here, and starts its expiration.
func (e *Engine) use(k *cachedRoom) {
	k.used.Store(int64(time.Since(e.begun)))
	k.uses.Add(1)
	if e.started.Load() && !k.expiring.Load() && k.expiring.CompareAndSwap(false, true) {
		e.group.Go("expiration of "+k.name, func(ctx context.Context) error { return e.expireRoom(ctx, k) })
	}
}

// unused ends the expiration of a room that was used so often before; false if it was used
// since.
func (k *cachedRoom) unused(uses int64) bool {
	if k.uses.Load() != uses {
		return false
	}
	k.expiring.Store(false)
	return k.uses.Load() == uses || !k.expiring.CompareAndSwap(false, true)
}

// expireRoom is the expiration of one room while it is in use: it calls Expire whenever
// something is due. It ends when the room is empty, or another instance tends it and nobody
// asks here any more.
func (e *Engine) expireRoom(ctx context.Context, k *cachedRoom) error {
	failures := 0
	for !k.removed.Load() {
		uses := k.uses.Load()
		wait, needed, err := e.expireOnce(ctx, k)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			failures = 0
		case errors.Is(err, room.ErrNoRoom):
			e.catalog.drop(k)
			return nil
		case !retriable(err):
			return err
		default:
			failures++
			wait, needed = backoff(failures), true
			if failures == 1 {
				e.log.Error("expiration", "room", k.name, "error", err)
			}
		}
		if !lifecycle.Sleep(ctx, k.wake, wait) {
			return ctx.Err()
		}
		if !needed && k.unused(uses) {
			return nil
		}
	}
	return nil
}

// expireOnce calls Expire for a room, and returns the time until the next call, and whether
// one is needed though nobody uses the room until then.
func (e *Engine) expireOnce(ctx context.Context, k *cachedRoom) (wait time.Duration, needed bool, err error) {
	select {
	case e.expirations <- struct{}{}:
		defer func() { <-e.expirations }()
	case <-ctx.Done():
		return 0, false, ctx.Err()
	}
	var due room.Due
	var last operation
	began := time.Now()
	err = e.operate(ctx, k.name, opExpire, func(op operation) (err error) {
		if op.cached != k { // it is another room of that name now
			return nil
		}
		op.terms.Tender = e.id
		last = op
		due, err = e.store.Expire(ctx, op.terms)
		return err
	})
	if err != nil || last.room == nil {
		return 0, false, err
	}
	e.clock.observe(due.Now)
	empty := due.Status.Waiting+due.Status.Inside == 0
	needed = !empty && (due.Tended || int64(time.Since(e.begun))-k.used.Load() < int64(useTime)) ||
		e.publisher != nil && due.Status.EventsWaiting > 0
	if before := k.measured.Load(); e.spans != nil && before != nil && due.Tended {
		e.spans.admitted(k.name, began, &before.status, &due.Status)
	}
	k.count(due.Status, needed || empty)
	return untilNext(last.room, &last.terms, due, e.config.ExpireInterval, rand.N(lookJitter)), needed, nil
}

// count keeps a count of a room's visitors, for as long as there are others.
func (k *cachedRoom) count(status room.Status, keep bool) {
	if status.Waiting+status.Called == 0 {
		k.waited.empty(status.Now)
	}
	if !keep {
		k.outflow = outflow{}
		k.measured.Store(nil)
		return
	}
	k.outflow.add(status, k.room.Load().capacity())
	k.measured.Store(&measured{status, k.outflow.rate(), k.outflow.line()})
}

// untilNext returns how long to wait after an Expire: until the next deadline that it
// found, or of the schedule. An operation in the meantime sets deadlines no earlier than
// the shortest of the room's windows, so that is the longest wait, and nothing is late. Where
// another instance tends the room, this one looks when it may take over, and as often in case
// the other has left an empty room.
func untilNext(r *Room, t *room.Terms, due room.Due, interval, jitter time.Duration) time.Duration {
	if due.More {
		return 0
	}
	most := shortestWindow(&r.Settings)
	if due.Tended {
		most = min(most, interval)
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
func shortestWindow(s *room.Settings) time.Duration {
	if s.Mode == room.Park {
		return min(s.ClaimWindow, s.Stay)
	}
	return min(s.ClaimWindow, s.PassTTL)
}
