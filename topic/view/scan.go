package view

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/sluice-project/sluice/topic"
)

// How much of its source one read of a view looks at: whole batches, but for
// scanTime, which ends at a record.
const (
	scanBytes   = 8 << 20
	scanOffsets = 10_000
	// scanTime is for filters that are slow.
	scanTime = 200 * time.Millisecond
	// ScanStep is how much is read of the source at a time.
	ScanStep = 1 << 20
)

// Scan collects what a filter lets pass of a partition, from a position on.
//
// Gaps before, between and after visible batches are left out: consumers jump
// over them. See docs/decisions/0021-views-over-hidden-offsets.md.
type Scan struct {
	filter   *Filter
	unpacker *topic.Unpacker
	position int64
	maxBytes int
	deadline time.Time

	// Data is what is visible, size its length; next is the offset after the
	// last that was looked at, visible that after the last visible batch.
	Data          [][]byte
	Size          int
	Next, Visible int64
	// First is the base offset of the first visible batch.
	First int64
	// bytes is how much was looked at.
	bytes int
	// Hides reports whether no record of a batch may be shown; nil: none is like that.
	Hides func(topic.Batch) bool
	// Unreadable says which batch could not be unpacked, if one could not.
	Unreadable error

	headers []topic.Header
	// kept holds the count records that pass of the last batch.
	kept  []byte
	count int32
}

// NewScan returns a scan that begins at a position, and ends when it has found
// about maxBytes: a batch that is larger is found alone.
func NewScan(filter *Filter, unpacker *topic.Unpacker, position int64, maxBytes int) *Scan {
	return &Scan{
		filter: filter, unpacker: unpacker, position: position, maxBytes: maxBytes, Next: position, Visible: position,
		deadline: time.Now().Add(scanTime),
	}
}

// Full reports whether it has found enough, or has looked at as much as it may.
func (s *Scan) Full() bool {
	return s.Size > 0 && s.Size >= s.maxBytes || s.bytes >= scanBytes || s.Next-s.position >= scanOffsets ||
		s.bytes > 0 && !time.Now().Before(s.deadline)
}

// add looks at the batches that follow, until it is full. After an error, an
// ErrCorrupt, the scan has what was before the batch.
func (s *Scan) add(ctx context.Context, batches []topic.Batch) error {
	for _, batch := range batches {
		if s.Full() {
			return nil
		}
		if batch.Next() <= s.Next {
			continue
		}
		passed, next, err := s.pass(ctx, batch)
		if err != nil {
			return fmt.Errorf("batch at offset %d: %w", batch.Base(), err)
		}
		if len(passed) > 0 {
			if s.Size > 0 && s.Size+len(passed) > s.maxBytes {
				s.maxBytes = s.Size // full, and this batch comes first next time
				return nil
			}
			if s.Size == 0 {
				s.First = passed.Base()
			}
			s.Data = append(s.Data, passed)
			s.Size += len(passed)
			s.Visible = next
		}
		s.bytes += len(batch)
		s.Next = next
	}
	return nil
}

// pass returns what the filter lets pass of a batch from the position on (the
// batch itself if that is all, nil if it is nothing), and the offset after the
// last that was looked at. Markers and hidden batches do not pass. A
// batch that is as it was sent, and cannot be unpacked, does not pass: the view
// goes on after it.
func (s *Scan) pass(ctx context.Context, batch topic.Batch) (passed topic.Batch, next int64, err error) {
	next = batch.Next()
	if batch.Control() || batch.Count() == 0 || s.Hides != nil && s.Hides(batch) {
		return nil, next, nil
	}
	if err := batch.Check(); err != nil {
		return nil, next, err
	}
	err = s.unpacker.Unpack(ctx, batch.Compression(), batch[topic.RecordsAt:], func(data []byte) (err error) {
		if next, err = s.match(batch, data); err != nil {
			return err
		}
		switch s.count {
		case 0:
		case batch.Count():
			passed = batch
		default:
			passed, err = batch.WithRecords(s.count, next, s.kept)
		}
		if cap(s.kept) > scanBytes { // it must not outlive the memory that is reserved for it
			s.kept = nil
		}
		return err
	})
	if err != nil && ctx.Err() != nil {
		return nil, next, ctx.Err()
	}
	if err != nil {
		s.filter.records.Add(int64(batch.Count()))
		s.filter.failed.Add(int64(batch.Count()))
		s.Unreadable = fmt.Errorf("batch at offset %d: %w", batch.Base(), err)
		return nil, batch.Next(), nil
	}
	return passed, next, nil
}

// match collects in kept the records that pass, and counts them. It returns the
// offset after the last that it looked at: of the batch, unless time is up. It
// looks at one record at least.
func (s *Scan) match(batch topic.Batch, data []byte) (next int64, err error) {
	s.kept, s.count = s.kept[:0], 0
	reader := topic.NewRecordReader(batch, data)
	reader.WithoutHeaders = !s.filter.headers
	reader.Slab = s.headers
	looked, failed := int64(0), int64(0)
	next = batch.Next()
	vars := &filterVars{record: &reader.Record}
	for reader.Next() {
		if reader.Record.Offset < s.position {
			continue
		}
		if s.filter.costly && looked > 0 && !time.Now().Before(s.deadline) {
			next = reader.Record.Offset
			break
		}
		looked++
		matches, err := s.filter.match(vars)
		if err != nil {
			failed++
		}
		if matches {
			s.count++
			s.kept = append(s.kept, reader.Raw...)
		}
	}
	s.headers = reader.Slab
	if reader.Err != nil {
		return next, reader.Err
	}
	s.filter.records.Add(looked)
	s.filter.matched.Add(int64(s.count))
	s.filter.failed.Add(failed)
	return next, nil
}

// HiddenMarker returns the batch that takes consumers over the offsets from base
// to next-1, which a view hides: a commit marker of no producer at the last of
// them. Clients go on after it and show nothing. A longer gap than a batch can
// cover, 2³¹-1 offsets, is covered in part.
func HiddenMarker(base, next int64, epoch int32) (topic.Batch, error) {
	next = min(next, base+math.MaxInt32)
	return topic.NewBatch([]topic.Record{{
		Offset: next - 1, Timestamp: topic.NoTimestamp,
		Key:   []byte{0, 0, 0, 1},       // version, type: commit
		Value: []byte{0, 0, 0, 0, 0, 0}, // version, epoch of the coordinator
	}}, topic.BatchOptions{Base: base, Next: next, Epoch: epoch, Transactional: true, Control: true})
}

// AddPieces adds the batches of consecutive pieces of data.
func (s *Scan) AddPieces(ctx context.Context, pieces [][]byte) error {
	for _, piece := range pieces {
		batches, err := topic.SplitBatches(piece)
		if err != nil {
			return err
		}
		if err := s.add(ctx, batches); err != nil {
			return err
		}
	}
	return nil
}
