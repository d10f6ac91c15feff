package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-project/sluice/lifecycle"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/compact"
)

// A partition is recovered when its broker begins to lead it, and when an append
// was fenced or not answered: the log decides, not the broker's memory.

const (
	recoverWaitMin = 10 * time.Millisecond
	recoverWaitMax = 5 * time.Second
	// corruptWait is the wait after a log was found to be corrupt or missing: it does not
	// repair itself, but an operator may repair it.
	corruptWait = time.Minute
	// missingWait is the backoff from which on a missing log is an error.
	missingWait = 100 * time.Millisecond
	// replayBytes is how much is read of the log at a time.
	replayBytes = 512 << 10
)

// failLocked gives up all appends in flight, and starts a recovery unless the broker
// is stopping. It is called with the lock held, and releases it.
func (p *Partition) failLocked(cause error) {
	failed := p.giveUp()
	for _, a := range failed {
		p.producers.giveUp(a.batches)
	}
	if p.state == open {
		p.state, p.trouble = recovering, cause
		p.beginRecoveryLocked(0)
	}
	p.mu.Unlock()

	p.broker.log.Warn("append failed", "partition", p.String(), "error", cause)
	for _, a := range failed {
		a.finish(fmt.Errorf("%w: %w", topic.ErrRetry, cause))
	}
}

// giveUp removes and returns all appends that are not durable.
func (p *Partition) giveUp() []*Appending {
	s := &p.appends
	var failed []*Appending
	for _, f := range s.flights {
		failed = append(failed, f.appends...)
	}
	failed = append(failed, s.pending...)
	s.flights, s.pending, s.flightBytes, s.pendingBytes = nil, nil, 0, 0
	s.broken++
	p.madeRoom()
	return failed
}

// recover reads the log until it knows its end.
func (p *Partition) recover(ctx context.Context) error {
	for wait := recoverWaitMin; ; wait = min(2*wait, recoverWaitMax) {
		err := p.load(ctx)
		switch {
		case err == nil:
			p.opened()
			return nil
		case ctx.Err() != nil:
			return nil //nolint:nilerr // it does not lead any more, or the broker stops
		case errors.Is(err, topic.ErrClosed):
			return nil // the broker stops
		case errors.Is(err, topic.ErrNoLog) && wait < missingWait: // if the topic is being deleted, the catalog will say so
		case errors.Is(err, topic.ErrNotLeader): // a later leader wrote to it
			p.resign(err)
			p.broker.look()
			return nil
		case errors.Is(err, topic.ErrFenced): // an earlier entry landed after all: read again
		default:
			if errors.Is(err, topic.ErrCorrupt) || errors.Is(err, topic.ErrNoLog) {
				err = fmt.Errorf("log %s: %w", p.logName(), err)
				wait = corruptWait
			}
			p.mu.Lock()
			p.trouble = err
			p.mu.Unlock()
			p.broker.log.Error("partition cannot be read", "partition", p.String(), "error", err, "again_in", wait)
		}
		if !lifecycle.Sleep(ctx, nil, wait) {
			return nil
		}
	}
}

// load sets the partition's state from its log, and opens it.
func (p *Partition) load(ctx context.Context) error {
	if err := p.broker.opening.Acquire(ctx, 1); err != nil {
		return err
	}
	defer p.broker.opening.Release(1)
	// A pass of an earlier term has ended before this one knows what counts.
	if err := p.compacting.Acquire(ctx, 1); err != nil {
		return err
	}
	defer p.compacting.Release(1)
	return p.loadLog(ctx)
}

// loadLog is load, of a log that is not compacted now.
func (p *Partition) loadLog(ctx context.Context) error {
	p.removing.Lock()
	defer p.removing.Unlock()
	if err := p.openLog(ctx); err != nil {
		return err
	}
	first, last, err := p.log.Ends(ctx)
	if err != nil {
		return err
	}
	begin, end := topic.Mark{}, point{Mark: topic.Mark{MaxTimestamp: topic.NoTimestamp}}
	if last > 0 {
		if begin, end, err = p.marksOfEnds(ctx, first, last); err != nil {
			return err
		}
		p.index.add(topic.Entry{Sequence: first, Mark: begin}) // for retention
	}
	if err := p.claimedAfter(end.Mark.Epoch); err != nil {
		return err
	}
	snapshot, lost, err := loadSnapshot(ctx, p, end)
	if err != nil {
		return err
	}
	known, replayed, err := p.known(ctx, snapshot, first, last)
	if err != nil {
		return err
	}
	// If the log has lost its end and the metadata has not, new records must not get
	// offsets below the start.
	end.Mark.Next = max(end.Mark.Next, p.Ends().Start)
	if end, err = p.fence(ctx, end); err != nil {
		return err
	}
	if lost { // now the end of the log is certain
		if err := p.saveSnapshot(ctx, snapshot); err != nil {
			return err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state != recovering || ctx.Err() != nil {
		return ctx.Err()
	}
	p.state, p.loaded, p.trouble = open, true, nil
	p.first, p.start = max(p.first, first, 1), max(p.start, begin.Base)
	p.last, p.landed, p.next = end, end, end.Mark.Next
	p.snapshots.bytes = replayed
	known.after(p.producers)
	p.producers = known
	p.watchers.signal()
	return nil
}

// known returns the producers of the log, and what its entries count for until the next
// snapshot.
func (p *Partition) known(ctx context.Context, snapshot producersSnapshot, first, last uint64) (known producers, replayed int64, err error) {
	if known, err = snapshot.restored(p.broker.config.ProducersMax); err == nil {
		replayed, err = p.replay(ctx, &known, snapshot, first, last)
	}
	if err == nil {
		err = p.findHanging(ctx, &known)
	}
	return known, replayed, err
}

// openLog opens the partition's log, which exists: it was made before the partition was claimed.
// Another broker may have compacted it since this one led it. compacting and removing are held.
func (p *Partition) openLog(ctx context.Context) error {
	if p.log != nil {
		return p.refreshLog(ctx)
	}
	log, err := compact.Open(ctx, p.broker.store, p.names())
	if err != nil {
		return err
	}
	p.log = log
	return nil
}

// refreshLog makes the log read the clean generation that counts. compacting and removing are held.
func (p *Partition) refreshLog(ctx context.Context) error {
	made, err := p.log.Refresh(ctx)
	if made == nil || err != nil {
		return err
	}
	p.reading.Lock() // a reader that began before may still add entries of the generation before
	defer p.reading.Unlock()
	p.useLocked(made)
	return nil
}

// fence writes entries without records until no entry that was in flight, of another
// leader or of this one before a failure, can still land: such an entry names one of the
// sequences that the fence takes. Another leader had one in flight, right
// after the log's end. A log that no broker can have written to needs no fence.
func (p *Partition) fence(ctx context.Context, end point) (point, error) {
	p.mu.Lock()
	if err := ctx.Err(); err != nil { // another broker may have the epoch by now
		p.mu.Unlock()
		return end, err
	}
	handed := p.last.Sequence
	p.epoch = max(p.epoch, end.Mark.Epoch)
	end.Mark.Epoch = p.epoch
	p.mu.Unlock()
	needed := end.Sequence > 0 || end.Mark.Epoch > 1
	for first := true; end.Sequence < handed || first && needed; first = false {
		end.Mark.Base = end.Mark.Next
		end.Sequence++
		p.mu.Lock()
		p.last.Sequence = max(p.last.Sequence, end.Sequence)
		p.mu.Unlock()
		done := make(chan error, 1)
		p.log.Append(topic.Entry{Sequence: end.Sequence, Mark: end.Mark}, func(err error) { done <- err })
		select {
		case err := <-done:
			if err != nil {
				return end, err
			}
		case <-ctx.Done():
			return end, ctx.Err()
		}
	}
	return end, nil
}

// marksOfEnds returns the marks of the log's first and last entry.
func (p *Partition) marksOfEnds(ctx context.Context, first, last uint64) (topic.Mark, point, error) {
	if first > last {
		return topic.Mark{}, point{}, fmt.Errorf("%w: the log's last entry, %d, was removed from outside", topic.ErrCorrupt, last)
	}
	begin, err := topic.ReadEntry(ctx, p.log, first)
	if err != nil {
		return topic.Mark{}, point{}, err
	}
	end, err := topic.ReadEntry(ctx, p.log, last)
	if err != nil {
		return topic.Mark{}, point{}, err
	}
	return begin.Mark, point{end.Sequence, end.Mark}, nil
}

// replay reads the entries after a snapshot, for their producers and to fill the tail
// for consumers that keep up. It returns what they count for until the next snapshot.
func (p *Partition) replay(ctx context.Context, known *producers, snapshot producersSnapshot, first, last uint64) (replayed int64, err error) {
	now := time.Now().UnixMilli()
	p.tail.clear()
	for at := max(first, snapshot.Sequence+1); at <= last; {
		entries, err := p.log.Read(ctx, at, replayBytes)
		if err != nil {
			return 0, err
		}
		if len(entries) == 0 {
			return 0, fmt.Errorf("read entry %d of %d: %w", at, last, topic.ErrNotFound)
		}
		for _, entry := range entries {
			if entry.Sequence > last {
				break
			}
			batches, err := p.checked(entry)
			if err != nil {
				return 0, err
			}
			for _, b := range batches {
				if b.Base() >= snapshot.Next {
					known.add(b, now)
				}
			}
			replayed += costOf(entry)
			p.index.add(entry)
			p.tail.push(entry)
		}
		at = entries[len(entries)-1].Sequence + 1
	}
	return replayed, nil
}

// checked returns the batches of an entry that was read from the log, if they are as
// they were written.
func (p *Partition) checked(entry topic.Entry) ([]topic.Batch, error) {
	batches, err := topic.SplitBatches(entry.Data)
	if err == nil && (entry.Sum == 0 || entry.Sum != topic.SumOf(batches...)) { // if not, the log has checked every byte
		for _, b := range batches {
			if err = b.Check(); err != nil {
				break
			}
		}
	}
	if err != nil {
		p.broker.log.Error("corrupt data in the log", "partition", p.String(), "entry", entry.Sequence, "error", err)
		return nil, fmt.Errorf("entry %d of %s: %w", entry.Sequence, p, err)
	}
	return batches, nil
}

// close refuses appends, waits for those in flight, and then ends the holder of the
// delayed records, which has to know the results of these appends.
func (p *Partition) close(ctx context.Context) error {
	p.mu.Lock()
	p.state = closed
	p.term.end()
	p.flush()
	p.madeRoom()
	last := p.appends.last()
	p.mu.Unlock()
	if last != nil {
		_, _, _ = last.Wait(ctx) // its waiters get the error
	}
	p.watchers.signal()
	return p.endDelays(ctx)
}

// drop releases the memory of a deleted topic's partition.
func (p *Partition) drop() {
	p.mu.Lock()
	p.state = deleted
	p.term.end()
	failed := p.giveUp()
	p.mu.Unlock()
	for _, a := range failed {
		a.finish(topic.ErrNoTopic)
	}
	_ = p.endDelays(context.Background()) // it has bounds of its own
	p.snapshots.settle()
	p.awaitCompaction()
	p.tail.clear()
	p.broker.cold.forget(p)
	p.watchers.signal()
}
