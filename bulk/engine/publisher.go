package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/lifecycle"
)

// Publisher publishes bulk's events, for example to a topic.
type Publisher interface {
	// Publish publishes events, and returns nil when all of them are durable. After an
	// error, or if the engine could not record the success, it is called again with the
	// same events in the same order, perhaps with more after them, also after a restart:
	// an event may be published more than once, with the same ID. Calls come one at a
	// time, in order, with at most some thousand events and about 4 MiB, each event at
	// most MaxEventBytes. Ctx ends after 30 s, and when the engine stops; Publish must
	// return then.
	Publish(ctx context.Context, events []bulk.Event) error
}

// WithPublisher makes the engine publish an event of each transition of an action, and
// of the jobs of actions that ask for it. Events wait in the store's outbox until they
// are published, also over restarts. Without a publisher, the default, no events are
// kept, and actions cannot ask for them.
func WithPublisher(p Publisher) Option { return func(e *Engine) { e.publisher = p } }

// MaxOutbox is how many events may wait to be published before the store refuses calls
// that would cause more: see Store.KeepEvents.
const MaxOutbox = 1_000_000

const (
	// publishInterval is how often the outbox is read when nothing wakes the publisher.
	publishInterval = 100 * time.Millisecond
	// publishTimeout bounds one attempt to publish.
	publishTimeout = 30 * time.Second
	// publishBase and publishCap bound the backoff after a failed attempt. Attempts are
	// not limited.
	publishBase = 200 * time.Millisecond
	publishCap  = 15 * time.Second
)

// publish hands the events of the outbox to the publisher, batch by batch, and retries
// each batch until it is published: events are published in order, at least once.
func (e *Engine) publish(ctx context.Context) error {
	var backoff backoff
	for {
		published, err := e.publishOnce(ctx)
		if err != nil && !retriable(err) {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !lifecycle.Sleep(ctx, nil, backoff.after(e.log, "publish", err)) {
			return ctx.Err()
		}
		wait := publishInterval
		if published > 0 && err == nil {
			wait = 0
		}
		if !lifecycle.Sleep(ctx, e.outbox, wait) {
			return ctx.Err()
		}
	}
}

// publishOnce publishes one batch of events, if there are any.
func (e *Engine) publishOnce(ctx context.Context) (published int, err error) {
	events, upTo, err := e.store.Events(ctx)
	if err != nil || len(events) == 0 {
		return 0, err
	}
	if !e.retryPublish(ctx, "publish events", func() error { return e.tryPublish(ctx, events) }) {
		return 0, ctx.Err()
	}
	e.metrics.publishedEvents(events)
	// Confirmed even while the engine stops, so that fewer are published twice.
	return len(events), e.store.Published(context.WithoutCancel(ctx), upTo)
}

// retryPublish calls f until it succeeds, or returns false when ctx has ended.
func (e *Engine) retryPublish(ctx context.Context, what string, f func() error) bool {
	for attempt := 1; ; attempt++ {
		err := f()
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		delay := bulk.RetryDelay(publishBase, publishCap, attempt, rand.Float64())
		e.metrics.publishFailures.Inc()
		e.log.Error(what, "error", err, "attempt", attempt, "again_in", delay)
		if !lifecycle.Sleep(ctx, nil, delay) {
			return false
		}
	}
}

// tryPublish makes one attempt to publish. It returns a panic as an error.
func (e *Engine) tryPublish(ctx context.Context, events []bulk.Event) (err error) {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	defer func() {
		if r := recover(); r != nil {
			e.log.Error("the publisher panicked", "panic", r, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return e.publisher.Publish(ctx, events)
}
