package delay

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-project/sluice/topic"
)

// Addition holds durable delayed records of a batch that is being appended. One of its
// methods must be called when the append has ended; none blocks.
type Addition struct {
	delays   *Queue
	producer *topic.BatchProducer
	items    []*delayItem
	// abandoned reports that the caller of Add has left before it was durable.
	abandoned bool
}

// settlement holds the results of batches that are not in the log yet.
type settlement struct {
	kept, dropped []string
	since         time.Time
	due           bool // written even if nothing else is
}

func (s *settlement) empty() bool { return len(s.kept) == 0 && len(s.dropped) == 0 }

// settleMax bounds the records whose settlement is written in one entry.
const settleMax = 2048

// take removes and returns at most n records.
func (s *settlement) take(n int) (taken settlement) {
	kept := min(n, len(s.kept))
	taken.kept, s.kept = s.kept[:kept:kept], s.kept[kept:]
	dropped := min(n-kept, len(s.dropped))
	taken.dropped, s.dropped = s.dropped[:dropped:dropped], s.dropped[dropped:]
	return taken
}

// Add makes the delayed records of a batch durable. A record whose id waits already is a
// repeat and is ignored. Errors: ErrDelaysFull; ErrRetry and ctx's error, after which
// the batch must not be appended.
func (d *Queue) Add(ctx context.Context, batch *topic.DelayedBatch) (*Addition, error) {
	a := &Addition{delays: d, producer: batch.Producer}
	var requests []*delayRequest
	for rest := batch.Records; len(rest) > 0; {
		count, size := 0, 0
		for count < len(rest) && (count == 0 || size+len(rest[count].Body) <= topic.EntryBytes) {
			size += len(rest[count].Body) + len(rest[count].ID)
			count++
		}
		requests = append(requests, d.addRequest(a, rest[:count], size))
		rest = rest[count:]
	}
	for _, request := range requests {
		if err := d.do(ctx, request); err != nil {
			d.mu.Lock()
			a.abandoned = true
			d.mu.Unlock()
			a.Drop()
			return nil, err
		}
	}
	return a, nil
}

func (d *Queue) addRequest(a *Addition, records []topic.DelayedRecord, size int) *delayRequest {
	var fresh, waiting []topic.DelayedRecord // waiting: their ids are being added
	return &delayRequest{
		size: size,
		move: func() (delayMove, error) {
			if a.abandoned {
				return delayMove{}, nil
			}
			for _, record := range records {
				switch {
				case d.adding[record.ID]:
					waiting = append(waiting, record)
				case d.state.items[record.ID] != nil:
					a.hold(record) // now, so that no other addition drops it first
				default:
					d.adding[record.ID] = true
					fresh = append(fresh, record)
				}
			}
			if len(fresh) == 0 {
				return delayMove{}, nil
			}
			if len(d.state.items)+len(d.adding) > d.config.Pending {
				for _, record := range fresh {
					delete(d.adding, record.ID)
				}
				return delayMove{}, fmt.Errorf("%w: the partition has %d, of at most %d", topic.ErrDelaysFull, len(d.state.items), d.config.Pending)
			}
			return delayMove{kind: delayAdd, producer: a.producer, records: fresh}, nil
		},
		applied: func() {
			a.hold(fresh...)
			a.hold(waiting...)
			d.cache(fresh)
		},
		// After all additions of the entry hold their shared records.
		after: func() {
			if a.abandoned {
				a.drop()
			}
		},
	}
}

// hold makes the addition a holder of records, unless they are settled.
func (a *Addition) hold(records ...topic.DelayedRecord) {
	for _, record := range records {
		if item := a.delays.state.items[record.ID]; item != nil && item.status == unsettled {
			item.holders++
			a.items = append(a.items, item)
		}
	}
}

// cache keeps records that are due soon in memory.
func (d *Queue) cache(records []topic.DelayedRecord) {
	soon := time.Now().Add(cacheWithin).UnixMilli()
	for _, record := range records {
		if item := d.state.items[record.ID]; item != nil && record.Due <= soon && d.state.cached+len(record.Body) <= d.config.CacheBytes/2 {
			item.body = record.Body
			d.state.cached += len(record.Body)
		}
	}
}

// Keep settles the addition of a batch that was appended: its delayed records will be
// released.
func (a *Addition) Keep() {
	a.delays.mu.Lock()
	defer a.delays.mu.Unlock()
	a.keep()
}

func (a *Addition) keep() {
	d := a.delays
	for _, item := range a.items {
		item.holders--
		if item.status == unsettled {
			d.state.keep(item)
			d.settled(&d.settle.kept, item)
		}
	}
	a.items = nil
	d.changed.Wake()
}

// Drop settles the addition of a batch that was not appended and never will be, or of a
// repeat. The original's own addition decides about the original's records: a record
// delayed in the repeat may have been due in the original.
func (a *Addition) Drop() {
	a.delays.mu.Lock()
	defer a.delays.mu.Unlock()
	a.drop()
}

func (a *Addition) drop() {
	d := a.delays
	for _, item := range a.items {
		item.holders--
		if item.status == unsettled && item.holders == 0 {
			d.state.remove(item)
			d.settled(&d.settle.dropped, item)
		}
	}
	a.items = nil
	d.changed.Wake()
}

// Unsure marks the addition of a batch that may or may not have been appended. Resolve
// will settle it.
func (a *Addition) Unsure() {
	a.delays.mu.Lock()
	defer a.delays.mu.Unlock()
	if len(a.items) > 0 {
		a.delays.unsure = append(a.delays.unsure, a)
	}
}

// Resolve settles all unsure additions by asking the target. It is called when the
// target knows the end of its log again. Batches of producers that are not idempotent
// count as appended, so that no record is lost.
func (d *Queue) Resolve() {
	d.mu.Lock()
	unsure := d.unsure
	d.unsure = nil
	d.mu.Unlock()
	for _, a := range unsure {
		if p := a.producer; p == nil || d.target.Committed(p.ID, p.Epoch, p.Sequence) {
			a.Keep()
		} else {
			a.Drop()
		}
	}
}

func (d *Queue) settled(list *[]string, item *delayItem) {
	if d.settle.empty() {
		d.settle.since = time.Now()
	}
	*list = append(*list, item.id)
}
