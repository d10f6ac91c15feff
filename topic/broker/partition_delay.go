package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/delay"
)

// appendDelaying appends batches of a topic whose records may be delayed. The delayed
// records become durable in a log of their own first, and count only if the batch is
// appended.
func (p *Partition) appendDelaying(ctx context.Context, batches []topic.Batch, usual time.Duration) (*Appending, error) {
	if a := p.again(batches); a != nil {
		return a, nil // its delayed records were added with the first attempt
	}
	adding, cancel := context.WithTimeoutCause(ctx, delayAddMax, fmt.Errorf("%w: the delayed records of %s cannot be read or written", topic.ErrRetry, p))
	defer cancel()
	var additions []*delay.Addition
	delays, err := p.delays.await(adding)
	if err == nil {
		additions, err = delays.AddAll(adding, p.broker.unpacker, batches, time.Now(), usual)
	}
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			err = context.Cause(adding)
		}
		return nil, err
	}
	a, err := p.append(ctx, batches, 0, additions...)
	if err != nil { // it has no offset, so it was not appended
		for _, addition := range additions {
			addition.Drop()
		}
	}
	return a, err
}

// settle reports the result of an append to its delayed records.
func (a *Appending) settle(err error) {
	for _, addition := range a.additions {
		switch {
		case err == nil && a.repeated:
			addition.Drop() // they were added with the first attempt
		case err == nil:
			addition.Keep()
		case errors.Is(err, topic.ErrNoTopic):
			addition.Drop()
		default:
			addition.Unsure()
		}
	}
}

// delayTarget is the partition as its delayed records see it.
type delayTarget struct{ partition *Partition }

// AppendReleased appends records that are due.
func (t delayTarget) AppendReleased(ctx context.Context, batch topic.Batch, number int64) error {
	p, began := t.partition, time.Now()
	a, err := p.append(ctx, []topic.Batch{batch}, number)
	if err == nil {
		_, _, err = a.Wait(ctx)
	}
	p.broker.spans.Delivered(began, p.topic.Name(), p.number, int(batch.Count()), len(batch), err)
	return err
}

// LastReleased returns the number of the last release in the log. It waits for appends
// in flight; a failed append cannot land after the fence that ends a recovery.
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
	if err := p.allowsLocked(); err != nil {
		return 0, err
	}
	return p.landed.Mark.Released, nil
}

// Committed reports whether the batch of an idempotent producer that ends with a
// sequence number was appended.
func (t delayTarget) Committed(producer int64, epoch int16, lastSequence int32) bool {
	p := t.partition
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.producers.committed(producer, epoch, lastSequence)
}

// delayedHere is Delayed for the partitions that this broker leads.
func (b *Broker) delayedHere(name string, limit int) ([]delay.Waiting, error) {
	t, err := b.Topic(name)
	if err != nil || t.source != nil {
		return nil, err
	}
	var infos []delay.Waiting
	for _, p := range t.all() {
		if delays := p.delays.get(); delays != nil {
			infos = append(infos, delays.List(p.number, limit)...)
		}
	}
	return delay.FirstDue(infos, limit), nil
}

// cancelHere is CancelDelayed for the partitions that this broker leads.
func (b *Broker) cancelHere(ctx context.Context, name, id string) error {
	t, err := b.Topic(name)
	if err != nil {
		return err
	}
	err = fmt.Errorf("delayed record %q of %s: %w", id, name, topic.ErrNotFound)
	if t.source != nil {
		return err
	}
	for _, p := range t.all() {
		if errors.Is(p.Ready(), topic.ErrNotLeader) || !p.delays.begun() {
			continue
		}
		opening, cancel := context.WithTimeoutCause(ctx, delayAddMax, fmt.Errorf("%w: the delayed records of %s are being read", topic.ErrRetry, p))
		delays, waited := p.delays.await(opening)
		if waited != nil && opening.Err() != nil {
			waited = context.Cause(opening)
		}
		cancel()
		if errors.Is(waited, topic.ErrNotLeader) {
			continue
		}
		if waited != nil {
			return waited
		}
		if canceled := delays.Cancel(ctx, id); !errors.Is(canceled, topic.ErrNotFound) {
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
