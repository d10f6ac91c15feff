package topic

import "context"

// find returns the first entry whose mark is wanted, from memory if it is there;
// see index.search for what may be wanted.
func (p *Partition) find(ctx context.Context, wanted func(Mark) bool) (Entry, bool, error) {
	first, last := p.sequences()
	if first > last.Sequence || !wanted(last.Mark) {
		return Entry{}, false, nil
	}
	if entry, ok := p.tail.first(wanted); ok {
		return entry, true, nil
	}
	return p.index.search(ctx, p.log, first, last.Sequence, wanted)
}

// OffsetAt returns the first record whose timestamp, in milliseconds since the
// epoch, is at least that, and its timestamp; -1 and -1 if there is none.
func (p *Partition) OffsetAt(ctx context.Context, timestamp int64) (offset, at int64, err error) {
	for from := int64(0); ; {
		entry, ok, err := p.find(ctx, func(m Mark) bool { return m.MaxTimestamp >= timestamp && m.Next > from })
		if err != nil || !ok {
			return -1, NoTimestamp, err
		}
		// None in it: its mark's time is one of a record that has none.
		if offset, at, err = p.recordAt(entry, timestamp); err != nil || offset >= 0 {
			return offset, at, err
		}
		from = entry.Mark.Next
	}
}

// MaxTimestamp returns the first record with the highest timestamp, and that
// timestamp; -1 and -1 if there is none.
func (p *Partition) MaxTimestamp(ctx context.Context) (offset, at int64, err error) {
	_, last := p.sequences()
	return p.OffsetAt(ctx, last.Mark.MaxTimestamp)
}

// recordAt returns the first record of an entry with at least that timestamp.
func (p *Partition) recordAt(entry Entry, timestamp int64) (offset, at int64, err error) {
	batches, err := p.checked(entry)
	if err != nil {
		return -1, NoTimestamp, err
	}
	start := p.Ends().Start
	for _, b := range batches {
		if b.MaxTimestamp() < timestamp || b.Next() <= start {
			continue
		}
		if b.LogAppendTime() {
			return max(b.Base(), start), b.MaxTimestamp(), nil
		}
		for record, err := range b.Records() {
			if err != nil {
				return -1, NoTimestamp, err
			}
			if record.Timestamp >= timestamp && record.Offset >= start {
				return record.Offset, record.Timestamp, nil
			}
		}
	}
	return -1, NoTimestamp, nil
}

// EndOfEpoch returns the highest leader epoch up to the given one that has
// records, and the offset after its last. The present epoch ends at the high
// watermark. One whose records are gone, with all before them, ends where
// those that are left begin. -1 and -1 for an epoch that was not reached.
func (p *Partition) EndOfEpoch(ctx context.Context, epoch int32) (int32, int64, error) {
	ends := p.Ends()
	if epoch < 0 || epoch > ends.Epoch {
		return -1, -1, nil
	}
	if epoch == ends.Epoch {
		return epoch, ends.HighWatermark, nil
	}
	after, ok, err := p.find(ctx, func(m Mark) bool { return m.Epoch > epoch })
	if err != nil {
		return -1, -1, err
	}
	end := ends.HighWatermark
	if ok {
		end = after.Mark.Base
	}
	found, ok, err := p.find(ctx, func(m Mark) bool { return m.Next >= end })
	switch {
	case err != nil:
		return -1, -1, err
	case !ok || found.Mark.Epoch > epoch:
		return epoch, end, nil
	}
	return found.Mark.Epoch, end, nil
}
