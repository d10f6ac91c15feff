package delay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-project/sluice/lifecycle"
	"github.com/sluice-project/sluice/topic"
)

// delayCheck bounds the sleep of the release loop, since the clock may be set.
const delayCheck = time.Minute

// release is the loop that releases due records.
func (d *Queue) release(ctx context.Context) error {
	wait := delayWaitMin
	for {
		sleep := d.untilNext(time.Now())
		if sleep <= 0 {
			switch err := d.releaseDue(ctx); {
			case ctx.Err() != nil:
				return ctx.Err()
			case errors.Is(err, topic.ErrCorrupt):
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

// untilNext returns the time until the next work. It passes settlements to the writer
// when they have waited long enough.
func (d *Queue) untilNext(now time.Time) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	sleep := delayCheck
	if !d.settle.empty() && !d.settle.due {
		left := d.settle.since.Add(settleWithin).Sub(now)
		if left <= 0 {
			d.settle.due = true
			d.written.Wake()
		} else {
			sleep = left
		}
	}
	if next := d.state.queue.First(); next != nil {
		sleep = min(sleep, time.UnixMilli(next.due).Sub(now))
	}
	return sleep
}

// releaseDue releases due records, up to the bounds of one release. After an error that
// is not known to be final, the records are pending as before.
func (d *Queue) releaseDue(ctx context.Context) error {
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
		return fmt.Errorf("release %d: %w", number, topic.ErrRetry)
	}
	d.released = number
	return nil
}

// pick takes due records out of the queue, up to the bounds of a release.
func (d *Queue) pick(now int64) (items []*delayItem) {
	d.mu.Lock()
	defer d.mu.Unlock()
	size := 0
	for item := d.state.queue.First(); item != nil && item.due <= now; item = d.state.queue.First() {
		size += int(item.size)
		if len(items) == d.config.ReleaseRecords || len(items) > 0 && size > d.config.ReleaseBytes {
			break
		}
		d.state.queue.Remove(item)
		items = append(items, item)
	}
	return items
}

// putBack puts picked records that are still pending into the queue again.
func (d *Queue) putBack(items []*delayItem) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, item := range items {
		if item.status == pending {
			d.state.queue.Set(item)
		}
	}
}

// announce writes the list of records of the next release, and returns their batch; nil
// if all were canceled.
func (d *Queue) announce(ctx context.Context, items []*delayItem, bodies map[*delayItem][]byte) (int64, topic.Batch, error) {
	var number int64
	var batch topic.Batch
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
				batch = topic.ReleasedBatch(recordsOfRelease(d.state.release.items, bodies))
			}
		},
	}
	if err := d.do(ctx, request); err != nil {
		return 0, nil, err // the writer may still have the request
	}
	return number, batch, nil
}

// recordsOfRelease returns items with their bodies.
func recordsOfRelease(items []*delayItem, bodies map[*delayItem][]byte) []topic.DelayedRecord {
	records := make([]topic.DelayedRecord, len(items))
	for i, item := range items {
		records[i] = topic.DelayedRecord{ID: item.id, Due: item.due, Body: bodies[item]}
	}
	return records
}
