package topic

import (
	"context"
	"fmt"
	"math"
	"time"
)

// How much of its source one read of a view looks at, at whole batches.
const (
	scanBytes   = 8 << 20
	scanOffsets = 10_000
	// scanTime is for filters that are slow.
	scanTime = 200 * time.Millisecond
	// scanStep is how much is read of the source at a time.
	scanStep = 1 << 20
)

// scan collects what a filter lets pass of a partition, from a position on.
//
// Gaps before, between and after visible batches are left out: consumers jump
// over them. See docs/decisions/0021-views-over-hidden-offsets.md.
type scan struct {
	filter   *Filter
	position int64
	maxBytes int
	deadline time.Time

	// data is what is visible, size its length; next is the offset after the
	// last that was looked at, visible that after the last visible batch.
	data          [][]byte
	size          int
	next, visible int64
	// first is the base offset of the first visible batch.
	first int64
	// bytes is how much was looked at.
	bytes int
	// unreadable says which batch could not be unpacked, if one could not.
	unreadable error

	unpacked, kept []byte
	headers        []Header
}

// newScan returns a scan that begins at a position, and ends when it has found
// about maxBytes: a batch that is larger is found alone.
func newScan(filter *Filter, position int64, maxBytes int) *scan {
	return &scan{
		filter: filter, position: position, maxBytes: maxBytes, next: position, visible: position,
		deadline: time.Now().Add(scanTime),
	}
}

// full tells whether it has found enough, or has looked at as much as it may.
func (s *scan) full() bool {
	return s.size > 0 && s.size >= s.maxBytes || s.bytes >= scanBytes || s.next-s.position >= scanOffsets ||
		s.bytes > 0 && !time.Now().Before(s.deadline)
}

// add looks at the batches that follow, until it is full. After an error, an
// ErrCorrupt, the scan has what was before the batch.
func (s *scan) add(batches []Batch) error {
	for _, batch := range batches {
		if s.full() {
			return nil
		}
		if batch.Next() <= s.next {
			continue
		}
		passed, err := s.pass(batch)
		if err != nil {
			return fmt.Errorf("batch at offset %d: %w", batch.Base(), err)
		}
		if len(passed) > 0 {
			if s.size > 0 && s.size+len(passed) > s.maxBytes {
				s.maxBytes = s.size // full, and this batch comes first next time
				return nil
			}
			if s.size == 0 {
				s.first = passed.Base()
			}
			s.data = append(s.data, passed)
			s.size += len(passed)
			s.visible = batch.Next()
		}
		s.bytes += len(batch)
		s.next = batch.Next()
	}
	return nil
}

// pass returns what the filter lets pass of a batch: the batch itself if that is
// all, nil if it is nothing from the position on, and else a batch with the
// rest. Batches of the broker's own markers always pass. A batch that is as it
// was sent, and cannot be unpacked, does not pass: the view goes on after it.
func (s *scan) pass(batch Batch) (Batch, error) {
	if batch.Control() {
		return batch, nil
	}
	if batch.Count() == 0 {
		return nil, nil
	}
	if err := batch.Check(); err != nil {
		return nil, err
	}
	passed, err := s.unpack(batch)
	if err != nil {
		s.filter.records.Add(int64(batch.Count()))
		s.filter.failed.Add(int64(batch.Count()))
		s.unreadable = fmt.Errorf("batch at offset %d: %w", batch.Base(), err)
		return nil, nil
	}
	return passed, nil
}

func (s *scan) unpack(batch Batch) (Batch, error) {
	data, err := decompress(s.unpacked[:0], batch.Compression(), batch[atRecords:])
	if err != nil {
		return nil, err
	}
	if batch.Compression() != CodecNone {
		s.unpacked = data
	}
	return s.rebuild(batch, data)
}

func (s *scan) rebuild(batch Batch, data []byte) (Batch, error) {
	s.kept = s.kept[:0]
	reader := newRecordReader(batch, data)
	reader.withoutHeaders = !s.filter.headers
	reader.slab = s.headers
	count, failed, shown := int32(0), 0, false
	vars := &filterVars{record: &reader.record}
	for reader.next() {
		matches, err := s.filter.match(vars)
		if err != nil {
			failed++
		}
		if matches {
			count++
			shown = shown || reader.record.Offset >= s.position
			s.kept = append(s.kept, reader.raw...)
		}
	}
	s.headers = reader.slab
	if reader.err != nil {
		return nil, reader.err
	}
	s.filter.records.Add(int64(batch.Count()))
	s.filter.matched.Add(int64(count))
	s.filter.failed.Add(int64(failed))
	switch {
	case !shown:
		return nil, nil
	case count == batch.Count():
		return batch, nil
	}
	return batch.withRecords(count, s.kept)
}

// HiddenMarker returns the batch that takes consumers over the offsets from base
// to next-1, which a view hides: a commit marker of no producer at the last of
// them. Clients go on after it and show nothing. A longer gap than a batch can
// cover, 2³¹-1 offsets, is covered in part.
func HiddenMarker(base, next int64, epoch int32) (Batch, error) {
	next = min(next, base+math.MaxInt32)
	return NewBatch([]Record{{
		Offset: next - 1, Timestamp: NoTimestamp,
		Key:   []byte{0, 0, 0, 1},       // version, type: commit
		Value: []byte{0, 0, 0, 0, 0, 0}, // version, epoch of the coordinator
	}}, BatchOptions{Base: base, Next: next, Epoch: epoch, Transactional: true, Control: true})
}

// readView reads what the view shows of a partition, from an offset on. It looks
// at a bounded part of the source: Fetched.Next tells how far it has come.
func (t *Topic) readView(ctx context.Context, p *Partition, offset int64, maxBytes int) (Fetched, error) {
	settings := t.settings.Load()
	filter, ends := settings.filter, p.Ends()
	if settings.broken != nil {
		return Fetched{Ends: ends, Next: offset}, settings.broken
	}
	if offset < ends.Start || offset >= ends.HighWatermark {
		fetched, err := p.read(ctx, offset, maxBytes)
		fetched.Next = offset
		return fetched, err
	}
	if err := t.broker.scans.Acquire(ctx, 1); err != nil {
		return Fetched{Ends: ends, Next: offset}, err
	}
	defer t.broker.scans.Release(1)
	hidden := filter.hiddenOf(p)
	s := newScan(filter, hidden.after(offset, ends.HighWatermark), maxBytes)
	for !s.full() && s.next < ends.HighWatermark {
		source, err := p.read(ctx, s.next, scanStep)
		if err == nil {
			err = s.addPieces(source.Data)
		}
		if err != nil && s.size == 0 {
			return Fetched{Ends: ends, Next: s.next}, err
		}
		if err != nil || len(source.Data) == 0 {
			break // what was found is answered; the next read tells the error
		}
	}
	if s.unreadable != nil {
		t.broker.log.Warn("view passes over records that cannot be unpacked", "view", t.name, "partition", p.String(), "error", s.unreadable)
	}
	if s.size > 0 {
		hidden.add(offset, s.first)
		hidden.add(s.visible, s.next)
	} else {
		hidden.add(offset, s.next)
	}
	return Fetched{Data: s.data, Size: s.size, Next: s.next, Ends: ends}, nil
}

func (s *scan) addPieces(pieces [][]byte) error {
	for _, piece := range pieces {
		batches, err := SplitBatches(piece)
		if err != nil {
			return err
		}
		if err := s.add(batches); err != nil {
			return err
		}
	}
	return nil
}
