package broker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/sluice-project/sluice/lifecycle"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/compact"
)

// Compaction, by one goroutine, of one partition after the other: package compact says what it does
// to a log. See docs/decisions/0083-clean-generations.md.
const (
	// compactEvery is how often the broker looks for partitions to compact.
	compactEvery = 15 * time.Second
	// leastDirty is the least that compaction has not seen of a partition for it to begin, unless
	// max.compaction.lag.ms is over.
	leastDirty = 1 << 20
)

// errChanged reports that the oldest entries were removed during a compaction.
var errChanged = fmt.Errorf("%w: oldest entries were removed", topic.ErrRetry)

// mayCompact returns an ErrInvalidSetting if settings ask for compaction and it is not possible.
func (b *Broker) mayCompact(settings topic.Settings) error {
	if settings.Compact && !b.cluster.Alone() {
		return fmt.Errorf("%w %s: topics of a cluster cannot be compacted yet: want delete", topic.ErrInvalidSetting, topic.SettingCleanup)
	}
	return nil
}

// keepCompacting compacts what is due, every compactEvery until ctx ends.
func (b *Broker) keepCompacting(ctx context.Context) error {
	ticker := time.NewTicker(min(compactEvery, b.config.RetentionInterval))
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			for _, p := range b.partitions() {
				if err := p.compact(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, topic.ErrRetry) {
					b.metrics.compactionFailures.Inc()
					b.log.Warn("partition not compacted, trying again later", "partition", p.String(), "error", err)
				}
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// awaitCompaction waits until a partition that has ended is not compacted any more.
func (p *Partition) awaitCompaction() {
	p.compacting.Lock()
	defer p.compacting.Unlock()
}

// compact compacts the partition if that is due.
func (p *Partition) compact(ctx context.Context) error {
	p.compacting.Lock()
	defer p.compacting.Unlock()
	if !p.open() {
		return nil
	}
	if err := p.log.Settle(ctx); err != nil { // of an earlier process too
		return err
	}
	settings := p.topic.Settings()
	if !settings.Compact {
		return nil
	}
	pass, from, err := p.due(ctx, settings, time.Now())
	if pass == nil || err != nil {
		return err
	}
	began := time.Now()
	bytes, err := p.clean(ctx, pass, from)
	before := pass.Last.Bytes - pass.Before
	p.broker.spans.Compacted(began, p.topic.Name(), p.number, before, max(before-bytes, 0), err)
	return asRetry(err)
}

// clean makes a pass, and returns how many bytes it has left: all, with an error.
func (p *Partition) clean(ctx context.Context, pass *compact.Pass, from uint64) (int64, error) {
	all := pass.Last.Bytes - pass.Before
	if err := pass.Find(ctx, from); err != nil {
		return all, err
	}
	made, bytes, err := p.writeClean(ctx, pass)
	if err == nil {
		err = p.useClean(ctx, pass, made, bytes)
	}
	if err != nil {
		bytes = all
	}
	return bytes, errors.Join(err, p.log.Settle(context.WithoutCancel(ctx)))
}

// asRetry returns the error of a pass as an ErrRetry if retention came in between.
func asRetry(err error) error {
	if errors.Is(err, compact.ErrTrimmed) {
		return errors.Join(errChanged, err)
	}
	return err
}

func (p *Partition) open() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state == open
}

// due returns the pass that is due, nil for none, and the entry with the first record that no
// earlier pass has seen.
func (p *Partition) due(ctx context.Context, settings topic.Settings, now time.Time) (*compact.Pass, uint64, error) {
	p.removing.Lock()
	defer p.removing.Unlock()
	first, last, err := p.compactable(ctx, settings, now)
	if err != nil || last.Sequence < first {
		return nil, 0, err
	}
	record := p.log.Record()
	from := max(record.Last+1, first)
	if partly := record.Next < record.Mark.Next; partly {
		entry, ok, err := p.find(ctx, func(m topic.Mark) bool { return m.Next > record.Next })
		if err != nil || !ok {
			return nil, 0, err
		}
		from = max(entry.Sequence, first)
	} else if from > last.Sequence {
		return nil, 0, nil
	}
	before, err := p.bytesBefore(ctx, first)
	if err != nil {
		return nil, 0, err
	}
	clean := max(record.Mark.Bytes-before, 0)
	dirty := last.Mark.Bytes - before - clean
	enough := dirty >= leastDirty && float64(dirty) > settings.DirtyRatio*float64(dirty+clean)
	if !enough && record.Next >= record.Mark.Next {
		if late, err := p.isLate(ctx, from, last.Sequence, now.Add(-settings.MaxCompactionLag), settings); err != nil || !late {
			return nil, 0, err
		}
	}
	begin, err := topic.ReadEntry(ctx, p.log, first)
	if err != nil {
		return nil, 0, err
	}
	return &compact.Pass{
		Span: spanOf(settings), Options: compact.Options{
			Now: now.UnixMilli(), DeleteRetention: settings.DeleteRetention.Milliseconds(),
			Aborted: p.abortedFrom(0, last.Mark.Next).has,
		},
		Source: p.log, Unpacker: p.broker.unpacker,
		First: begin.Mark, FirstSequence: first, Last: last.Mark, LastSequence: last.Sequence,
		Before: before, From: record.Next, Pace: p.pace(),
	}, from, nil
}

// spansOfRetention is how many entries, at least, compaction leaves of what retention keeps by time.
const spansOfRetention = 8

// spanOf returns how far timestamps in an entry may be apart, in milliseconds; 0 for any.
func spanOf(settings topic.Settings) int64 {
	if !settings.Delete || settings.Retention < 0 {
		return 0
	}
	return max(settings.Retention.Milliseconds()/spansOfRetention, 1)
}

// compactable returns the first entry and the last one that may be compacted: it has no record of
// an open transaction, nor one that is younger than settings allow.
func (p *Partition) compactable(ctx context.Context, settings topic.Settings, now time.Time) (first uint64, last point, err error) {
	first, last = p.sequences()
	stable, young := p.Ends().LastStable, int64(math.MaxInt64)
	if settings.MinCompactionLag > 0 {
		young = now.Add(-settings.MinCompactionLag).UnixMilli()
	}
	excluded, ok, err := p.find(ctx, func(m topic.Mark) bool { return m.Next > stable || m.MaxTimestamp > young })
	if err != nil || !ok {
		return first, last, err
	}
	if excluded.Sequence <= first {
		return first, point{}, nil
	}
	entry, err := topic.ReadEntry(ctx, p.log, excluded.Sequence-1)
	return first, point{entry.Sequence, entry.Mark}, err
}

// isLate reports whether the first batch from an entry on, up to another one, is from before a time.
func (p *Partition) isLate(ctx context.Context, from, to uint64, before time.Time, settings topic.Settings) (bool, error) {
	if settings.MaxCompactionLag == math.MaxInt64 {
		return false, nil
	}
	entries, err := p.log.Read(ctx, from, nearBytes)
	if err != nil {
		return false, err
	}
	for _, entry := range entries {
		if entry.Sequence <= to && len(entry.Data) > 0 {
			return topic.Batch(entry.Data).MaxTimestamp() < before.UnixMilli(), nil
		}
	}
	return false, nil
}

// pace returns what lets a pass work for at most half of the time.
func (p *Partition) pace() func(context.Context) error {
	began := time.Now()
	return func(ctx context.Context) error {
		if !lifecycle.Sleep(ctx, nil, time.Since(began)) {
			return ctx.Err()
		}
		began = time.Now()
		if !p.open() {
			return fmt.Errorf("%w: it is not led here any more", topic.ErrRetry)
		}
		return nil
	}
}

// writeClean writes what stays into the next clean generation, which has so many bytes.
func (p *Partition) writeClean(ctx context.Context, pass *compact.Pass) (made topic.Log, bytes int64, err error) {
	made, err = p.log.Begin(ctx, p.leaderGuard, p.targets(), pass.LastSequence+1-pass.Entries())
	if err != nil {
		return nil, 0, err
	}
	bytes, err = pass.Copy(ctx, func(entry topic.Entry) error {
		done := make(chan error, 1)
		made.Append(entry, func(err error) { done <- err })
		return <-done
	})
	return made, bytes, err
}

// useClean makes a clean generation count, and reads it from then on.
func (p *Partition) useClean(ctx context.Context, pass *compact.Pass, made topic.Log, bytes int64) error {
	p.removing.Lock()
	defer p.removing.Unlock()
	if first, _ := p.sequences(); first != pass.FirstSequence {
		return errChanged
	}
	// The record of a producer's batches must survive the batches.
	if err := p.storeProducers(ctx); err != nil {
		return err
	}
	if err := p.log.Commit(ctx, p.leaderGuard, made, pass.LastSequence, pass.Last, bytes, pass.Next()); err != nil {
		return err
	}
	first := pass.LastSequence + 1 - pass.Entries()
	p.reading.Lock()
	defer p.reading.Unlock()
	p.log.Use(made)
	p.tail.clear()
	p.index.clear()
	p.broker.cold.forget(p)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.first, p.trimmed = first, point{}
	p.producers.forgetAborted(pass.Last.Next)
	p.broker.metrics.compactions.Inc()
	p.broker.metrics.compacted.Add(float64(max(pass.Last.Bytes-pass.Before-bytes, 0)))
	return nil
}

// forgetAborted forgets the aborted transactions that have ended before an offset: their records are
// gone.
func (t *transactions) forgetAborted(before int64) {
	t.aborted = slices.DeleteFunc(t.aborted, func(a Aborted) bool { return a.Last < before })
}
