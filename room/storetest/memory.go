package storetest

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-project/sluice/room"
)

// Memory is a room.Store in memory: what a store must do, said plainly. Its time is
// time.Now, and it starts no goroutine. What it can do beside that is to go wrong:
// [Memory.Fail], [Memory.FailAfter], [Memory.Reopen], [Memory.Shift] and [Memory.Rewind].
type Memory struct {
	mu        sync.Mutex
	rooms     map[string]*memoryRoom
	revision  uint64 // the last that any room was given
	keys      []room.SigningKey
	leases    map[string]memoryLease
	clock     func() time.Time
	shift     time.Duration
	fail      error
	failAfter error
	closed    bool
}

var _ room.Store = (*Memory)(nil)

// NewMemory returns an empty store.
func NewMemory() *Memory {
	return &Memory{rooms: map[string]*memoryRoom{}, leases: map[string]memoryLease{}, clock: time.Now}
}

// Fail makes each call but Close fail, having done nothing, until it is called with
// nil.
func (m *Memory) Fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fail = err
}

// FailAfter makes each call but Close do what it should and then fail, as when a
// server's reply is lost, until it is called with nil.
func (m *Memory) FailAfter(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failAfter = err
}

// Shift moves the store's clock by so much, forth or back, against time.Now.
func (m *Memory) Shift(by time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.shift += by
}

// Rewind puts a room's record back to what it was, its revision too, as after a server
// was replaced by one that had not received its last writes.
func (m *Memory) Rewind(record room.Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rooms[record.Name].record = record
}

// Reopen closes the store, and returns one with what it holds, as after a process was
// killed and started again. The new one does not fail.
func (m *Memory) Reopen() *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	again := NewMemory()
	again.rooms, again.revision, again.keys, again.clock, again.shift = m.rooms, m.revision, m.keys, m.clock, m.shift
	for _, r := range again.rooms {
		r.expired = time.Time{}
	}
	return again
}

// do runs a call, unless the store is to fail.
func do[T any](ctx context.Context, m *Memory, call func(now time.Time) (T, error)) (T, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var none T
	switch {
	case m.closed:
		return none, room.ErrClosed
	case ctx.Err() != nil:
		return none, ctx.Err()
	case m.fail != nil:
		return none, m.fail
	}
	result, err := call(time.UnixMilli(m.clock().Add(m.shift).UnixMilli()))
	if m.failAfter != nil {
		return none, m.failAfter
	}
	return result, err
}

// doNamed runs a call about a room.
func doNamed[T any](ctx context.Context, m *Memory, name string, call func(r *memoryRoom, now time.Time) (T, error)) (T, error) {
	return do(ctx, m, func(now time.Time) (T, error) {
		r := m.rooms[name]
		if r == nil {
			var none T
			return none, room.ErrNoRoom
		}
		return call(r, now)
	})
}

// doRevision runs a call about a room of a revision; 0 is any.
func doRevision[T any](
	ctx context.Context, m *Memory, name string, revision uint64, call func(r *memoryRoom, now time.Time) (T, error),
) (T, error) {
	return doNamed(ctx, m, name, func(r *memoryRoom, now time.Time) (T, error) {
		if revision != 0 && r.record.Revision != revision {
			var none T
			return none, room.ErrStale
		}
		return call(r, now)
	})
}

// doMove runs a move with terms.
func doMove[T any](ctx context.Context, m *Memory, terms room.Terms, move func(r *memoryRoom, at at) (T, error)) (T, error) {
	return doNamed(ctx, m, terms.Room, func(r *memoryRoom, now time.Time) (T, error) {
		if r.record.Revision != terms.Revision {
			var none T
			return none, room.ErrStale
		}
		return move(r, at{terms, now})
	})
}

// Rooms is room.Store's.
func (m *Memory) Rooms(ctx context.Context) ([]room.Record, error) {
	return do(ctx, m, func(time.Time) ([]room.Record, error) {
		var records []room.Record
		for _, r := range m.rooms {
			record := r.record
			record.Data = bytes.Clone(record.Data)
			records = append(records, record)
		}
		slices.SortFunc(records, func(a, b room.Record) int { return strings.Compare(a.Name, b.Name) })
		return records, nil
	})
}

// PutRoom is room.Store's.
func (m *Memory) PutRoom(ctx context.Context, name string, record []byte, revision uint64) (uint64, error) {
	return do(ctx, m, func(time.Time) (uint64, error) {
		r, exists := m.rooms[name]
		switch {
		case !exists && revision != 0, exists && revision != r.record.Revision:
			return 0, room.ErrConflict
		case !exists && len(m.rooms) >= room.MaxRooms:
			return 0, room.ErrTooManyRooms
		case !exists:
			r = newMemoryRoom()
			m.rooms[name] = r
		}
		m.revision++
		r.record = room.Record{Name: name, Data: bytes.Clone(record), Revision: m.revision}
		return m.revision, nil
	})
}

// RemoveRoom is room.Store's.
func (m *Memory) RemoveRoom(ctx context.Context, name string) error {
	_, err := do(ctx, m, func(time.Time) (struct{}, error) {
		delete(m.rooms, name)
		return struct{}{}, nil
	})
	return err
}

// Keys is room.Store's.
func (m *Memory) Keys(ctx context.Context) ([]room.SigningKey, error) {
	return do(ctx, m, func(time.Time) ([]room.SigningKey, error) { return cloneKeys(m.keys), nil })
}

// PutKeys is room.Store's.
func (m *Memory) PutKeys(ctx context.Context, keys []room.SigningKey, seen string) error {
	_, err := do(ctx, m, func(time.Time) (struct{}, error) {
		if newestKey(m.keys) != seen {
			return struct{}{}, room.ErrConflict
		}
		m.keys = cloneKeys(keys)
		return struct{}{}, nil
	})
	return err
}

// newestKey is the ID of the last key; "" if there is none.
func newestKey(keys []room.SigningKey) string {
	if len(keys) == 0 {
		return ""
	}
	return keys[len(keys)-1].ID
}

func cloneKeys(keys []room.SigningKey) []room.SigningKey {
	cloned := slices.Clone(keys)
	for i := range cloned {
		cloned[i].Secret = bytes.Clone(cloned[i].Secret)
	}
	return cloned
}

// Now is room.Store's.
func (m *Memory) Now(ctx context.Context) (time.Time, error) {
	return do(ctx, m, func(now time.Time) (time.Time, error) { return now, nil })
}

// Close is room.Store's.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	return nil
}
