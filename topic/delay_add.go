package topic

import (
	"context"
	"fmt"
	"time"
)

// Addition is delayed records that are durable, of a batch whose own append is
// under way. One of its methods must be called when that has ended; none blocks.
type Addition struct {
	delays   *Delays
	producer *BatchProducer
	items    []*delayItem
	// abandoned says that whoever added it has left before it was durable.
	abandoned bool
}

// settlement is what became of batches and is not in the log yet.
type settlement struct {
	kept, dropped []string
	since         time.Time
	due           bool // it is written even if nothing else is
}

func (s *settlement) empty() bool { return len(s.kept) == 0 && len(s.dropped) == 0 }

// settleMax is the most records whose settling is written in one entry.
const settleMax = 2048

// take takes at most n records out.
func (s *settlement) take(n int) (taken settlement) {
	kept := min(n, len(s.kept))
	taken.kept, s.kept = s.kept[:kept:kept], s.kept[kept:]
	dropped := min(n-kept, len(s.dropped))
	taken.dropped, s.dropped = s.dropped[:dropped:dropped], s.dropped[dropped:]
	return taken
}

// Add makes the delayed records of a batch durable. One whose id waits already
// is a repeat and is ignored. Errors: ErrDelaysFull; ErrRetry and ctx's error, after
// which the batch must not be appended.
func (d *Delays) Add(ctx context.Context, batch *DelayedBatch) (*Addition, error) {
	a := &Addition{delays: d, producer: batch.Producer}
	var requests []*delayRequest
	for rest := batch.Records; len(rest) > 0; {
		count, size := 0, 0
		for count < len(rest) && (count == 0 || size+len(rest[count].body) <= entryBytes) {
			size += len(rest[count].body) + len(rest[count].ID)
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

func (d *Delays) addRequest(a *Addition, records []DelayedRecord, size int) *delayRequest {
	var fresh, waiting []DelayedRecord // waiting: with an id that is being added
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
					a.hold(record) // now, so that nobody drops it meanwhile
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
				return delayMove{}, fmt.Errorf("%w: the partition has %d, of at most %d", ErrDelaysFull, len(d.state.items), d.config.Pending)
			}
			return delayMove{kind: delayAdd, producer: a.producer, records: fresh}, nil
		},
		applied: func() {
			a.hold(fresh...)
			a.hold(waiting...)
			d.cache(fresh)
		},
		// After all of the entry hold what they share.
		after: func() {
			if a.abandoned {
				a.drop()
			}
		},
	}
}

// hold takes part in deciding about records, unless that was done.
func (a *Addition) hold(records ...DelayedRecord) {
	for _, record := range records {
		if item := a.delays.state.items[record.ID]; item != nil && item.status == unsettled {
			item.holders++
			a.items = append(a.items, item)
		}
	}
}

// cache keeps records in memory that are due soon.
func (d *Delays) cache(records []DelayedRecord) {
	soon := time.Now().Add(cacheWithin).UnixMilli()
	for _, record := range records {
		if item := d.state.items[record.ID]; item != nil && record.Due <= soon && d.state.cached+len(record.body) <= d.config.CacheBytes/2 {
			item.body = record.body
			d.state.cached += len(record.body)
		}
	}
}

// Keep says that the batch was appended: its delayed records will be released.
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
	signal(d.changed)
}

// Drop says that the batch was not appended, and never will be; or that it was a
// repeat of one that had been, whose own addition decides: what was delayed for
// this attempt may have been due for that.
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
	signal(d.changed)
}

// Unsure says that it is not known whether the batch was appended. Resolve will
// find out.
func (a *Addition) Unsure() {
	a.delays.mu.Lock()
	defer a.delays.mu.Unlock()
	if len(a.items) > 0 {
		a.delays.unsure = append(a.delays.unsure, a)
	}
}

// Resolve asks the target about all batches that it is unsure of. It is called
// when the target knows the end of its log again. Batches of producers that are
// not idempotent count as appended, so that nothing is lost.
func (d *Delays) Resolve() {
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

func (d *Delays) settled(list *[]string, item *delayItem) {
	if d.settle.empty() {
		d.settle.since = time.Now()
	}
	*list = append(*list, item.id)
}
