package pebblestore

import (
	"context"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sluice-project/sluice/pebblekv"
	"github.com/sluice-project/sluice/room"
)

// maxStep is about how many visitors one move ends, calls or skips; the rest is
// left to the next Expire.
const maxStep = 4096

// spillBytes is the length at which a batch is entered into the log before its
// move has ended.
const spillBytes = 1 << 20

// move is one atomic move on a room in progress, with hall.mu held: what it changes in
// memory and what it writes.
type move struct {
	s     *Store
	h     *hall
	terms *room.Terms
	now   int64

	batch   *pebble.Batch   // nil: nothing to write yet
	spilled []*pebble.Batch // entered into the log already
	touched []int64         // visitors whose record has changed
	emptied []*page         // pages that nobody is left in
	left    []spot          // who has left the line
	counted bool            // the counts have changed
	entry   entry
	// after is the move that must be durable before the answer may be told.
	after uint64
	err   error
}

// begin finds the room of a move and locks it. The move must be ended with commit or
// cancel.
func (s *Store) begin(ctx context.Context, terms *room.Terms) (*move, error) {
	h, err := s.enter(ctx, terms.Room)
	if err != nil {
		return nil, err
	}
	m := &move{s: s, h: h, terms: terms, now: s.clock.now()}
	if h.record.Revision != terms.Revision {
		m.cancel()
		return nil, room.ErrStale
	}
	return m, nil
}

// enter finds a room, keeps the database open, and locks the room.
func (s *Store) enter(ctx context.Context, name string) (*hall, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.RLock()
	h := s.halls[name]
	broken := s.broken.Load()
	var err error
	switch {
	case s.closed:
		err = room.ErrClosed
	case broken != nil:
		err = *broken
	case h == nil:
		err = room.ErrNoRoom
	default:
		s.running.Add(1)
	}
	s.mu.RUnlock()
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	if h.removed {
		h.mu.Unlock()
		s.running.Done()
		return nil, room.ErrNoRoom
	}
	return h, nil
}

// cancel ends a move that has changed nothing.
func (m *move) cancel() {
	m.h.mu.Unlock()
	m.s.running.Done()
}

// keep keeps the first error.
func (m *move) keep(err error) {
	if m.err == nil {
		m.err = err
	}
}

func (m *move) writer() *pebble.Batch {
	if m.batch == nil {
		m.batch = m.s.db.NewBatch()
	}
	return m.batch
}

// touch notes that a visitor's record has changed. A visitor is written once, as
// it is when the move ends.
func (m *move) touch(number int64) {
	if n := len(m.touched); n == 0 || m.touched[n-1] != number {
		m.touched = append(m.touched, number)
	}
}

// flush puts what has changed into the batch.
func (m *move) flush() {
	for _, number := range m.touched {
		m.keep(m.h.write(m.writer(), number))
	}
	m.touched = m.touched[:0]
	for _, p := range m.emptied {
		m.close(p)
	}
	m.emptied = m.emptied[:0]
	m.flushEntry()
	if m.counted {
		m.counted = false
		var key, value [128]byte
		m.keep(m.writer().Set(appendKey(key[:0], m.h.id, kindCounts, 0), m.h.counts.append(value[:0]), nil))
	}
}

// apply enters what has changed into the log, so that the log has the order of
// memory. An error means that memory and disk have parted.
func (m *move) apply() error {
	m.flush()
	if m.err != nil {
		return m.s.broke(m.err)
	}
	if m.batch == nil {
		return nil
	}
	if err := pebblekv.Apply(m.s.db, m.batch); err != nil {
		return m.s.broke(err)
	}
	m.h.moves++
	m.after = m.h.moves
	return nil
}

// spill enters what a long move has changed so far into the log, once that is much.
func (m *move) spill() {
	if m.flush(); m.err != nil || m.batch == nil || m.batch.Len() < spillBytes {
		return
	}
	if err := m.apply(); err != nil {
		m.keep(err)
		return
	}
	m.spilled, m.batch = append(m.spilled, m.batch), nil
}

// serial is the number of the batch that the move will enter into the log.
func (m *move) serial() uint64 { return m.h.moves + 1 }

// needs says that the answer tells of what an earlier move did.
func (m *move) needs(serial uint64) { m.after = max(m.after, serial) }

// commit ends a move: it returns when what it did, and what its answer tells of, is
// durable.
func (m *move) commit() error {
	h := m.h
	if m.err == nil && m.batch == nil && len(m.touched) == 0 && m.after > h.durable.Load() && m.after <= h.moves {
		m.keep(m.writer().LogData([]byte{0}, nil)) // waits for what is before it in the log
	}
	err := m.apply()
	events := h.counts.sequence
	h.mu.Unlock()
	defer m.s.running.Done()
	if err != nil {
		return err
	}
	batches := m.spilled
	if m.batch != nil {
		batches = append(batches, m.batch)
	}
	if len(batches) == 0 {
		return nil
	}
	for _, batch := range batches {
		if err := batch.SyncWait(); err != nil {
			return m.s.broke(err)
		}
		if err := batch.Close(); err != nil {
			return m.s.broke(err)
		}
	}
	raise(&h.durable, m.after)
	raise(&h.eventsDurable, events)
	if len(m.left) > 0 {
		h.mu.Lock()
		for _, s := range m.left {
			h.line.remove(s)
		}
		h.mu.Unlock()
	}
	return nil
}
