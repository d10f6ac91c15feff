package pebblestore

import (
	"context"

	"github.com/sluice-project/sluice/pebblekv"
	"github.com/sluice-project/sluice/room"
)

// entryEvents is the most events of an entry of the outbox.
const entryEvents = 512

// outbox is how many events of a room wait, and from which sequence number on.
type outbox struct{ first, waiting int64 }

// entry is what a move puts into the outbox next: events without a gap.
type entry struct {
	first  int64
	events int
	value  []byte
}

// tell puts an event into the outbox. One for which there is no room is dropped, and
// so are all of the move after it.
func (m *move) tell(kind room.EventType, number int64, inside bool) {
	h := m.h
	if m.terms.Events == 0 {
		return
	}
	h.counts.sequence++
	if h.outbox.waiting >= m.terms.Events {
		h.counts.dropped++
		m.counted = true
		return
	}
	if m.entry.events == 0 {
		m.entry.first = h.counts.sequence
		m.entry.value = appendCounts(m.entry.value[:0], m.now)
	}
	m.entry.value = appendEvent(m.entry.value, &room.Event{Type: kind, Number: number, Inside: inside})
	m.entry.events++
	if h.outbox.waiting == 0 {
		h.outbox.first = h.counts.sequence
	}
	h.outbox.waiting++
	if m.entry.events == entryEvents {
		m.flushEntry()
	}
}

func (m *move) flushEntry() {
	if m.entry.events == 0 {
		return
	}
	var key [32]byte
	m.keep(m.writer().Set(appendKey(key[:0], m.h.id, kindEvents, m.entry.first), m.entry.value, nil))
	m.entry.events = 0
}

// enterRevision is enter for a room of a revision; 0 is any.
func (s *Store) enterRevision(ctx context.Context, name string, revision uint64) (*hall, error) {
	h, err := s.enter(ctx, name)
	if err == nil && revision != 0 && h.record.Revision != revision {
		h.mu.Unlock()
		s.running.Done()
		return nil, room.ErrStale
	}
	return h, err
}

// Events returns events that wait, and of those only what is on disk.
func (s *Store) Events(ctx context.Context, name string, revision uint64, after int64, limit int) ([]room.Event, error) {
	h, err := s.enterRevision(ctx, name, revision)
	if err != nil {
		return nil, err
	}
	defer s.running.Done()
	durable := h.eventsDurable.Load()
	first := h.outbox.first
	h.mu.Unlock()
	if after >= durable || limit <= 0 {
		return nil, nil
	}
	var events []room.Event
	// The entry of the event after it began at most so many before.
	from := keyFor(h.id, kindEvents, max(first, after-entryEvents, 0))
	_, to := kindRange(h.id, kindEvents)
	err = pebblekv.Scan(s.db, from, to, func(key, value []byte) (bool, error) {
		found, err := entryAt(key, value)
		for _, e := range found {
			if e.Sequence > after && e.Sequence <= durable && len(events) < limit {
				events = append(events, e)
			}
		}
		return len(events) < limit, err
	})
	return events, err
}

// entryAt decodes an entry of the outbox.
func entryAt(key, value []byte) ([]room.Event, error) {
	sequence, err := numberOf(key)
	if err != nil {
		return nil, err
	}
	events, err := decodeEvents(sequence, value)
	if err != nil {
		return nil, corrupt(key, err.Error())
	}
	return events, nil
}

// Published removes events.
func (s *Store) Published(ctx context.Context, name string, revision uint64, upTo int64) error {
	h, err := s.enterRevision(ctx, name, revision)
	if err != nil {
		return err
	}
	m := &move{s: s, h: h, now: s.clock.now()}
	if h.outbox.waiting == 0 || upTo < h.outbox.first {
		m.cancel()
		return nil
	}
	from := keyFor(h.id, kindEvents, h.outbox.first)
	to := keyFor(h.id, kindEvents, min(upTo, h.counts.sequence)+1)
	var rest []room.Event
	removed := int64(0)
	err = pebblekv.Scan(s.db, from, to, func(key, value []byte) (bool, error) {
		events, err := entryAt(key, value)
		for _, e := range events {
			if e.Sequence <= upTo {
				removed++
			} else {
				rest = append(rest, e)
			}
		}
		return true, err
	})
	if err != nil {
		m.cancel()
		return err
	}
	m.keep(m.writer().DeleteRange(from, to, nil))
	if len(rest) > 0 {
		value := appendCounts(nil, rest[0].Time.UnixMilli())
		for i := range rest {
			value = appendEvent(value, &rest[i])
		}
		m.keep(m.writer().Set(keyFor(h.id, kindEvents, rest[0].Sequence), value, nil))
	}
	h.outbox.waiting -= removed
	// The next that is there may come later, after a gap.
	h.outbox.first = min(upTo, h.counts.sequence) + 1
	m.counted = true // the sequence must outlive its events
	return m.commit()
}
