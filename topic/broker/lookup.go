package broker

import (
	"context"

	"github.com/sluice-project/sluice/topic"
)

// find returns the first entry whose mark is wanted, from memory if possible; see
// index.search for the conditions on wanted. reading or removing is held.
func (p *Partition) find(ctx context.Context, wanted func(topic.Mark) bool) (topic.Entry, bool, error) {
	first, last := p.sequences()
	if first > last.Sequence || !wanted(last.Mark) {
		return topic.Entry{}, false, nil
	}
	if entry, ok := p.tail.first(wanted); ok {
		return entry, true, nil
	}
	return p.index.search(ctx, p.log, first, last.Sequence, wanted)
}

// OffsetAt returns the offset and the timestamp of the first record whose timestamp, in
// milliseconds since the epoch, is at least timestamp; -1 and -1 if there is none.
func (p *Partition) OffsetAt(ctx context.Context, timestamp int64) (offset, at int64, err error) {
	p.reading.RLock()
	defer p.reading.RUnlock()
	return p.offsetAt(ctx, timestamp)
}

func (p *Partition) offsetAt(ctx context.Context, timestamp int64) (offset, at int64, err error) {
	for from := int64(0); ; {
		entry, ok, err := p.find(ctx, func(m topic.Mark) bool { return m.MaxTimestamp >= timestamp && m.Next > from })
		if err != nil || !ok {
			return -1, topic.NoTimestamp, err
		}
		// No such record in it: the mark's time is that of a record without a timestamp.
		if offset, at, err = p.recordAt(ctx, entry, timestamp); err != nil || offset >= 0 {
			return offset, at, err
		}
		from = entry.Mark.Next
	}
}

// MaxTimestamp returns the offset and the timestamp of the first record with the
// highest timestamp; -1 and -1 if there is none.
func (p *Partition) MaxTimestamp(ctx context.Context) (offset, at int64, err error) {
	p.reading.RLock()
	defer p.reading.RUnlock()
	first, last := p.sequences()
	offset, at, err = p.offsetAt(ctx, last.Mark.MaxTimestamp)
	if offset >= 0 || err != nil || !p.log.Compacted() {
		return offset, at, err
	}
	highest, err := p.highestTimestamp(ctx, first, last.Sequence)
	if err != nil || highest < 0 {
		return -1, topic.NoTimestamp, err
	}
	return p.offsetAt(ctx, highest)
}

// highestTimestamp returns the highest timestamp of all records, by reading them: marks have those
// that compaction has removed too.
func (p *Partition) highestTimestamp(ctx context.Context, first, last uint64) (highest int64, err error) {
	highest = topic.NoTimestamp
	start := p.Ends().Start
	for at := first; at <= last; {
		entries, err := p.log.Read(ctx, at, coldBytes)
		if err != nil || len(entries) == 0 {
			return highest, err
		}
		for _, entry := range entries {
			batches, err := p.checked(entry)
			if err != nil {
				return highest, err
			}
			for _, b := range batches {
				if !b.Control() && b.Count() > 0 && b.Next() > start {
					highest = max(highest, b.MaxTimestamp())
				}
			}
		}
		at = entries[len(entries)-1].Sequence + 1
	}
	return highest, nil
}

// recordAt returns the first record of an entry with at least that timestamp.
func (p *Partition) recordAt(ctx context.Context, entry topic.Entry, timestamp int64) (offset, at int64, err error) {
	batches, err := p.checked(entry)
	if err != nil {
		return -1, topic.NoTimestamp, err
	}
	start := p.Ends().Start
	for _, b := range batches {
		if b.MaxTimestamp() < timestamp || b.Next() <= start || b.Control() || b.Count() == 0 {
			continue
		}
		if b.LogAppendTime() {
			return max(b.Base(), start), b.MaxTimestamp(), nil
		}
		offset, at := int64(-1), int64(topic.NoTimestamp)
		err := p.broker.unpacker.Unpack(ctx, b.Compression(), b[topic.RecordsAt:], func(data []byte) error {
			reader := topic.NewRecordReader(b, data)
			reader.WithoutHeaders = true
			for offset < 0 && reader.Next() {
				if record := &reader.Record; record.Timestamp >= timestamp && record.Offset >= start {
					offset, at = record.Offset, record.Timestamp
				}
			}
			return reader.Err
		})
		switch {
		case ctx.Err() != nil:
			return -1, topic.NoTimestamp, ctx.Err()
		case err != nil: // unreadable as the producer sent it: it counts as a whole
			return max(b.Base(), start), b.MaxTimestamp(), nil //nolint:nilerr // see above
		case offset >= 0:
			return offset, at, nil
		}
	}
	return -1, topic.NoTimestamp, nil
}

// EndOfEpoch returns the highest leader epoch up to the given one that has records,
// and the offset after its last. The present epoch ends at the high watermark. An
// epoch whose records are gone, with all before them, ends at the first remaining
// record. For an epoch that was not reached it returns -1 and -1.
func (p *Partition) EndOfEpoch(ctx context.Context, epoch int32) (int32, int64, error) {
	p.reading.RLock()
	defer p.reading.RUnlock()
	ends := p.Ends()
	if epoch < 0 || epoch > ends.Epoch {
		return -1, -1, nil
	}
	if epoch == ends.Epoch {
		return epoch, ends.HighWatermark, nil
	}
	after, ok, err := p.find(ctx, func(m topic.Mark) bool { return m.Epoch > epoch })
	if err != nil {
		return -1, -1, err
	}
	end := ends.HighWatermark
	if ok {
		end = after.Mark.Base
	}
	found, ok, err := p.find(ctx, func(m topic.Mark) bool { return m.Next >= end })
	switch {
	case err != nil:
		return -1, -1, err
	case !ok || found.Mark.Epoch > epoch:
		return epoch, end, nil
	}
	return found.Mark.Epoch, end, nil
}
