package broker

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/share"
)

// ShareMost bounds what a member of a share group gets at once.
type ShareMost struct {
	// Bytes bounds what is read; at least one batch is.
	Bytes int
	// Records bounds the records. A batch is given as a whole unless Strict is set.
	Records int
	Strict  bool
}

// Shared is what a member of a share group gets.
type Shared struct {
	// Data holds whole batches, in pieces, in which these records are. Read-only.
	Data       [][]byte
	Size       int
	Deliveries []share.Delivery
	// Version is to be awaited before the records are given to the member.
	Version uint64
	// More reports whether another call may find records at once. Next is when records may be
	// available again that others have, or that wait; zero if there are none.
	More bool
	Next time.Time
}

// Acquire gives a member records: those that were released, then those after the window. It does not
// wait for records. Errors: those of Topic.Share.
func (s *Share) Acquire(ctx context.Context, member string, most ShareMost) (Shared, error) {
	if err := s.turn.Acquire(ctx, 1); err != nil {
		return Shared{}, err
	}
	defer s.turn.Release(1)
	settings, err := s.broker.ShareSettings(ctx, s.group)
	if err != nil {
		return Shared{}, err
	}
	from, ends, found, err := s.wanted(s.broker.shareLimits(settings, s.topic.name))
	if err != nil || !found.More {
		return found, err
	}
	fetched, err := s.topic.ReadCommitted(ctx, s.number, from, most.Bytes)
	if errors.Is(err, topic.ErrOffsetOutOfRange) { // records were removed
		return Shared{More: true}, nil
	}
	if err != nil {
		return Shared{}, err
	}
	batches, next := spansOf(fetched, from)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(); err != nil {
		return Shared{}, err
	}
	s.window.Fill(from, next, batches)
	found.Deliveries = s.window.Acquire(time.Now(), member, batches, most.Records, most.Strict)
	if len(found.Deliveries) > 0 || next > from {
		s.version++
	}
	found.Data, found.Size = dataOf(fetched.Data, found.Deliveries)
	found.Version, found.More, found.Next = s.version, next > from && next < ends.LastStable, s.window.Next()
	s.count()
	return found, nil
}

// wanted returns where to read for a member within limits. found.More reports whether there is anything.
func (s *Share) wanted(limits share.Limits) (from int64, ends Ends, found Shared, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(); err != nil {
		return 0, ends, found, err
	}
	p, err := s.topic.Partition(s.number)
	if err != nil {
		return 0, ends, found, err
	}
	ends = p.Ends()
	s.window.SetLimits(limits)
	s.window.Clip(ends.Start, ends.HighWatermark)
	s.window.Expire(time.Now())
	s.bury()
	from, found.More = s.window.Wanted()
	found.More = found.More && from < ends.LastStable
	found.Next = s.window.Next()
	return from, ends, found, nil
}

// spansOf returns the batches with records to deliver, and the offset after all that was read.
func spansOf(fetched Fetched, from int64) (batches []share.Span, next int64) {
	aborted := newAbortedSet(fetched.Aborted)
	next = max(from, fetched.Next)
	each(fetched.Data, func(b topic.Batch) {
		next = max(next, b.Next())
		if !b.Control() && !aborted.has(b) {
			batches = append(batches, share.Span{First: b.Base(), Last: b.Next() - 1})
		}
	})
	return batches, next
}

// each calls do with the batches of pieces.
func each(pieces [][]byte, do func(b topic.Batch)) {
	for _, data := range pieces {
		for len(data) > 0 {
			length := topic.Batch(data).Length()
			do(topic.Batch(data[:length:length]))
			data = data[length:]
		}
	}
}

// dataOf returns the batches that have some of these records.
func dataOf(pieces [][]byte, deliveries []share.Delivery) (data [][]byte, size int) {
	each(pieces, func(b topic.Batch) {
		for len(deliveries) > 0 && deliveries[0].Last < b.Base() {
			deliveries = deliveries[1:]
		}
		if len(deliveries) > 0 && deliveries[0].First < b.Next() {
			data, size = append(data, b), size+len(b)
		}
	})
	return data, size
}

// Acknowledge settles, releases or renews records of a member. It is durable once the version that it returns is
// stored, see Await. Errors: share.ErrState, share.ErrInvalid; those of Topic.Share.
func (s *Share) Acknowledge(member string, all []share.Acknowledgement) (version uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(); err != nil {
		return 0, err
	}
	if err := s.window.Acknowledge(time.Now(), member, all); err != nil {
		return 0, err
	}
	s.version++
	s.changed()
	return s.version, nil
}

// Release makes the records that a member has acquired available to others: it has gone. A stored window
// has no locks, so nothing needs to be written.
func (s *Share) Release(member string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.usable() == nil && s.window.Release(time.Now(), member) {
		s.changed()
	}
}

// changed makes known that records were released or settled. mu is held.
func (s *Share) changed() {
	s.count()
	s.bury()
	s.watchers.signal()
}

// Watch calls signal, which must not block, whenever Acquire may find more than before, until the returned
// function is called. The end of a lock is not signalled.
func (s *Share) Watch(signal func()) (cancel func()) {
	own := s.watchers.add(signal)
	p, err := s.topic.Find(s.number)
	if err != nil {
		return own
	}
	grown := p.Watch(signal)
	return func() { own(); grown() }
}
