package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-project/sluice/topic"
)

// expired returns the condition on a mark for its entry to be kept, by a topic's
// settings: everything before the first such entry may be removed. The mark's time is
// that of the newest record so far, so that an old timestamp between new ones removes
// nothing.
func expired(settings topic.Settings, last topic.Mark, now time.Time) (kept func(topic.Mark) bool, any bool) {
	after, size := int64(topic.NoTimestamp), int64(0)
	if settings.Retention >= 0 {
		after = now.Add(-settings.Retention).UnixMilli()
	}
	if settings.RetentionBytes >= 0 {
		size = last.Bytes - settings.RetentionBytes
	}
	return func(m topic.Mark) bool { return m.MaxTimestamp >= after && m.Bytes > size }, after > topic.NoTimestamp || size > 0
}

// retain removes the entries that a partition need not keep. The last entry stays,
// since it marks where the partition ends.
func (p *Partition) retain(ctx context.Context, now time.Time) error {
	settings := p.topic.Settings()
	if !settings.Delete || p.Ready() != nil { // it is led elsewhere, or being opened: that takes long, and what else holds removing does not
		return nil
	}
	p.removing.Lock()
	defer p.removing.Unlock()
	first, last := p.sequences()
	ends, readable := p.Ends(), p.Ready() == nil
	if !readable || ends.Start == ends.HighWatermark {
		return nil
	}
	kept, any := expired(settings, last.Mark, now)
	if !any {
		return nil
	}
	// Usually everything is kept: then nothing need be read.
	if _, from := p.index.around(kept); from.Sequence == first {
		return nil
	}
	entry, ok, err := p.find(ctx, kept)
	if err != nil {
		return err
	}
	if !ok { // nothing need be kept
		return p.trim(ctx, last.Sequence, last.Mark.Next)
	}
	return p.trim(ctx, entry.Sequence, entry.Mark.Base)
}

// trim removes the entries before a sequence, and makes the records before an offset
// unreadable. removing is held.
func (p *Partition) trim(ctx context.Context, sequence uint64, offset int64) error {
	p.mu.Lock()
	p.start = max(p.start, offset)
	p.producers.trim(p.start)
	first := p.first
	p.mu.Unlock()
	if sequence <= first {
		return nil
	}
	// The record of a producer's batches must survive the batches. If the disk has no
	// space for it, freeing space is more important.
	if err := p.storeProducers(ctx); err != nil && !errors.Is(err, topic.ErrRetry) && !errors.Is(err, topic.ErrFull) {
		return err
	}
	if err := p.log.Trim(ctx, sequence); err != nil {
		return err
	}
	p.index.trim(sequence)
	p.mu.Lock()
	p.first = max(p.first, sequence)
	p.mu.Unlock()
	return nil
}

// DeleteRecords removes the records before an offset, -1 for all, durably, and returns
// the first offset that is left. ErrOffsetOutOfRange if the offset is above the high
// watermark; ErrCompacted if the topic is compacted and not deleted too.
func (p *Partition) DeleteRecords(ctx context.Context, before int64) (start int64, err error) {
	if !p.topic.Settings().Delete {
		return p.Ends().Start, fmt.Errorf("%w: %s is %s, want compact,delete", topic.ErrCompacted, topic.SettingCleanup, "compact")
	}
	p.removing.Lock()
	defer p.removing.Unlock()
	ends := p.Ends()
	if before == -1 {
		before = ends.HighWatermark
	}
	if before < 0 || before > ends.HighWatermark {
		return ends.Start, topic.ErrOffsetOutOfRange
	}
	if before <= ends.Start {
		return ends.Start, nil
	}
	if err := p.broker.saveStart(ctx, p, before); err != nil {
		return ends.Start, err
	}
	_, last := p.sequences()
	entry, ok, err := p.find(ctx, func(m topic.Mark) bool { return m.Next > before })
	if err != nil {
		return ends.Start, err
	}
	sequence := last.Sequence
	if ok {
		sequence = entry.Sequence
	}
	err = p.trim(ctx, sequence, before)
	return p.Ends().Start, err
}

// retainAll applies the retention of all partitions.
func (b *Broker) retainAll(ctx context.Context, now time.Time) {
	for _, p := range b.partitions() {
		if err := p.retain(ctx, now); err != nil && ctx.Err() == nil {
			b.log.Warn("old records not removed, trying again later", "partition", p.String(), "error", err)
		}
	}
}

// keepRetaining calls retainAll every RetentionInterval until ctx ends.
func (b *Broker) keepRetaining(ctx context.Context) error {
	ticker := time.NewTicker(b.config.RetentionInterval)
	defer ticker.Stop()
	for {
		select {
		case now := <-ticker.C:
			b.retainAll(ctx, now)
			b.expireRemoved(ctx, now)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
