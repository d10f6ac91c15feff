package broker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/sluice-project/sluice/lifecycle"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/catalog"
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
	// sweepEvery is in how many of these rounds one node looks for generations of no partition.
	sweepEvery = 40
)

// errChanged reports that the oldest entries were removed during a compaction.
var errChanged = fmt.Errorf("%w: oldest entries were removed", topic.ErrRetry)

// mayCompact returns an ErrInvalidSetting if settings ask for compaction and a node of the cluster,
// dead or alive, does not know it: it would not find what a pass has moved, nor place it.
func (b *Broker) mayCompact(settings topic.Settings) error {
	if !settings.Compact || b.cluster.Alone() {
		return nil
	}
	for _, n := range b.registry.all() {
		if !n.Compacts {
			return fmt.Errorf("%w %s: node %d has a version that cannot compact topics of a cluster: want delete, or upgrade that node first",
				topic.ErrInvalidSetting, topic.SettingCleanup, n.ID)
		}
	}
	return nil
}

// keepCompacting compacts what is due, every compactEvery until ctx ends.
func (b *Broker) keepCompacting(ctx context.Context) error {
	ticker := time.NewTicker(min(compactEvery, b.config.RetentionInterval))
	defer ticker.Stop()
	for round := 0; ; round++ {
		select {
		case <-ticker.C:
			if round%sweepEvery == 0 {
				if err := b.sweep(ctx); err != nil && ctx.Err() == nil {
					b.log.Warn("clean generations of no partition not deleted, trying again later", "error", err)
				}
			}
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

// sweep deletes the clean generations that no record names: one may be made late, for a leader that
// was replaced or a topic that was deleted since it had named it. One node does it.
func (b *Broker) sweep(ctx context.Context) error {
	lister, several := b.store.(topic.Lister)
	if !several || !b.first() {
		return nil
	}
	logs, err := lister.Logs(ctx)
	logs = slices.DeleteFunc(logs, func(log string) bool { return !strings.HasPrefix(log, catalog.CleanPrefix) })
	if err != nil || len(logs) == 0 {
		return err
	}
	// A generation is named before it is made, so these were named by now, and those that count still are.
	meta := b.store.Meta()
	if err := meta.Sync(ctx); err != nil {
		return err
	}
	named, err := compact.AllGenerations(ctx, meta)
	if err != nil {
		return err
	}
	for _, log := range logs {
		if !named[log] {
			err = errors.Join(err, b.store.DeleteLog(ctx, log))
		}
	}
	return err
}

// awaitCompaction waits until a partition that has ended is not compacted any more.
func (p *Partition) awaitCompaction() {
	_ = p.compacting.Acquire(context.Background(), 1) // it does not fail
	p.compacting.Release(1)
}

// compact compacts the partition if that is due.
func (p *Partition) compact(ctx context.Context) error {
	if !p.compacting.TryAcquire(1) { // it is being opened
		return nil
	}
	defer p.compacting.Release(1)
	ctx, end := context.WithCancel(ctx)
	defer end()
	if !p.beginPass(end) {
		return nil
	}
	if err := p.settleLog(ctx); err != nil {
		return p.asRetry(err)
	}
	settings := p.topic.Settings()
	if !settings.Compact || p.broker.mayCompact(settings) != nil || p.broker.moving.serves() != nil {
		return nil
	}
	pass, from, err := p.due(ctx, settings, time.Now())
	if pass == nil || err != nil {
		return p.asRetry(err)
	}
	began := time.Now()
	bytes, err := p.clean(ctx, pass, from)
	before := pass.Last.Bytes - pass.Before
	p.broker.spans.Compacted(began, p.topic.Name(), p.number, before, max(before-bytes, 0), err)
	return p.asRetry(err)
}

// settleLog removes what an earlier pass has left, here or on another node.
func (p *Partition) settleLog(ctx context.Context) error {
	p.removing.Lock()
	err := p.refreshLog(ctx)
	p.removing.Unlock()
	if err != nil {
		return err
	}
	return p.log.Settle(ctx)
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
	return bytes, errors.Join(err, p.log.Settle(ctx))
}

// asRetry returns the error of a pass as an ErrRetry if retention, or the end of the term, came in
// between.
func (p *Partition) asRetry(err error) error {
	switch {
	case err == nil:
	case errors.Is(err, compact.ErrTrimmed):
		return errors.Join(errChanged, err)
	case !p.open(), errors.Is(err, context.Canceled):
		return fmt.Errorf("%w: it is not led here any more: %w", topic.ErrRetry, err)
	}
	return err
}

// beginPass has the end of the term call end, unless it has ended.
func (p *Partition) beginPass(end func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.term.endPass = end
	return p.state == open
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
		return nil
	}
}

// writeClean writes what stays into the next clean generation, which has so many bytes.
func (p *Partition) writeClean(ctx context.Context, pass *compact.Pass) (made topic.Log, bytes int64, err error) {
	nodes := p.broker.there(p.targets())
	if len(nodes) < topic.Majority(len(p.targets())) {
		return nil, 0, fmt.Errorf("%w: of its nodes, %v, only %v are alive", topic.ErrRetry, p.targets(), nodes)
	}
	made, err = p.log.Begin(ctx, p.leaderGuard, nodes, pass.LastSequence+1-pass.Entries())
	if err != nil {
		return nil, 0, err
	}
	bytes, err = pass.Copy(ctx, func(entry topic.Entry) error {
		done := make(chan error, 1)
		made.Append(entry, func(err error) { done <- err })
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
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
	p.useLocked(made)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.first = first
	p.producers.forgetAborted(pass.Last.Next)
	p.broker.metrics.compactions.Inc()
	p.broker.metrics.compacted.Add(float64(max(pass.Last.Bytes-pass.Before-bytes, 0)))
	return nil
}

// useLocked reads a clean generation from now on, and forgets what was read of the one before.
// reading is held.
func (p *Partition) useLocked(made topic.Log) {
	p.log.Use(made)
	p.tail.clear()
	p.index.clear()
	p.broker.cold.forget(p)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trimmed = point{}
}

// forgetAborted forgets the aborted transactions that have ended before an offset: their records are
// gone.
func (t *transactions) forgetAborted(before int64) {
	t.aborted = slices.DeleteFunc(t.aborted, func(a Aborted) bool { return a.Last < before })
}
