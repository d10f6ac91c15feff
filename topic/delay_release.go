package topic

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-project/sluice/lifecycle"
)

// delayCheck is how long the release loop sleeps at most: the clock may be set.
const delayCheck = time.Minute

// release is the loop that releases what is due.
func (d *Delays) release(ctx context.Context) error {
	wait := delayWaitMin
	for {
		sleep := d.untilNext(time.Now())
		if sleep <= 0 {
			switch err := d.releaseDue(ctx); {
			case ctx.Err() != nil:
				return ctx.Err()
			case errors.Is(err, ErrCorrupt):
				return err
			case err != nil:
				sleep, wait = wait, min(2*wait, delayWaitMax)
			default:
				wait = delayWaitMin
				continue
			}
		} else if err := d.tidy(ctx); err != nil {
			sleep, wait = min(sleep, wait), min(2*wait, delayWaitMax)
		}
		timer := time.NewTimer(sleep)
		select {
		case <-timer.C:
		case <-d.changed:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
		timer.Stop()
	}
}

// untilNext returns how long until there is something to do. What was settled
// is handed to the writer when it has waited long enough.
func (d *Delays) untilNext(now time.Time) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	sleep := delayCheck
	if !d.settle.empty() && !d.settle.due {
		left := d.settle.since.Add(settleWithin).Sub(now)
		if left <= 0 {
			d.settle.due = true
			signal(d.written)
		} else {
			sleep = left
		}
	}
	if len(d.state.queue) > 0 {
		sleep = min(sleep, time.UnixMilli(d.state.queue[0].due).Sub(now))
	}
	return sleep
}

// releaseDue releases what is due, as much as goes at once. After an error that
// is not known to be final, the records are pending as before.
func (d *Delays) releaseDue(ctx context.Context) error {
	items := d.pick(time.Now().UnixMilli())
	defer d.putBack(items)
	bodies, err := d.bodies(ctx, items)
	if err != nil {
		return err
	}
	number, batch, err := d.announce(ctx, items, bodies)
	if err != nil || batch == nil {
		return err
	}
	err = d.target.AppendReleased(ctx, batch, number)
	carriedOut := err == nil
	for wait := delayWaitMin; err != nil; wait = min(2*wait, delayWaitMax) {
		var last int64
		if last, err = d.target.LastReleased(ctx); err == nil {
			carriedOut = last >= number
			break
		}
		if !lifecycle.Sleep(ctx, nil, wait) {
			return ctx.Err()
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, item := range d.state.release.items {
		d.state.uncache(item)
	}
	d.state.end(carriedOut)
	if !carriedOut {
		return fmt.Errorf("release %d: %w", number, ErrRetry)
	}
	d.released = number
	return nil
}

// pick takes the records that are due out of the queue, up to the bounds of a
// release.
func (d *Delays) pick(now int64) (items []*delayItem) {
	d.mu.Lock()
	defer d.mu.Unlock()
	size := 0
	for len(d.state.queue) > 0 && d.state.queue[0].due <= now {
		size += int(d.state.queue[0].size)
		if len(items) == d.config.ReleaseRecords || len(items) > 0 && size > d.config.ReleaseBytes {
			break
		}
		items = append(items, heap.Pop(&d.state.queue).(*delayItem))
	}
	return items
}

// putBack puts what was picked and is still pending into the queue again.
func (d *Delays) putBack(items []*delayItem) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, item := range items {
		if item.status == pending && item.at < 0 {
			heap.Push(&d.state.queue, item)
		}
	}
}

// announce writes which records the next release has, and returns their batch;
// nil if all were canceled.
func (d *Delays) announce(ctx context.Context, items []*delayItem, bodies map[*delayItem][]byte) (int64, Batch, error) {
	var number int64
	var batch Batch
	var ids []string
	request := &delayRequest{
		alone: true,
		move: func() (delayMove, error) {
			number = d.released + 1
			for _, item := range items {
				if item.status == pending {
					ids = append(ids, item.id)
				}
			}
			if len(ids) == 0 {
				return delayMove{}, nil
			}
			return delayMove{kind: delayRelease, number: number, ids: ids}, nil
		},
		applied: func() {
			if len(ids) > 0 {
				batch = releasedBatch(d.state.release.items, bodies)
			}
		},
	}
	if err := d.do(ctx, request); err != nil {
		return 0, nil, err // the writer may have the request still
	}
	return number, batch, nil
}

// releasedBatch returns the batch of records that are released. Their timestamps
// are when they were due.
func releasedBatch(items []*delayItem, bodies map[*delayItem][]byte) Batch {
	first, last := items[0].due, items[len(items)-1].due
	batch := emptyBatch(0, int64(len(items)), 0)
	for i, item := range items {
		batch = appendRecord(batch, item.due-first, int64(i), bodies[item])
	}
	batch.put64(atFirstTime, first)
	batch.put64(atMaxTime, last)
	batch.put32(atCount, int32(len(items)))
	batch.seal()
	return batch
}
