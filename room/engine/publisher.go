package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/sluice-project/sluice/lifecycle"
	"github.com/sluice-project/sluice/room"
)

const (
	// publishInterval is how often the outboxes of the rooms in use are read.
	publishInterval = 100 * time.Millisecond
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
	// published is the last event that was published, confirmed the last one that was
	// removed from the store.
	published, confirmed int64
	// failing reports whether the last attempt failed, which was logged.
	failing bool
}

// publish passes the events of the rooms in use to the publisher, room by room, and retries
// each batch until it is taken: the events of a room arrive in order, at least once. One
// instance publishes those of a room.
func (e *Engine) publish(ctx context.Context) error {
	outboxes := map[*cachedRoom]*outbox{}
	for lifecycle.Sleep(ctx, nil, publishInterval) {
		for _, k := range e.catalog.all() {
			box := outboxes[k]
			err := e.publishRoom(ctx, k, &box)
			if outboxes[k] = box; box == nil {
				delete(outboxes, k)
			}
			if err != nil && !retriable(err) {
				return err
			}
		}
		for k := range outboxes {
			if !k.removed.Load() {
				continue
			}
			delete(outboxes, k)
			if err := k.publishing.giveBack(ctx); err != nil && !retriable(err) {
				return err
			}
		}
	}
	return ctx.Err()
}

// publishRoom publishes some batches of a room's events, if there are any, the room is in
// use, and no other instance publishes them. The outbox is nil while this one does not.
func (e *Engine) publishRoom(ctx context.Context, k *cachedRoom, box **outbox) error {
	if !k.expiring.Load() {
		*box = nil
		return k.publishing.giveBack(ctx)
	}
	if !k.publishing.held() {
		*box = nil
		if err := k.publishing.take(ctx); err != nil {
			return err
		}
		if !k.publishing.held() {
			return nil
		}
	}
	if *box == nil {
		*box = new(outbox)
		// A room in memory may have been replaced by another of its name, with new events.
		if err := e.catalog.refreshChanged(ctx); err != nil {
			return err
		}
	}
	err := e.publishBatches(ctx, k, *box)
	if err != nil && ctx.Err() == nil && !(*box).failing {
		e.log.Error("publish events", "room", k.name, "error", err)
	}
	(*box).failing = err != nil
	return err
}

func (e *Engine) publishBatches(ctx context.Context, k *cachedRoom, box *outbox) error {
	for range publishAtOnce {
		more, err := e.publishBatch(ctx, k, box)
		switch {
		case errors.Is(err, room.ErrNoRoom):
			e.catalog.drop(k)
			return nil
		case err != nil || !more:
			return err
		}
	}
	return nil
}

// publishBatch publishes one batch, while the ownership is held; more reports whether
// there may be others.
func (e *Engine) publishBatch(ctx context.Context, k *cachedRoom, box *outbox) (more bool, err error) {
	if !k.publishing.held() {
		return false, nil
	}
	var events []room.Event
	err = e.atRevision(ctx, k, func(revision uint64) (err error) {
		events, err = e.store.Events(ctx, k.name, revision, box.published, room.MaxPublish)
		return err
	})
	if err != nil {
		return false, err
	}
	if len(events) > 0 {
		generation := k.room.Load().Generation
		notices := make([]room.Notice, len(events))
		for i, event := range events {
			notices[i] = room.Notice{Event: event, Room: k.name, Generation: generation}
		}
		if !e.publishUntilTaken(ctx, k, notices) {
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
	return len(events) == room.MaxPublish, nil
}

// atRevision calls with the revision of a room, and retries if the room was changed.
// ErrNoRoom if it was removed, though there may be another one of its name.
func (e *Engine) atRevision(ctx context.Context, k *cachedRoom, call func(revision uint64) error) error {
	return e.retryStale(ctx, k.name, func() error {
		if k.removed.Load() {
			return room.ErrNoRoom
		}
		return call(k.room.Load().Revision)
	})
}

// publishUntilTaken publishes a batch until the publisher takes it. It returns false when
// ctx ends, or the ownership is lost: another instance may have published more by then, and
// the batch would come again behind that.
func (e *Engine) publishUntilTaken(ctx context.Context, k *cachedRoom, notices []room.Notice) bool {
	for failures := 1; ; failures++ {
		err := e.publishOnce(ctx, notices)
		if err == nil {
			return true
		}
		if ctx.Err() != nil || !k.publishing.held() {
			return false
		}
		again := min(publishBackoffCap, backoff(failures)<<min(max(0, failures-5), 4))
		e.metrics.publishFailures.Inc()
		e.log.Error("publish events", "error", err, "attempt", failures, "again_in", again)
		if !lifecycle.Sleep(ctx, nil, again) || !k.publishing.held() {
			return false
		}
	}
}

// publishOnce makes one attempt to publish. A panic becomes an error.
func (e *Engine) publishOnce(ctx context.Context, notices []room.Notice) (err error) {
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

// Publisher publishes events, to a topic for example.
type Publisher interface {
	// Publish returns nil when all notices are durable there. Otherwise they are published
	// again in the same order, perhaps followed by others, also after a restart: some may
	// then be there twice, with the same IDs. It is called with one batch at a time, of at
	// most MaxPublish. Ctx ends after 30 s, and when the engine stops.
	Publish(ctx context.Context, notices []room.Notice) error
}
