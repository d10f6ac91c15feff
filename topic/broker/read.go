package broker

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/view"
)

const (
	// coldLeast and coldBytes bound how much is read of the log when a consumer is not at the tail: what it asks for, so that of many partitions
	// nothing is read that would have to be forgotten before it is asked for.
	coldLeast = 128 << 10
	coldBytes = 2 << 20
	// coldKept bounds the memory for those reads, which is kept for consumers that
	// continue from there; the last read is kept in any case.
	coldKept = 32 << 20
	// nearBytes is how far before an offset reading may start, to save a search.
	nearBytes = 1 << 20
)

// Fetched is the result of a read.
type Fetched struct {
	// Data holds whole batches one after another, in pieces. Read-only.
	Data [][]byte
	// Run has Data, if that was read from the log. Release it, at most once, when Data is no longer in use.
	Run *Run
	// Size is the length of Data.
	Size int
	// Next, of a view, is the offset after the last one scanned: all records from the
	// offset asked for up to Next that are not in Data are hidden. See [view.HiddenMarker].
	Next int64
	// Aborted, of a read of committed records, has the aborted transactions in Data.
	Aborted []Aborted
	Ends
}

// Ends are the offsets at which a partition begins and ends.
type Ends struct {
	// Start is the first offset that can be read.
	Start int64
	// HighWatermark is the offset after the last durable record.
	HighWatermark int64
	// LastStable is the offset of the first record whose transaction is open; without one
	// it is the high watermark.
	LastStable int64
	// Epoch is the present leader epoch.
	Epoch int32
}

// read returns batches, starting with the one that holds an offset; see Topic.Read.
func (p *Partition) read(ctx context.Context, offset int64, maxBytes int) (Fetched, error) {
	p.reading.RLock()
	defer p.reading.RUnlock()
	ends := p.Ends()
	return p.readBefore(ctx, ends, ends.HighWatermark, offset, maxBytes)
}

// readCommitted is read up to the last stable offset.
func (p *Partition) readCommitted(ctx context.Context, offset int64, maxBytes int) (Fetched, error) {
	p.reading.RLock()
	defer p.reading.RUnlock()
	ends := p.Ends()
	fetched, err := p.readBefore(ctx, ends, ends.LastStable, offset, maxBytes)
	if n := len(fetched.Data); n > 0 {
		p.mu.Lock()
		fetched.Aborted = p.producers.abortedIn(offset, lastOf(fetched.Data[n-1]).Next())
		p.mu.Unlock()
	}
	return fetched, err
}

// lastOf returns the last of whole batches.
func lastOf(data []byte) topic.Batch {
	for at := 0; ; {
		length := topic.Batch(data[at:]).Length()
		if at+length >= len(data) {
			return topic.Batch(data[at:])
		}
		at += length
	}
}

// readStable is read up to the last stable offset of ends, with the aborted transactions among
// what was read.
func (p *Partition) readStable(ctx context.Context, ends Ends, offset int64, maxBytes int) (Fetched, abortedSet, error) {
	p.reading.RLock()
	defer p.reading.RUnlock()
	fetched, err := p.readBefore(ctx, ends, ends.LastStable, offset, maxBytes)
	return fetched, p.abortedFrom(offset, ends.LastStable), err
}

// readBefore is read for the batches before an offset, at which one begins. reading is held.
func (p *Partition) readBefore(ctx context.Context, ends Ends, before, offset int64, maxBytes int) (Fetched, error) {
	fetched := Fetched{Ends: ends}
	switch {
	case offset < fetched.Start || offset > fetched.HighWatermark:
		return fetched, fmt.Errorf("%w: %d, there are %d to %d", topic.ErrOffsetOutOfRange, offset, fetched.Start, fetched.HighWatermark)
	case offset >= before:
		return fetched, nil
	}
	entries := p.tail.from(offset, maxBytes)
	if entries == nil {
		var err error
		if fetched.Run, err = p.readLog(ctx, offset, maxBytes); err != nil {
			return fetched, err
		}
		entries = skipTo(fetched.Run.entries, offset)
	}
	for _, entry := range entries {
		if fetched.Size > 0 && fetched.Size >= maxBytes {
			break
		}
		if len(entry.Data) == 0 {
			continue // a fence
		}
		piece, rest := within(entry.Data, offset, before, maxBytes-fetched.Size, fetched.Size == 0)
		if len(piece) > 0 {
			fetched.Data = append(fetched.Data, piece)
			fetched.Size += len(piece)
		}
		if rest > 0 {
			break // a batch of the next entry might fit, and would leave a gap
		}
	}
	return fetched, nil
}

// within returns the batches of an entry, starting with the one that holds the offset and
// before another offset, as many as fit; with atLeastOne, at least one. Rest is the length
// of those after them.
func within(data []byte, offset, before int64, maxBytes int, atLeastOne bool) (piece []byte, rest int) {
	begin := 0
	for begin < len(data) && topic.Batch(data[begin:]).Next() <= offset {
		begin += topic.Batch(data[begin:]).Length()
	}
	end := begin
	for end < len(data) && topic.Batch(data[end:]).Base() < before {
		length := topic.Batch(data[end:]).Length()
		if end+length-begin > maxBytes && !(atLeastOne && end == begin) {
			break
		}
		end += length
	}
	return data[begin:end:end], len(data) - end
}

// readLog returns entries of the log, with the one that holds an offset.
func (p *Partition) readLog(ctx context.Context, offset int64, maxBytes int) (*Run, error) {
	if run := p.broker.cold.at(p, offset); run != nil {
		return run, nil
	}
	next, err := p.nearby(ctx, offset)
	if err != nil {
		return nil, err
	}
	for {
		entries, err := p.log.Read(ctx, next, min(max(maxBytes, coldLeast), coldBytes))
		if err != nil {
			return nil, err
		}
		if len(entries) == 0 {
			return nil, fmt.Errorf("read offset %d of %s from entry %d: %w", offset, p, next, topic.ErrNotFound)
		}
		_, landed := p.sequences()
		entries = upTo(entries, landed.Sequence)
		for _, entry := range entries {
			if _, err := p.checked(entry); err != nil {
				return nil, err
			}
			p.index.add(entry)
		}
		last := entries[len(entries)-1]
		p.index.read(last)
		if last.Mark.Next > offset {
			// Entries follow each other without gaps of offsets.
			if skipTo(entries, offset)[0].Mark.Base > offset && p.Ends().Start <= offset {
				return nil, fmt.Errorf("%w: what %s had at offset %d was moved by another leader", topic.ErrRetry, p, offset)
			}
			return p.broker.cold.keep(p, entries), nil
		}
		next = last.Sequence + 1
	}
}

// nearby returns the entry that holds an offset, or one a little before it.
func (p *Partition) nearby(ctx context.Context, offset int64) (uint64, error) {
	wanted := func(m topic.Mark) bool { return m.Next > offset }
	before, from := p.index.around(wanted)
	first, last := p.sequences()
	if from == (point{}) {
		from = last
	}
	if before.Sequence >= first && (before.Mark.Next == offset || from.Mark.Bytes-before.Mark.Bytes <= nearBytes) {
		return before.Sequence + 1, nil
	}
	entry, ok, err := p.index.search(ctx, p.log, first, last.Sequence, wanted)
	if err != nil {
		return 0, err
	}
	if !ok {
		return 0, fmt.Errorf("offset %d of %s: %w", offset, p, topic.ErrNotFound)
	}
	return entry.Sequence, nil
}

// upTo returns the entries up to a sequence: later ones may not be durable yet.
func upTo(entries []topic.Entry, last uint64) []topic.Entry {
	for len(entries) > 1 && entries[len(entries)-1].Sequence > last {
		entries = entries[:len(entries)-1]
	}
	return entries
}

// skipTo returns the entries, starting with the one that holds an offset.
func skipTo(entries []topic.Entry, offset int64) []topic.Entry {
	for i, entry := range entries {
		if entry.Mark.Next > offset {
			return entries[i:]
		}
	}
	return nil
}

// cold caches the last reads of logs, so that a consumer that takes less at a time has
// each part of the log read once.
type cold struct {
	mu    sync.Mutex
	runs  list.List // of *Run, the newest first
	bytes int64     // of all runs
}

// Run is a sequence of a partition's entries, without gaps, as it was read from the log.
type Run struct {
	partition *Partition
	entries   []topic.Entry
	bytes     int64
	// users are the cache, and each reader that has not left.
	users atomic.Int32
}

// Release ends the use of a run, or of nil: when the last user has left, its memory is used again. If one never does, it is left to
// the collector.
func (r *Run) Release() {
	if r != nil && r.users.Add(-1) == 0 {
		r.entries[0].Block.Free()
	}
}

// at returns the cached run with the entry that holds an offset, for one more user.
func (c *cold) at(p *Partition, offset int64) *Run {
	c.mu.Lock()
	defer c.mu.Unlock()
	for e := c.runs.Front(); e != nil; e = e.Next() {
		run := e.Value.(*Run)
		if run.partition == p && offset >= run.entries[0].Mark.Base && offset < run.entries[len(run.entries)-1].Mark.Next {
			c.runs.MoveToFront(e)
			run.users.Add(1)
			return run
		}
	}
	return nil
}

// keep caches a read, which it returns for a user. It takes the place of the one that it continues: the consumer has read that
// to its end, and one that is behind it in the same partition reads again what it needs.
func (c *cold) keep(p *Partition, entries []topic.Entry) *Run {
	c.mu.Lock()
	defer c.mu.Unlock()
	for e := c.runs.Front(); e != nil; e = e.Next() {
		if run := e.Value.(*Run); run.partition == p && run.entries[len(run.entries)-1].Sequence+1 == entries[0].Sequence {
			c.remove(e)
			break
		}
	}
	run := &Run{partition: p, entries: entries}
	run.users.Store(2)
	for _, entry := range entries {
		run.bytes += sizeOf(entry)
	}
	c.runs.PushFront(run)
	for c.bytes += run.bytes; c.bytes > coldKept && c.runs.Len() > 1; {
		c.remove(c.runs.Back())
	}
	return run
}

func (c *cold) remove(e *list.Element) {
	run := c.runs.Remove(e).(*Run)
	c.bytes -= run.bytes
	run.Release()
}

// forget drops a partition's cached entries.
func (c *cold) forget(p *Partition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for e := c.runs.Front(); e != nil; {
		next := e.Next()
		if e.Value.(*Run).partition == p {
			c.remove(e)
		}
		e = next
	}
}

// abortedFrom returns the aborted transactions with records from an offset on and before
// another.
func (p *Partition) abortedFrom(from, before int64) abortedSet {
	p.mu.Lock()
	defer p.mu.Unlock()
	return newAbortedSet(p.producers.abortedIn(from, before))
}

// readView reads the view's records of a partition, starting at an offset. It scans a
// bounded part of the source: Fetched.Next is the offset where it stopped. Records of
// transactions are shown once these are committed.
func (t *Topic) readView(ctx context.Context, p *Partition, offset int64, maxBytes int) (Fetched, error) {
	settings := t.settings.Load()
	filter, ends := settings.filter, p.Ends()
	if settings.broken != nil {
		return Fetched{Ends: ends, Next: offset}, settings.broken
	}
	if offset < ends.Start || offset >= ends.LastStable {
		fetched, err := p.readCommitted(ctx, offset, maxBytes)
		fetched.Next = offset
		return fetched, err
	}
	if err := t.broker.scans.Acquire(ctx, 1); err != nil {
		return Fetched{Ends: ends, Next: offset}, err
	}
	defer t.broker.scans.Release(1)
	hidden := filter.HiddenOf(p)
	s := view.NewScan(filter, t.broker.unpacker, hidden.After(offset, ends.HighWatermark), maxBytes)
	for !s.Full() && s.Next < ends.LastStable {
		source, aborted, err := p.readStable(ctx, ends, s.Next, view.ScanStep)
		if err == nil {
			s.Hides = aborted.has
			err = s.AddPieces(ctx, source.Data)
		}
		if err != nil && s.Size == 0 {
			return Fetched{Ends: ends, Next: s.Next}, err
		}
		if err != nil || len(source.Data) == 0 {
			break // return what was found; the next read returns the error
		}
	}
	if s.Unreadable != nil {
		t.broker.log.Warn("view passes over records that cannot be unpacked", "view", t.name, "partition", p.String(), "error", s.Unreadable)
	}
	if s.Size > 0 {
		hidden.Add(offset, s.First)
		hidden.Add(s.Visible, s.Next)
	} else {
		hidden.Add(offset, s.Next)
	}
	return Fetched{Data: s.Data, Size: s.Size, Next: s.Next, Ends: ends}, nil
}
