package topic

import (
	"container/list"
	"context"
	"fmt"
	"sync"
)

const (
	// coldBytes is how much is read of the log when a consumer is not at the
	// tail, whatever it asks for.
	coldBytes = 2 << 20
	// coldKept bounds the bytes of those reads that are kept, for consumers that
	// go on from there; the last one is kept in any case.
	coldKept = 32 << 20
	// nearBytes is how far before an offset reading may begin, rather than to
	// search for it.
	nearBytes = 1 << 20
)

// Fetched is what a read found.
type Fetched struct {
	// Data has whole batches one after another, in pieces. Read-only.
	Data [][]byte
	// Size is the length of Data.
	Size int
	// Next, of a view, is the offset after the last that was looked at: what is
	// in Data lies before it, and all else from the offset asked for on is
	// hidden. See [HiddenMarker].
	Next int64
	Ends
}

// Ends are the offsets at which a partition begins and ends.
type Ends struct {
	// Start is the first offset that can be read.
	Start int64
	// HighWatermark is the offset after the last durable record.
	HighWatermark int64
	// Epoch is the present leader epoch.
	Epoch int32
}

// read returns batches from the one that holds an offset on; see Topic.Read.
func (p *Partition) read(ctx context.Context, offset int64, maxBytes int) (Fetched, error) {
	fetched := Fetched{Ends: p.Ends()}
	switch {
	case offset < fetched.Start || offset > fetched.HighWatermark:
		return fetched, fmt.Errorf("%w: %d, there are %d to %d", ErrOffsetOutOfRange, offset, fetched.Start, fetched.HighWatermark)
	case offset == fetched.HighWatermark:
		return fetched, nil
	}
	entries := p.tail.from(offset, maxBytes)
	if entries == nil {
		var err error
		if entries, err = p.readLog(ctx, offset); err != nil {
			return fetched, err
		}
	}
	for _, entry := range entries {
		if fetched.Size > 0 && fetched.Size >= maxBytes {
			break
		}
		if len(entry.Data) == 0 {
			continue // a fence
		}
		piece, rest := within(entry.Data, offset, maxBytes-fetched.Size, fetched.Size == 0)
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

// within returns the batches of an entry from the one that holds the offset on,
// as many as fit; with atLeastOne, one in any case. Rest is the length of those
// after them.
func within(data []byte, offset int64, maxBytes int, atLeastOne bool) (piece []byte, rest int) {
	begin := 0
	for begin < len(data) && Batch(data[begin:]).Next() <= offset {
		begin += Batch(data[begin:]).length()
	}
	end := begin
	for end < len(data) {
		length := Batch(data[end:]).length()
		if end+length-begin > maxBytes && !(atLeastOne && end == begin) {
			break
		}
		end += length
	}
	return data[begin:end:end], len(data) - end
}

// readLog returns entries of the log, from the one that holds an offset on.
func (p *Partition) readLog(ctx context.Context, offset int64) ([]Entry, error) {
	run, next := p.broker.cold.at(p, offset)
	if run != nil {
		return run, nil
	}
	if next == 0 {
		var err error
		if next, err = p.nearby(ctx, offset); err != nil {
			return nil, err
		}
	}
	for {
		entries, err := p.log.Read(ctx, next, coldBytes)
		if err != nil {
			return nil, err
		}
		if len(entries) == 0 {
			return nil, fmt.Errorf("read offset %d of %s from entry %d: %w", offset, p, next, ErrNotFound)
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
		if last.Mark.Next > offset {
			p.broker.cold.keep(p, entries)
			return skipTo(entries, offset), nil
		}
		next = last.Sequence + 1
	}
}

// nearby returns an entry at or a little before that of an offset.
func (p *Partition) nearby(ctx context.Context, offset int64) (uint64, error) {
	wanted := func(m Mark) bool { return m.Next > offset }
	before, from := p.index.around(wanted)
	first, last := p.sequences()
	if from == (point{}) {
		from = last
	}
	if before.Sequence >= first && from.Mark.Bytes-before.Mark.Bytes <= nearBytes {
		return before.Sequence + 1, nil
	}
	entry, ok, err := p.index.search(ctx, p.log, first, last.Sequence, wanted)
	if err != nil {
		return 0, err
	}
	if !ok {
		return 0, fmt.Errorf("offset %d of %s: %w", offset, p, ErrNotFound)
	}
	return entry.Sequence, nil
}

// upTo returns the entries up to a sequence: what is after it may not be durable
// yet.
func upTo(entries []Entry, last uint64) []Entry {
	for len(entries) > 1 && entries[len(entries)-1].Sequence > last {
		entries = entries[:len(entries)-1]
	}
	return entries
}

// skipTo returns the entries from the one that holds an offset on.
func skipTo(entries []Entry, offset int64) []Entry {
	for i, entry := range entries {
		if entry.Mark.Next > offset {
			return entries[i:]
		}
	}
	return nil
}

// cold keeps what was last read of logs, so that a consumer that takes less than
// that at a time has it read once.
type cold struct {
	mu    sync.Mutex
	runs  list.List // of coldRun, the newest first
	bytes int64     // of all
}

// coldRun is entries of a partition, without gaps.
type coldRun struct {
	partition *Partition
	entries   []Entry
	bytes     int64
}

// at returns the kept entries from that of an offset on. If there are none, but
// the entry would come next after some, it returns its sequence.
func (c *cold) at(p *Partition, offset int64) (entries []Entry, next uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for e := c.runs.Front(); e != nil; e = e.Next() {
		run := e.Value.(coldRun)
		last := run.entries[len(run.entries)-1]
		switch {
		case run.partition != p || offset < run.entries[0].Mark.Base || offset > last.Mark.Next:
			continue
		case offset == last.Mark.Next:
			next = last.Sequence + 1
			continue
		}
		c.runs.MoveToFront(e)
		return skipTo(run.entries, offset), 0
	}
	return nil, next
}

func (c *cold) keep(p *Partition, entries []Entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	run := coldRun{partition: p, entries: entries}
	for _, entry := range entries {
		run.bytes += sizeOf(entry)
	}
	c.runs.PushFront(run)
	for c.bytes += run.bytes; c.bytes > coldKept && c.runs.Len() > 1; {
		c.remove(c.runs.Back())
	}
}

func (c *cold) remove(e *list.Element) { c.bytes -= c.runs.Remove(e).(coldRun).bytes }

// forget drops what is kept of a partition.
func (c *cold) forget(p *Partition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for e := c.runs.Front(); e != nil; {
		next := e.Next()
		if e.Value.(coldRun).partition == p {
			c.remove(e)
		}
		e = next
	}
}
