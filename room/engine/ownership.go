package engine

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/sluice-project/sluice/lifecycle"
	"github.com/sluice-project/sluice/room"
)

const (
	// ownershipTTL is after how long another instance takes over from one that is gone; the
	// owner extends it every ownershipInterval.
	ownershipTTL      = 10 * time.Second
	ownershipInterval = 3 * time.Second
	// eventsTTL is for how long events are kept after the last instance with a publisher was there.
	eventsTTL = 24 * time.Hour
	// releaseTimeout bounds giving ownerships back when the engine stops.
	releaseTimeout = time.Second
)

// ownership is this instance's ownership of a name, which one of several instances has.
type ownership struct {
	store  room.Store
	name   string
	holder string
	// until is when it ends, and asked when it was last asked for, by the monotonic clock
	// since start.
	until, asked atomic.Int64
	start        time.Time
}

func newOwnership(store room.Store, name, holder string) *ownership {
	o := &ownership{store: store, name: name, holder: holder, start: time.Now()}
	o.asked.Store(-int64(ownershipInterval))
	return o
}

// held reports whether this instance is the owner.
func (o *ownership) held() bool { return int64(time.Since(o.start)) < o.until.Load() }

// take takes or prolongs the ownership, if nobody else has it. It asks every
// ownershipInterval at most.
func (o *ownership) take(ctx context.Context) error {
	asked, last := int64(time.Since(o.start)), o.asked.Load()
	if asked-last < int64(ownershipInterval) || !o.asked.CompareAndSwap(last, asked) {
		return nil
	}
	ok, err := o.store.Own(ctx, o.name, o.holder, ownershipTTL)
	switch {
	case err != nil:
		return err
	case ok:
		o.until.Store(asked + int64(ownershipTTL))
	default:
		o.until.Store(0)
	}
	return nil
}

// giveBack ends the ownership, if this instance has it.
func (o *ownership) giveBack(ctx context.Context) error {
	if !o.held() {
		return nil
	}
	o.until.Store(0)
	_, err := o.store.Own(ctx, o.name, o.holder, 0)
	return err
}

// agreeOnEvents says, or learns, whether the events of the store are published. All instances with
// a publisher own that together, and never give it back: events are kept while they restart.
func (e *Engine) agreeOnEvents(ctx context.Context) error {
	const name = "events"
	if e.publisher != nil {
		_, err := e.store.Own(ctx, name, "publishers", eventsTTL)
		return err
	}
	free, err := e.store.Own(ctx, name, "nobody", 0)
	if err == nil {
		e.keepsEvents.Store(!free)
	}
	return err
}

// holdOwnerships takes the sweeper's ownership, and extends those of publishing and of the events,
// while the engine runs; then it gives back what only one instance may have.
func (e *Engine) holdOwnerships(ctx context.Context) error {
	defer e.giveBack(ctx)
	for {
		if err := e.sweeper.take(ctx); err != nil && !retriable(err) {
			return err
		}
		if err := e.agreeOnEvents(ctx); err != nil && !retriable(err) {
			return err
		}
		for _, k := range e.catalog.all() {
			if !k.publishing.held() {
				continue
			}
			if err := k.publishing.take(ctx); err != nil && !retriable(err) {
				return err
			}
		}
		if !lifecycle.Sleep(ctx, nil, ownershipInterval) {
			return ctx.Err()
		}
	}
}

// giveBack gives all ownerships back.
func (e *Engine) giveBack(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	err := e.sweeper.giveBack(ctx)
	for _, k := range e.catalog.all() {
		if err == nil {
			err = k.publishing.giveBack(ctx)
		}
	}
	if err != nil {
		e.log.Warn("give ownerships back: another instance takes them in some seconds", "error", err)
	}
}
