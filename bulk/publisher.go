package bulk

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"github.com/sluice-project/sluice/lifecycle"
)

// Publisher takes bulk's events to where others read them.
type Publisher interface {
	// Publish returns nil when all events are durable there. Otherwise the same
	// events come again, in the same order: some of them may then be there twice,
	// with the same IDs. Events come again too if that they were published could not
	// be recorded: all of a batch, perhaps with others after them, also after a
	// restart. It is called with one batch at a time, in order, of at most
	// some thousand events and about 4 MiB, each event at most MaxEventBytes. Ctx
	// ends after 30 s, and when the engine stops; Publish must return then.
	Publish(ctx context.Context, events []Event) error
}

// WithPublisher makes the engine publish an event of each move of an action, and
// of the jobs of those actions that ask for it. Events wait in the store's outbox
// until the publisher has taken them, over restarts too. Without a publisher, the
// default, none is kept, and an action cannot ask for any.
func WithPublisher(p Publisher) Option { return func(e *Engine) { e.publisher = p } }

// MaxOutbox is how many events may wait to be published before the engine's store
// accepts no more that would bring others: see Store.KeepEvents.
const MaxOutbox = 1_000_000

const (
	// publishInterval is how often the outbox is looked at when nothing wakes the
	// publisher.
	publishInterval = 100 * time.Millisecond
	// publishTimeout is the most time for one attempt to publish.
	publishTimeout = 30 * time.Second
	// publishBase and publishCap bound the delay after an attempt that failed: it
	// doubles from the one to the other, with jitter. There is no last attempt.
	publishBase = 200 * time.Millisecond
	publishCap  = 15 * time.Second
)

// publish hands the events of the outbox to the publisher, one batch after
// another, each until it is taken: so that they arrive in order, and at least
// once.
func (e *Engine) publish(ctx context.Context) error {
	var trouble trouble
	for {
		published, err := e.publishOnce(ctx)
		if err != nil && !retriable(err) {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !lifecycle.Sleep(ctx, nil, trouble.after(e.log, "publish", err)) {
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
	if !e.persist(ctx, "publish events", func() error { return e.handOver(ctx, events) }) {
		return 0, ctx.Err()
	}
	e.metrics.publishedEvents(events)
	// Confirmed even while the engine stops, so that fewer come twice.
	return len(events), e.store.Published(context.WithoutCancel(ctx), upTo)
}

// persist calls f until it succeeds; false when ctx has ended.
func (e *Engine) persist(ctx context.Context, what string, f func() error) bool {
	for attempt := 1; ; attempt++ {
		err := f()
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		delay := RetryDelay(publishBase, publishCap, attempt, rand.Float64())
		e.metrics.publishFailures.Inc()
		e.log.Error(what, "error", err, "attempt", attempt, "again_in", delay)
		if !lifecycle.Sleep(ctx, nil, delay) {
			return false
		}
	}
}

// handOver makes one attempt to publish. A panic is an error.
func (e *Engine) handOver(ctx context.Context, events []Event) (err error) {
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
