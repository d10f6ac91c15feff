package bench

import (
	"context"
	"fmt"
	"time"
)

// The visitors of Drift: half of the visits inside are due while nothing subscribes.
const (
	DriftCapacity = 1000
	driftDue      = DriftCapacity / 2
	// driftAway is how long the subscriber is away, and driftAfter when in that time the visits are
	// due.
	driftAway, driftAfter = 3 * time.Second, time.Second
	// driftSettle is how long the counters may catch up afterwards.
	driftSettle = 500 * time.Millisecond
)

// Drift is the error of a count after its keepers have failed.
type Drift struct {
	// Wrong is the count minus the truth, after half of the visitors have left and all subscribers
	// are back.
	Wrong int
	// Inside is how many are inside after the next were let in; DriftCapacity would be right.
	Inside int
}

// CountingDrift measures the counter with keyspace notifications while its subscriber is
// away, or with two subscribers.
func (e *Environment) CountingDrift(ctx context.Context, subscribers int) (drift Drift, err error) {
	err = e.count(ctx, CountingWays[2], func(ctx context.Context, way counting, _ *redisServer) error {
		c, ok := way.(*notifiedCounting)
		if !ok {
			return fmt.Errorf("%T has no subscribers", way)
		}
		if subscribers == 0 {
			err = c.unsubscribe()
		}
		for n := 1; err == nil && n < subscribers; n++ {
			err = c.subscribe(ctx)
		}
		if err != nil {
			return err
		}
		return drift.measure(ctx, c, func() error {
			if subscribers == 0 {
				return c.subscribe(ctx)
			}
			return nil
		})
	})
	return drift, err
}

// RoomDrift measures sluice in the same way, with all instances away.
func (e *Environment) RoomDrift(ctx context.Context) (drift Drift, err error) {
	err = e.count(ctx, CountingWays[4], func(ctx context.Context, way counting, _ *redisServer) error {
		return drift.measure(ctx, way, func() error {
			return awaitDue(ctx, way, time.Time{})
		})
	})
	return drift, err
}

func (d *Drift) measure(ctx context.Context, c counting, comeBack func() error) error {
	if err := c.fill(ctx, DriftCapacity, driftDue, time.Now().Add(driftAfter), 2*DriftCapacity); err != nil {
		return err
	}
	if err := rest(ctx, driftAway); err != nil {
		return err
	}
	if err := comeBack(); err != nil {
		return err
	}
	if err := c.expire(ctx); err != nil {
		return err
	}
	left, err := c.inside(ctx)
	if err != nil {
		return err
	}
	if err := rest(ctx, driftSettle); err != nil {
		return err
	}
	counted, err := c.counted(ctx)
	if err != nil {
		return err
	}
	d.Wrong = counted - left
	if left != DriftCapacity-driftDue {
		return fmt.Errorf("%d are inside, after %d of %d have left", left, driftDue, DriftCapacity)
	}
	if err := c.admit(ctx, DriftCapacity); err != nil {
		return err
	}
	d.Inside, err = c.inside(ctx)
	return err
}

func rest(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
