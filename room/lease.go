package room

import (
	"context"
	"crypto/rand"
	"sync/atomic"
	"time"
)

const (
	// leaseName is what the instance has that publishes the events of all rooms.
	leaseName = "publisher"
	// leaseTTL is after how long another instance takes over from one that is gone;
	// it is prolonged every leaseInterval.
	leaseTTL      = 10 * time.Second
	leaseInterval = 3 * time.Second
)

// publisherLease lets one of several instances publish, so that events come twice
// only when one takes over from another.
type publisherLease struct {
	store  Store
	holder string
	// until is when the lease ends, by the monotonic clock since start.
	until atomic.Int64
	start time.Time
}

func newPublisherLease(store Store) *publisherLease {
	return &publisherLease{store: store, holder: rand.Text(), start: time.Now()}
}

// held tells whether this instance may publish.
func (l *publisherLease) held() bool { return int64(time.Since(l.start)) < l.until.Load() }

// take takes or prolongs the lease, if nobody else has it.
func (l *publisherLease) take(ctx context.Context) error {
	asked := time.Since(l.start)
	ok, err := l.store.Lease(ctx, leaseName, l.holder, leaseTTL)
	switch {
	case err != nil:
		return err
	case ok:
		l.until.Store(int64(asked + leaseTTL))
	default:
		l.until.Store(0)
	}
	return nil
}

// giveBackTimeout bounds giving the lease back when the engine stops.
const giveBackTimeout = time.Second

// holdLease keeps the lease while the engine runs, and gives it back then.
func (e *Engine) holdLease(ctx context.Context) error {
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTimeout)
		defer cancel()
		if !e.lease.held() {
			return
		}
		e.lease.until.Store(0)
		if _, err := e.store.Lease(ctx, leaseName, e.lease.holder, 0); err != nil {
			e.log.Warn("give the publisher's lease back: another instance takes it in some seconds", "error", err)
		}
	}()
	if err := e.lease.take(ctx); err != nil && !retriable(err) {
		return err
	}
	return e.regularly(ctx, "take the publisher's lease", leaseInterval, func() error { return e.lease.take(ctx) })
}
