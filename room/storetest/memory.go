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

// Memory is a room.Store in memory, the plainest implementation of the contract: the model
// of other stores. Its time is time.Now, and it starts no goroutine. Tests can make it fail:
// [Memory.Fail], [Memory.FailAfter], [Memory.Reopen], [Memory.Shift], [Memory.Rewind] and [Memory.Lose].
type Memory struct {
	mu        sync.Mutex
	rooms     map[string]*memoryRoom
	revision  uint64 // the last revision of any room
	changes   uint64 // of records
	keys      []room.SigningKey
	owners    map[string]ownership
	clock     func() time.Time
	shift     time.Duration
	fail      error
	failAfter error
	closed    bool
}

var _ room.Store = (*Memory)(nil)

// NewMemory returns an empty store.
func NewMemory() *Memory {
	return &Memory{rooms: map[string]*memoryRoom{}, owners: map[string]ownership{}, clock: time.Now}
}

// Fail makes each call except Close fail without effect, until it is called with nil.
func (m *Memory) Fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fail = err
}

// FailAfter makes each call except Close take effect and then fail, as when a server's
// reply is lost, until it is called with nil.
func (m *Memory) FailAfter(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failAfter = err
}

// Shift shifts the store's clock relative to time.Now.
func (m *Memory) Shift(by time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.shift += by
}

// Rewind restores an earlier record of a room with its revision, as after a server was
// replaced by one that had not received its last writes.
func (m *Memory) Rewind(record room.Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rooms[record.Name].record = record
	m.changes++
}

// Lose forgets the last visitor of a room, as if it had not entered: as after a server was
// replaced by one that had not received its last write.
func (m *Memory) Lose(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.rooms[name]
	v := r.visitors[r.last]
	r.counts[v.state]--
	r.line = slices.DeleteFunc(r.line, func(o *memoryVisitor) bool { return o == v })
	delete(r.visitors, v.number)
	delete(r.keys, v.key)
	r.last--
}

// Reopen closes the store, and returns one with the same content, as after a process was
// killed and started again. The new one does not fail.
func (m *Memory) Reopen() *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	again := NewMemory()
	again.rooms, again.revision, again.keys, again.clock, again.shift = m.rooms, m.revision, m.keys, m.clock, m.shift
	again.changes = m.changes
	for _, r := range again.rooms {
		r.expired, r.tender, r.turns = time.Time{}, "", room.Turns{}
	}
	return again
}

// do runs a call, unless the store is set to fail.
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

// doRevision runs a call about a room with a revision; 0 is any.
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

// operate runs an operation with terms.
func operate[T any](ctx context.Context, m *Memory, terms room.Terms, move func(r *memoryRoom, at at) (T, error)) (T, error) {
	return doNamed(ctx, m, terms.Room, func(r *memoryRoom, now time.Time) (T, error) {
		if r.record.Revision != terms.Revision {
			var none T
			return none, room.ErrStale
		}
		return move(r, at{terms, now})
	})
}

// Rooms implements room.Store.
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

// RoomsVersion implements room.Store.
func (m *Memory) RoomsVersion(ctx context.Context) (uint64, error) {
	return do(ctx, m, func(time.Time) (uint64, error) { return m.changes, nil })
}

// PutRoom implements room.Store.
func (m *Memory) PutRoom(ctx context.Context, name string, record []byte, revision uint64, version ...uint64) (uint64, error) {
	return do(ctx, m, func(time.Time) (uint64, error) {
		r, exists := m.rooms[name]
		switch {
		case !exists && revision != 0, exists && revision != r.record.Revision, len(version) > 0 && version[0] != m.changes:
			return 0, room.ErrConflict
		case !exists && len(m.rooms) >= room.MaxRooms:
			return 0, room.ErrTooManyRooms
		case !exists:
			r = newMemoryRoom()
			m.rooms[name] = r
		}
		m.revision++
		m.changes++
		r.record = room.Record{Name: name, Data: bytes.Clone(record), Revision: m.revision}
		return m.revision, nil
	})
}

// RemoveRoom implements room.Store.
func (m *Memory) RemoveRoom(ctx context.Context, name string) error {
	_, err := do(ctx, m, func(time.Time) (struct{}, error) {
		if m.rooms[name] != nil {
			delete(m.rooms, name)
			m.changes++
		}
		return struct{}{}, nil
	})
	return err
}

// Keys implements room.Store.
func (m *Memory) Keys(ctx context.Context) ([]room.SigningKey, error) {
	return do(ctx, m, func(time.Time) ([]room.SigningKey, error) { return cloneKeys(m.keys), nil })
}

// PutKeys implements room.Store.
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

// newestKey returns the ID of the last key; "" if there is none.
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

// Now implements room.Store.
func (m *Memory) Now(ctx context.Context) (time.Time, error) {
	return do(ctx, m, func(now time.Time) (time.Time, error) { return now, nil })
}

// Close implements room.Store.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	return nil
}

// ownership is the holder of a name and the end of its ownership.
type ownership struct {
	holder string
	until  time.Time
}

// Own implements room.Store.
func (m *Memory) Own(ctx context.Context, name, holder string, ttl time.Duration) (bool, error) {
	return do(ctx, m, func(now time.Time) (bool, error) {
		owned, taken := m.owners[name]
		if taken && owned.holder != holder && owned.until.After(now) {
			return false, nil
		}
		m.owners[name] = ownership{holder, now.Add(ttl)}
		return true, nil
	})
}
