package topic

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// appendDelaying appends batches of a topic whose records may be delayed: what
// is due later is durable elsewhere first, and counts only if the batch is
// appended.
func (p *Partition) appendDelaying(ctx context.Context, batches []Batch, usual time.Duration) (*Appending, error) {
	if a := p.again(batches); a != nil {
		return a, nil // what it delays was added with the first
	}
	adding, cancel := context.WithTimeoutCause(ctx, delayAddMax, fmt.Errorf("%w: the delayed records of %s cannot be read or written", ErrRetry, p))
	defer cancel()
	var additions []*Addition
	delays, err := p.delays.await(adding)
	if err == nil {
		additions, err = delays.addAll(adding, batches, time.Now(), usual)
	}
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			err = context.Cause(adding)
		}
		return nil, err
	}
	a, err := p.append(ctx, batches, 0, additions...)
	if err != nil { // it has no place, so it was not appended
		for _, addition := range additions {
			addition.Drop()
		}
	}
	return a, err
}

// addAll replaces each batch by what is due now, and makes the rest durable.
func (d *Delays) addAll(ctx context.Context, batches []Batch, now time.Time, usual time.Duration) ([]*Addition, error) {
	var additions []*Addition
	err := func() error {
		for i, batch := range batches {
			kept, later, err := d.config.Split(batch, now, usual)
			if err != nil {
				return err
			}
			batches[i] = kept
			if later == nil {
				continue
			}
			addition, err := d.Add(ctx, later)
			if err != nil {
				return err
			}
			additions = append(additions, addition)
		}
		return nil
	}()
	if err != nil {
		for _, addition := range additions {
			addition.Drop()
		}
	}
	return additions, err
}

// settle tells the delayed records of an append what became of it.
func (a *Appending) settle(err error) {
	for _, addition := range a.additions {
		switch {
		case err == nil && a.repeated:
			addition.Drop() // they were added with the first
		case err == nil:
			addition.Keep()
		case errors.Is(err, ErrNoTopic):
			addition.Drop()
		default:
			addition.Unsure()
		}
	}
}

// delayTarget is the partition as its delayed records see it.
type delayTarget struct{ partition *Partition }

// AppendReleased appends records that are due.
func (t delayTarget) AppendReleased(ctx context.Context, batch Batch, number int64) error {
	a, err := t.partition.append(ctx, []Batch{batch}, number)
	if err != nil {
		return err
	}
	_, _, err = a.Wait(ctx)
	return err
}

// LastReleased returns the number of the last release that is in the log. It
// waits for what is under way; what a failure left behind cannot come after
// the fence that ends a recovery.
func (t delayTarget) LastReleased(ctx context.Context) (int64, error) {
	p := t.partition
	p.mu.Lock()
	underWay := p.appends.last()
	p.mu.Unlock()
	if underWay != nil {
		if _, _, err := underWay.Wait(ctx); ctx.Err() != nil {
			return 0, err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.allows(); err != nil {
		return 0, err
	}
	return p.landed.Mark.Released, nil
}

// Committed tells whether the batch of an idempotent producer that ends with a
// sequence number was appended.
func (t delayTarget) Committed(producer int64, epoch int16, lastSequence int32) bool {
	p := t.partition
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.producers.committed(producer, epoch, lastSequence)
}

// Delayed returns records of a topic that wait, at most limit, those first that
// are due first; in a cluster those of the partitions that this broker leads.
// ErrNoTopic.
func (b *Broker) Delayed(_ context.Context, name string, limit int) ([]DelayedInfo, error) {
	t, err := b.Topic(name)
	if err != nil || t.source != nil {
		return nil, err
	}
	var infos []DelayedInfo
	for _, p := range t.all() {
		if delays := p.delays.get(); delays != nil {
			infos = append(infos, delays.list(p.number, limit)...)
		}
	}
	return firstDue(infos, limit), nil
}

// CancelDelayed takes a record out before it is due, durably. ErrNoTopic;
// ErrNotFound if none of that id waits: it may have appeared. ErrRetry if the
// delayed records cannot be read; ErrNotLeader if it may be in a partition that
// another broker leads.
func (b *Broker) CancelDelayed(ctx context.Context, name, id string) error {
	t, err := b.Topic(name)
	if err != nil {
		return err
	}
	err = fmt.Errorf("delayed record %q of %s: %w", id, name, ErrNotFound)
	if t.source != nil {
		return err
	}
	for _, p := range t.all() {
		if ready := p.Ready(); errors.Is(ready, ErrNotLeader) {
			err = fmt.Errorf("delayed record %q: %w", id, ready)
			continue
		}
		if !p.delays.begun() {
			continue
		}
		opening, cancel := context.WithTimeoutCause(ctx, delayAddMax, fmt.Errorf("%w: the delayed records of %s are being read", ErrRetry, p))
		delays, waited := p.delays.await(opening)
		if waited != nil && opening.Err() != nil {
			waited = context.Cause(opening)
		}
		cancel()
		if waited != nil {
			return waited
		}
		if canceled := delays.Cancel(ctx, id); !errors.Is(canceled, ErrNotFound) {
			return canceled
		}
	}
	return err
}

func (d *delaying) begun() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.run != nil && !d.paused
}
