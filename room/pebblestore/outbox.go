package pebblestore

import (
	"context"

	"github.com/sluice-project/sluice/internal/pebblekv"
	"github.com/sluice-project/sluice/room"
)

// entryEvents is the most events of an entry of the outbox.
const entryEvents = 512

// outbox is the number of events of a room that wait, and the sequence number of the
// first.
type outbox struct{ first, waiting int64 }

// entry is the next entry that an operation writes to the outbox: events without a gap.
type entry struct {
	first  int64
	events int
	value  []byte
}

// addEvent adds an event to the outbox, or drops it if the outbox is full; all later
// events of the operation are then dropped too.
func (m *operation) addEvent(kind room.EventType, number int64, inside bool) {
	rs := m.rs
	if m.terms.Events == 0 {
		return
	}
	rs.counts.sequence++
	if rs.outbox.waiting >= m.terms.Events {
		rs.counts.dropped++
		m.counted = true
		return
	}
	if m.entry.events == 0 {
		m.entry.first = rs.counts.sequence
		m.entry.value = appendCounts(m.entry.value[:0], m.now)
	}
	m.entry.value = appendEvent(m.entry.value, &room.Event{Type: kind, Number: number, Inside: inside})
	m.entry.events++
	if rs.outbox.waiting == 0 {
		rs.outbox.first = rs.counts.sequence
	}
	rs.outbox.waiting++
	if m.entry.events == entryEvents {
		m.flushEntry()
	}
}

func (m *operation) flushEntry() {
	if m.entry.events == 0 {
		return
	}
	var key [32]byte
	m.keep(m.writer().Set(appendKey(key[:0], m.rs.id, kindEvents, m.entry.first), m.entry.value, nil))
	m.entry.events = 0
}

// enterRevision is enter for a room of a revision; 0 is any.
func (s *Store) enterRevision(ctx context.Context, name string, revision uint64) (*roomState, error) {
	rs, err := s.enter(ctx, name)
	if err == nil && revision != 0 && rs.record.Revision != revision {
		rs.mu.Unlock()
		s.running.Done()
		return nil, room.ErrStale
	}
	return rs, err
}

// Events implements room.Store. It returns only events on disk.
func (s *Store) Events(ctx context.Context, name string, revision uint64, after int64, limit int) ([]room.Event, error) {
	rs, err := s.enterRevision(ctx, name, revision)
	if err != nil {
		return nil, err
	}
	defer s.running.Done()
	durable := rs.eventsDurable.Load()
	first := rs.outbox.first
	rs.mu.Unlock()
	if after >= durable || limit <= 0 {
		return nil, nil
	}
	var events []room.Event
	// The entry of the next event began at most so many before it.
	from := keyFor(rs.id, kindEvents, max(first, after-entryEvents, 0))
	_, to := kindRange(rs.id, kindEvents)
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
		return nil, pebblekv.Corrupt(key, err.Error())
	}
	return events, nil
}

// Published implements room.Store.
func (s *Store) Published(ctx context.Context, name string, revision uint64, upTo int64) error {
	rs, err := s.enterRevision(ctx, name, revision)
	if err != nil {
		return err
	}
	m := &operation{s: s, rs: rs, now: s.clock.now()}
	if rs.outbox.waiting == 0 || upTo < rs.outbox.first {
		m.cancel()
		return nil
	}
	from := keyFor(rs.id, kindEvents, rs.outbox.first)
	to := keyFor(rs.id, kindEvents, min(upTo, rs.counts.sequence)+1)
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
		m.keep(m.writer().Set(keyFor(rs.id, kindEvents, rest[0].Sequence), value, nil))
	}
	rs.outbox.waiting -= removed
	// The next that is there may come later, after a gap.
	rs.outbox.first = min(upTo, rs.counts.sequence) + 1
	m.counted = true // the sequence must outlive its events
	return m.commit()
}
