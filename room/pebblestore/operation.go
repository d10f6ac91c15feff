package pebblestore

import (
	"context"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sluice-project/sluice/internal/pebblekv"
	"github.com/sluice-project/sluice/room"
)

// maxStep is about how many visitors one operation ends, calls or skips; the rest is
// left to the next Expire.
const maxStep = 4096

// spillBytes is the length at which a batch is entered into the log before its
// operation has ended.
const spillBytes = 1 << 20

// operation is one atomic operation on a room in progress, with roomState.mu held: what it changes in
// memory and what it writes.
type operation struct {
	s     *Store
	rs    *roomState
	terms room.Terms
	now   int64

	batch   *pebble.Batch   // nil: nothing to write yet
	spilled []*pebble.Batch // entered into the log already
	touched []int64         // visitors whose record has changed
	emptied []*page         // pages that nobody is left in
	left    []position      // who has left the line
	counted bool            // the counts have changed
	entry   entry
	// after is the operation that must be durable before the answer may be told.
	after uint64
	err   error
}

// begin finds the room of an operation, which is m, and locks it. The operation must be ended with
// commit or cancel. The caller provides m so that it stays on the stack: it is larger than all else
// that an Ask allocates.
func (s *Store) begin(ctx context.Context, m *operation, terms room.Terms) error {
	rs, err := s.enter(ctx, terms.Room)
	if err != nil {
		return err
	}
	*m = operation{s: s, rs: rs, terms: terms, now: s.clock.now()}
	if rs.record.Revision != terms.Revision {
		m.cancel()
		return room.ErrStale
	}
	return nil
}

// enter finds a room, keeps the database open, and locks the room.
func (s *Store) enter(ctx context.Context, name string) (*roomState, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.RLock()
	rs := s.rooms[name]
	broken := s.broken.Load()
	var err error
	switch {
	case s.closed:
		err = room.ErrClosed
	case broken != nil:
		err = *broken
	case rs == nil:
		err = room.ErrNoRoom
	default:
		s.running.Add(1)
	}
	s.mu.RUnlock()
	if err != nil {
		return nil, err
	}
	rs.mu.Lock()
	if rs.removed {
		rs.mu.Unlock()
		s.running.Done()
		return nil, room.ErrNoRoom
	}
	return rs, nil
}

// cancel ends an operation that has changed nothing.
func (m *operation) cancel() {
	m.rs.mu.Unlock()
	m.s.running.Done()
}

// keep keeps the first error.
func (m *operation) keep(err error) {
	if m.err == nil {
		m.err = err
	}
}

func (m *operation) writer() *pebble.Batch {
	if m.batch == nil {
		m.batch = m.s.db.NewBatch()
	}
	return m.batch
}

// touch records that a visitor's record has changed. A visitor is written once, as
// it is when the operation ends.
func (m *operation) touch(number int64) {
	if n := len(m.touched); n == 0 || m.touched[n-1] != number {
		m.touched = append(m.touched, number)
	}
}

// flush puts what has changed into the batch.
func (m *operation) flush() {
	for _, number := range m.touched {
		m.keep(m.rs.write(m.writer(), number))
	}
	m.touched = m.touched[:0]
	for _, p := range m.emptied {
		m.close(p)
	}
	m.emptied = m.emptied[:0]
	m.flushEntry()
	if m.counted {
		m.counted = false
		m.keep(m.rs.writeCounts(m.writer(), m.now))
	}
}

// apply enters what has changed into the log, so that the log has the order of
// memory. An error means that memory and disk have parted.
func (m *operation) apply() error {
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
	m.rs.logged++
	m.after = m.rs.logged
	return nil
}

// spill enters what a long operation has changed so far into the log, once that is much.
func (m *operation) spill() {
	if m.flush(); m.err != nil || m.batch == nil || m.batch.Len() < spillBytes {
		return
	}
	if err := m.apply(); err != nil {
		m.keep(err)
		return
	}
	m.spilled, m.batch = append(m.spilled, m.batch), nil
}

// serial is the number of the batch that the operation will enter into the log.
func (m *operation) serial() uint64 { return m.rs.logged + 1 }

// needs makes the answer wait until an earlier operation is durable.
func (m *operation) needs(serial uint64) { m.after = max(m.after, serial) }

// commit ends an operation: it returns when what it did, and what its answer tells of, is
// durable.
func (m *operation) commit() error {
	rs := m.rs
	if m.err == nil && m.batch == nil && len(m.touched) == 0 && m.after > rs.durable.Load() && m.after <= rs.logged {
		m.keep(m.writer().LogData([]byte{0}, nil)) // waits for what is before it in the log
	}
	err := m.apply()
	events := rs.counts.sequence
	rs.mu.Unlock()
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
	if err := m.s.await(batches); err != nil {
		return m.s.broke(err)
	}
	raise(&rs.durable, m.after)
	raise(&rs.eventsDurable, events)
	if len(m.left) > 0 {
		rs.mu.Lock()
		for _, s := range m.left {
			rs.lineOf(s).remove(s)
		}
		rs.mu.Unlock()
	}
	return nil
}

// await returns when batches are on disk, and closes them.
func (s *Store) await(batches []*pebble.Batch) error {
	s.syncing.Add(1)
	defer s.syncing.Add(-1)
	for _, batch := range batches {
		if err := batch.SyncWait(); err != nil {
			return err
		}
		if err := batch.Close(); err != nil {
			return err
		}
	}
	return nil
}
