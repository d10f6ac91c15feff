package compact

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluice-project/sluice/topic"
)

const (
	// readBytes is how much is read of the log at a time.
	readBytes = 1 << 20
	// joinBytes is the least data of an entry that is written, but for the last of an epoch.
	joinBytes = 512 << 10
	// shareBytes is how much of the source stands for at most one entry. A batch that is rebuilt may
	// grow: one of 70 bytes to 320.
	shareBytes = joinBytes / 5
	// splitsMost is how many entries may end because of their timestamps.
	splitsMost = 16
)

// ErrTrimmed reports that entries were removed during a pass, which must begin again.
var ErrTrimmed = errors.New("entries were removed in the meantime")

// errEntries reports that what stays has more entries than Entries returns.
var errEntries = errors.New("compaction has made more entries than it has sequences for")

// Pass compacts the oldest entries of a log.
type Pass struct {
	Options
	Source   topic.Log
	Unpacker *topic.Unpacker
	// First and Last are the marks of the log's first entry and of the last one that is compacted,
	// FirstSequence and LastSequence their sequences.
	First, Last                 topic.Mark
	FirstSequence, LastSequence uint64
	// Before is how many bytes the log had before its first entry.
	Before int64
	// From is the offset before which an earlier pass has compacted.
	From int64
	// Span is how far the timestamps of an entry that is made may be apart, in milliseconds, so that
	// retention finds old ones; 0 for no limit. At most splitsMost entries end for it.
	Span int64
	// MaxKeys is how many keys it knows; default MaxKeys.
	MaxKeys int
	// Pace is called after each read. Its error ends the pass.
	Pace func(context.Context) error

	keys keys
}

// Next returns the offset before which everything is compacted after the pass.
func (p *Pass) Next() int64 { return p.keys.next }

// Find reads the records from From on, beginning with the entry of a sequence, and finds the last
// one of each key. It lowers Last if there are more keys than MaxKeys.
func (p *Pass) Find(ctx context.Context, from uint64) error {
	if p.MaxKeys == 0 {
		p.MaxKeys = MaxKeys
	}
	p.keys = keys{last: map[keySum]int64{}, most: p.MaxKeys, next: p.From}
	err := p.each(ctx, from, func(e topic.Entry, batches []topic.Batch) error {
		for _, b := range batches {
			if err := p.find(ctx, b); err != nil {
				return err
			}
		}
		if p.keys.full {
			p.Last, p.LastSequence = e.Mark, e.Sequence
		}
		return nil
	})
	if !p.keys.full {
		p.keys.next = p.Last.Next
	}
	return err
}

func (p *Pass) find(ctx context.Context, b topic.Batch) error {
	if b.Control() || b.Next() <= p.keys.next || p.Aborted(b) {
		p.keys.skip(b)
		return nil
	}
	err := p.Unpacker.Unpack(ctx, b.Compression(), b[topic.RecordsAt:], func(data []byte) error { return p.keys.add(b, data) })
	if isUnreadable(err) {
		p.keys.skip(b)
		return nil
	}
	return err
}

// isUnreadable reports whether a batch is not readable as its producer sent it: it stays as it is.
func isUnreadable(err error) bool {
	return errors.Is(err, topic.ErrCorrupt) || errors.Is(err, topic.ErrUncompressedSize)
}

// Entries returns how many entries Copy writes: the last has the sequence LastSequence. They are
// never more than it reads.
func (p *Pass) Entries() uint64 {
	most := (p.Last.Bytes-p.Before)/shareBytes + int64(p.Last.Epoch-p.First.Epoch) + 2
	if p.Span > 0 {
		most += splitsMost
	}
	return min(uint64(most), p.LastSequence-p.FirstSequence+1)
}

// Copy passes what stays, as entries, to write. Their Mark.Bytes count from the first of them on.
func (p *Pass) Copy(ctx context.Context, write func(topic.Entry) error) (bytes int64, err error) {
	j := joiner{write: write, left: p.Entries(), sequence: p.LastSequence - p.Entries() + 1, mark: p.First, since: p.First.MaxTimestamp}
	if p.Span > 0 {
		j.span, j.splits = p.Span, splitsMost
	}
	j.mark.Next, j.mark.Bytes = p.First.Base, 0
	cleaner := newCleaner(p.Options, &p.keys)
	err = p.each(ctx, p.FirstSequence, func(e topic.Entry, batches []topic.Batch) error {
		if err := j.begin(e); err != nil {
			return err
		}
		for _, b := range batches {
			stays, err := p.clean(ctx, cleaner, b)
			if err != nil {
				return err
			}
			j.add(b, stays)
		}
		return j.end(e)
	})
	if err == nil {
		err = j.finish(p.Last)
	}
	return j.mark.Bytes, err
}

func (p *Pass) clean(ctx context.Context, cleaner *Cleaner, b topic.Batch) (stays topic.Batch, err error) {
	err = p.Unpacker.Unpack(ctx, b.Compression(), b[topic.RecordsAt:], func(data []byte) (err error) {
		stays, err = cleaner.clean(b, data)
		return err
	})
	if isUnreadable(err) {
		return b, nil
	}
	return stays, err
}

// each calls use with the entries from a sequence up to LastSequence.
func (p *Pass) each(ctx context.Context, from uint64, use func(topic.Entry, []topic.Batch) error) error {
	for from <= p.LastSequence {
		entries, err := p.Source.Read(ctx, from, readBytes)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if e.Sequence > p.LastSequence {
				return nil
			}
			if e.Sequence != from {
				return fmt.Errorf("%w: entry %d", ErrTrimmed, from)
			}
			batches, err := topic.SplitBatches(e.Data)
			for _, b := range batches {
				err = errors.Join(err, b.Check())
			}
			if err != nil {
				return fmt.Errorf("entry %d: %w", e.Sequence, err)
			}
			if err := use(e, batches); err != nil {
				return err
			}
			from++
		}
		if len(entries) == 0 {
			return fmt.Errorf("%w: entry %d", ErrTrimmed, from)
		}
		if err := p.Pace(ctx); err != nil {
			return err
		}
	}
	return nil
}

// joiner joins batches to entries.
type joiner struct {
	write    func(topic.Entry) error
	left     uint64 // entries
	sequence uint64 // of the next entry
	// mark is that of the last entry, and then of the one that is being made.
	mark topic.Mark
	data []byte
	// since is the highest timestamp where the entry that is being made begins, which is at most span
	// before that of its end while splits are left.
	since, span int64
	splits      int
	// dropped is the last batch before which nothing stays since the end of data.
	dropped topic.Batch
}

// begin is called before the batches of an entry.
func (j *joiner) begin(e topic.Entry) error {
	var err error
	switch {
	case e.Mark.Epoch != j.mark.Epoch:
		err = j.close()
	case j.splits > 0 && e.Mark.MaxTimestamp-j.since > j.span && len(j.data) > 0:
		j.splits--
		err = j.flush()
	}
	if len(j.data) == 0 {
		j.since = e.Mark.MaxTimestamp
	}
	return err
}

func (j *joiner) add(b, stays topic.Batch) {
	if stays == nil {
		j.dropped = b
		return
	}
	j.data = append(j.data, stays...)
	j.mark.Next, j.dropped = stays.Next(), nil
}

// end is called after the batches of an entry.
func (j *joiner) end(e topic.Entry) error {
	j.mark.Epoch, j.mark.MaxTimestamp, j.mark.Released = e.Mark.Epoch, e.Mark.MaxTimestamp, e.Mark.Released
	if len(j.data) < joinBytes {
		return nil
	}
	return j.flush()
}

// close ends an epoch, or all: its last offset stays, in a batch without records if need be. That is
// of no producer, whose transaction would otherwise begin again where the log is read.
func (j *joiner) close() error {
	if b := j.dropped; b != nil {
		empty, err := topic.NewBatch(nil, topic.BatchOptions{Base: b.Base(), Next: b.Next(), Epoch: b.Epoch()})
		if err != nil {
			return err
		}
		j.add(b, empty)
	}
	if len(j.data) == 0 {
		return nil
	}
	return j.flush()
}

// flush writes an entry.
func (j *joiner) flush() error {
	if j.left == 0 {
		return errEntries
	}
	j.mark.Bytes += int64(len(j.data))
	if err := j.write(topic.Entry{Sequence: j.sequence, Mark: j.mark, Data: j.data}); err != nil {
		return err
	}
	j.sequence++
	j.left--
	j.mark.Base, j.data = j.mark.Next, nil
	return nil
}

// finish writes the rest, and takes the sequences that are left by entries without data.
func (j *joiner) finish(last topic.Mark) error {
	if err := j.close(); err != nil {
		return err
	}
	bytes := j.mark.Bytes
	j.mark = last
	j.mark.Base, j.mark.Bytes = last.Next, bytes
	for ; j.left > 0; j.left-- {
		if err := j.write(topic.Entry{Sequence: j.sequence, Mark: j.mark}); err != nil {
			return err
		}
		j.sequence++
	}
	return nil
}
