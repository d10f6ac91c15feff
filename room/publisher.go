package room

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sluice-project/sluice/lifecycle"
)

const (
	// publishInterval is how often the outboxes are read; those of empty rooms every
	// idlePublishInterval.
	publishInterval     = 100 * time.Millisecond
	idlePublishInterval = time.Second
	// publishTimeout is the most time for one attempt to publish.
	publishTimeout = 30 * time.Second
	// publishBackoffCap bounds the pause after an attempt that failed. There is no
	// last attempt.
	publishBackoffCap = 15 * time.Second
	// publishAtOnce is how many batches of one room are published before the next room.
	publishAtOnce = 10
)

// outbox is how far the events of one room were published from here.
type outbox struct {
	looked time.Time
	// published is the last event that was published, confirmed the last one that was
	// removed from the store.
	published, confirmed int64
	// failing reports whether the last attempt failed, which was logged.
	failing bool
}

// publish passes the events of the outboxes to the publisher, room by room, and retries
// each batch until it is taken: the events of a room arrive in order, at least once.
func (e *Engine) publish(ctx context.Context) error {
	outboxes := map[*cachedRoom]*outbox{}
	for lifecycle.Sleep(ctx, nil, publishInterval) {
		if !e.ownership.held() {
			clear(outboxes)
			continue
		}
		if err := e.openOutboxes(ctx, outboxes); err != nil && !retriable(err) {
			return err
		}
		for k, box := range outboxes {
			if err := e.publishRoom(ctx, k, box); err != nil && !retriable(err) {
				return err
			} else if err != nil && ctx.Err() == nil && !box.failing {
				e.log.Error("publish events", "room", k.name, "error", err)
				box.failing = true
			} else if err == nil {
				box.failing = false
			}
		}
	}
	return ctx.Err()
}

// openOutboxes makes an outbox for each new room, and removes those of removed rooms.
func (e *Engine) openOutboxes(ctx context.Context, outboxes map[*cachedRoom]*outbox) error {
	for k := range outboxes {
		if k.removed.Load() {
			delete(outboxes, k)
		}
	}
	isNew := func(k *cachedRoom) bool { return outboxes[k] == nil }
	if !slices.ContainsFunc(e.catalog.all(), isNew) {
		return nil
	}
	// A room in memory may have been replaced by another of its name, with new events.
	if err := e.catalog.refresh(ctx); err != nil {
		return err
	}
	for _, k := range e.catalog.all() {
		if isNew(k) {
			outboxes[k] = new(outbox)
		}
	}
	return nil
}

// publishRoom publishes some batches of a room's events, if there are any.
func (e *Engine) publishRoom(ctx context.Context, k *cachedRoom, box *outbox) error {
	if k.idle.Load() && time.Since(box.looked) < idlePublishInterval {
		return nil
	}
	box.looked = time.Now()
	for range publishAtOnce {
		more, err := e.publishBatch(ctx, k, box)
		if errors.Is(err, ErrNoRoom) {
			e.catalog.drop(k)
			return nil
		}
		if err != nil || !more {
			return err
		}
	}
	return nil
}

// publishBatch publishes one batch, while the ownership is held; more reports whether
// there may be others.
func (e *Engine) publishBatch(ctx context.Context, k *cachedRoom, box *outbox) (more bool, err error) {
	if !e.ownership.held() {
		return false, nil
	}
	var events []Event
	err = e.atRevision(ctx, k, func(revision uint64) (err error) {
		events, err = e.store.Events(ctx, k.name, revision, box.published, MaxPublish)
		return err
	})
	if err != nil {
		return false, err
	}
	if len(events) > 0 {
		generation := k.room.Load().Generation
		notices := make([]Notice, len(events))
		for i, event := range events {
			notices[i] = Notice{Event: event, Room: k.name, Generation: generation}
		}
		if !e.publishUntilTaken(ctx, notices) {
			return false, ctx.Err()
		}
		e.metrics.published.Add(float64(len(events)))
		box.published = events[len(events)-1].Sequence
	}
	if box.confirmed == box.published {
		return false, nil
	}
	// Confirm even while the engine stops, so that fewer events come twice.
	ctx = context.WithoutCancel(ctx)
	err = e.atRevision(ctx, k, func(revision uint64) error { return e.store.Published(ctx, k.name, revision, box.published) })
	if err != nil {
		return false, err
	}
	box.confirmed = box.published
	return len(events) == MaxPublish, nil
}

// atRevision calls with the revision of a room, and retries if the room was changed.
// ErrNoRoom if it was removed, though there may be another one of its name.
func (e *Engine) atRevision(ctx context.Context, k *cachedRoom, call func(revision uint64) error) error {
	return e.retryStale(ctx, k.name, func() error {
		if k.removed.Load() {
			return ErrNoRoom
		}
		return call(k.room.Load().Revision)
	})
}

// publishUntilTaken publishes a batch until the publisher takes it. It returns false when
// ctx ends, or the ownership is lost: another instance may have published more by then, and
// the batch would come again behind that.
func (e *Engine) publishUntilTaken(ctx context.Context, notices []Notice) bool {
	for failures := 1; ; failures++ {
		err := e.publishOnce(ctx, notices)
		if err == nil {
			return true
		}
		if ctx.Err() != nil || !e.ownership.held() {
			return false
		}
		again := min(publishBackoffCap, backoff(failures)<<min(max(0, failures-5), 4))
		e.metrics.publishFailures.Inc()
		e.log.Error("publish events", "error", err, "attempt", failures, "again_in", again)
		if !lifecycle.Sleep(ctx, nil, again) || !e.ownership.held() {
			return false
		}
	}
}

// publishOnce makes one attempt to publish. A panic becomes an error.
func (e *Engine) publishOnce(ctx context.Context, notices []Notice) (err error) {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	defer func() {
		if r := recover(); r != nil {
			e.log.Error("the publisher panicked", "panic", r, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return e.publisher.Publish(ctx, notices)
}

const (
	// ownershipName is owned by the instance that publishes the events of all rooms.
	ownershipName = "publisher"
	// ownershipTTL is after how long another instance takes over from one that is gone; the
	// owner extends it every ownershipInterval.
	ownershipTTL      = 10 * time.Second
	ownershipInterval = 3 * time.Second
)

// publisherOwnership lets one of several instances publish, so that events come twice
// only after a takeover.
type publisherOwnership struct {
	store  Store
	holder string
	// until is when the ownership ends, by the monotonic clock since start.
	until atomic.Int64
	start time.Time
}

func newPublisherOwnership(store Store) *publisherOwnership {
	return &publisherOwnership{store: store, holder: rand.Text(), start: time.Now()}
}

// held reports whether this instance may publish.
func (o *publisherOwnership) held() bool { return int64(time.Since(o.start)) < o.until.Load() }

// take takes or prolongs the ownership, if nobody else has it.
func (o *publisherOwnership) take(ctx context.Context) error {
	asked := time.Since(o.start)
	ok, err := o.store.Own(ctx, ownershipName, o.holder, ownershipTTL)
	switch {
	case err != nil:
		return err
	case ok:
		o.until.Store(int64(asked + ownershipTTL))
	default:
		o.until.Store(0)
	}
	return nil
}

// releaseTimeout bounds giving the ownership back when the engine stops.
const releaseTimeout = time.Second

// holdOwnership keeps the ownership while the engine runs, and gives it back then.
func (e *Engine) holdOwnership(ctx context.Context) error {
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
		defer cancel()
		if !e.ownership.held() {
			return
		}
		e.ownership.until.Store(0)
		if _, err := e.store.Own(ctx, ownershipName, e.ownership.holder, 0); err != nil {
			e.log.Warn("give the publisher's ownership back: another instance takes it in some seconds", "error", err)
		}
	}()
	if err := e.ownership.take(ctx); err != nil && !retriable(err) {
		return err
	}
	return e.regularly(ctx, "take the publisher's ownership", ownershipInterval, func() error { return e.ownership.take(ctx) })
}
