package room

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/sluice-project/sluice/lifecycle"
)

const (
	// publishInterval is how often the outboxes are looked at; those of rooms with
	// nobody in them every idlePublishInterval.
	publishInterval     = 100 * time.Millisecond
	idlePublishInterval = time.Second
	// publishTimeout is the most time for one attempt to publish.
	publishTimeout = 30 * time.Second
	// publishBackoffCap bounds the pause after an attempt that failed. There is no
	// last attempt.
	publishBackoffCap = 15 * time.Second
	// publishAtOnce is how many batches of one room are published before it is
	// another's turn.
	publishAtOnce = 10
)

// outbox is how far the events of one room were published from here.
type outbox struct {
	looked time.Time
	// published is the last event that was published, confirmed the last of which the
	// store knows that.
	published, confirmed int64
	// failing says that the last look failed, which was logged.
	failing bool
}

// publish hands the events of the outboxes to the publisher, room by room, each
// batch until it is taken: so that those of a room arrive in order, and at least
// once.
func (e *Engine) publish(ctx context.Context) error {
	outboxes := map[*known]*outbox{}
	for lifecycle.Sleep(ctx, nil, publishInterval) {
		if !e.lease.held() {
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

// openOutboxes makes an outbox for each room that has come, and removes those of
// rooms that are gone.
func (e *Engine) openOutboxes(ctx context.Context, outboxes map[*known]*outbox) error {
	for k := range outboxes {
		if k.removed.Load() {
			delete(outboxes, k)
		}
	}
	isNew := func(k *known) bool { return outboxes[k] == nil }
	if !slices.ContainsFunc(e.catalog.all(), isNew) {
		return nil
	}
	// A room in memory may be another one by now, whose events begin at 1 again.
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
func (e *Engine) publishRoom(ctx context.Context, k *known, box *outbox) error {
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

// publishBatch publishes one batch, while the lease is held; more says that there may be
// others.
func (e *Engine) publishBatch(ctx context.Context, k *known, box *outbox) (more bool, err error) {
	if !e.lease.held() {
		return false, nil
	}
	var events []Event
	err = e.ofRoom(ctx, k, func(revision uint64) (err error) {
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
		if !e.handOverUntilTaken(ctx, notices) {
			return false, ctx.Err()
		}
		e.metrics.published.Add(float64(len(events)))
		box.published = events[len(events)-1].Sequence
	}
	if box.confirmed == box.published {
		return false, nil
	}
	// Confirmed even while the engine stops, so that fewer come twice.
	ctx = context.WithoutCancel(ctx)
	err = e.ofRoom(ctx, k, func(revision uint64) error { return e.store.Published(ctx, k.name, revision, box.published) })
	if err != nil {
		return false, err
	}
	box.confirmed = box.published
	return len(events) == MaxPublish, nil
}

// ofRoom makes a call about the events of a room, again if the room was changed meanwhile;
// ErrNoRoom if it was removed, though there may be another one of its name.
func (e *Engine) ofRoom(ctx context.Context, k *known, call func(revision uint64) error) error {
	for range maxTurns {
		err := call(k.room.Load().Revision)
		if !errors.Is(err, ErrStale) {
			return err
		}
		if err := e.catalog.refresh(ctx); err != nil {
			return err
		}
		if k.removed.Load() {
			return ErrNoRoom
		}
	}
	return fmt.Errorf("room %s is being changed again and again: %w", k.name, ErrConflict)
}

// handOverUntilTaken hands a batch over until it is taken; false when ctx has
// ended, or another instance may publish instead: should it have published more by now,
// the batch would come again behind that.
func (e *Engine) handOverUntilTaken(ctx context.Context, notices []Notice) bool {
	for failures := 1; ; failures++ {
		err := e.handOver(ctx, notices)
		if err == nil {
			return true
		}
		if ctx.Err() != nil || !e.lease.held() {
			return false
		}
		again := min(publishBackoffCap, backoff(failures)<<min(max(0, failures-5), 4))
		e.metrics.publishFailures.Inc()
		e.log.Error("publish events", "error", err, "attempt", failures, "again_in", again)
		if !lifecycle.Sleep(ctx, nil, again) || !e.lease.held() {
			return false
		}
	}
}

// handOver makes one attempt to publish. A panic is an error.
func (e *Engine) handOver(ctx context.Context, notices []Notice) (err error) {
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
