package pebblestore

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-project/sluice/room"
)

// Rooms implements room.Store.
func (s *Store) Rooms(ctx context.Context) ([]room.Record, error) {
	done, err := s.hold(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	s.mu.RLock()
	defer s.mu.RUnlock()
	records := make([]room.Record, 0, len(s.rooms))
	for _, rs := range s.rooms {
		rs.mu.Lock()
		record := rs.record
		rs.mu.Unlock()
		record.Data = bytes.Clone(record.Data)
		records = append(records, record)
	}
	slices.SortFunc(records, func(a, b room.Record) int { return strings.Compare(a.Name, b.Name) })
	return records, nil
}

// RoomsVersion implements room.Store.
func (s *Store) RoomsVersion(ctx context.Context) (uint64, error) {
	done, err := s.hold(ctx)
	if err != nil {
		return 0, err
	}
	defer done()
	return s.changes.Load(), nil
}

// roomState returns a room; nil if there is none.
func (s *Store) roomState(name string) *roomState {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.rooms[name]
}

// PutRoom implements room.Store. The change is durable before others can see it.
func (s *Store) PutRoom(ctx context.Context, name string, data []byte, revision uint64, version ...uint64) (uint64, error) {
	done, err := s.hold(ctx)
	if err != nil {
		return 0, err
	}
	defer done()
	if len(data) > room.MaxRecord {
		return 0, fmt.Errorf("the record of a room has %d bytes, at most %d may be stored", len(data), room.MaxRecord)
	}
	if err := s.disk.Check(moment(s.clock.now()), len(data)); err != nil {
		return 0, err
	}
	s.admin.Lock()
	defer s.admin.Unlock()
	rs := s.roomState(name)
	switch {
	case rs == nil && revision != 0, rs != nil && revision != rs.record.Revision, len(version) > 0 && version[0] != s.changes.Load():
		return 0, room.ErrConflict
	case rs == nil && len(s.rooms) >= room.MaxRooms:
		return 0, room.ErrTooManyRooms
	}
	stored := roomRecord{revision: s.revision + 1, data: data}
	if rs != nil {
		stored.id = rs.id
	} else {
		stored.id = stored.revision
	}
	batch := s.db.NewBatch()
	if err := s.write(batch,
		batch.Set(metaRevision, appendCounts(nil, int64(stored.revision)), nil),
		batch.Set(roomKey(name), stored.encode(), nil),
	); err != nil {
		return 0, err
	}
	s.revision = stored.revision
	defer s.changes.Add(1)
	record := room.Record{Name: name, Data: bytes.Clone(data), Revision: stored.revision}
	if rs == nil {
		s.mu.Lock()
		s.rooms[name] = newRoomState(stored.id, record)
		s.mu.Unlock()
		return stored.revision, nil
	}
	rs.mu.Lock()
	rs.record = record
	rs.mu.Unlock()
	return stored.revision, nil
}

// holdAdmin is hold for a call that changes the set of rooms, a record or the keys.
func (s *Store) holdAdmin(ctx context.Context) (done func(), err error) {
	release, err := s.hold(ctx)
	if err != nil {
		return nil, err
	}
	s.admin.Lock()
	return func() { s.admin.Unlock(); release() }, nil
}

// RemoveRoom implements room.Store.
func (s *Store) RemoveRoom(ctx context.Context, name string) error {
	done, err := s.holdAdmin(ctx)
	if err != nil {
		return err
	}
	defer done()
	rs := s.roomState(name)
	if rs == nil {
		return nil
	}
	// No operation may write behind the removal.
	rs.mu.Lock()
	rs.removed = true
	rs.mu.Unlock()
	batch := s.db.NewBatch()
	from, to := roomRange(rs.id)
	if err := s.write(batch, batch.Delete(roomKey(name), nil), batch.DeleteRange(from, to, nil)); err != nil {
		return err
	}
	s.mu.Lock()
	delete(s.rooms, name)
	s.mu.Unlock()
	s.changes.Add(1)
	return nil
}

// Keys implements room.Store.
func (s *Store) Keys(ctx context.Context) ([]room.SigningKey, error) {
	done, err := s.hold(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	s.mu.RLock()
	defer s.mu.RUnlock()
	return cloneKeys(s.keys), nil
}

// PutKeys implements room.Store.
func (s *Store) PutKeys(ctx context.Context, keys []room.SigningKey, seen string) error {
	done, err := s.holdAdmin(ctx)
	if err != nil {
		return err
	}
	defer done()
	newest := ""
	if n := len(s.keys); n > 0 {
		newest = s.keys[n-1].ID
	}
	if newest != seen {
		return room.ErrConflict
	}
	value, err := json.Marshal(keys)
	if err != nil {
		return err
	}
	batch := s.db.NewBatch()
	if err := s.write(batch, batch.Set(metaKeys, value, nil)); err != nil {
		return err
	}
	s.mu.Lock()
	s.keys = cloneKeys(keys)
	s.mu.Unlock()
	return nil
}

func cloneKeys(keys []room.SigningKey) []room.SigningKey {
	keys = slices.Clone(keys)
	for i := range keys {
		keys[i].Secret = bytes.Clone(keys[i].Secret)
	}
	return keys
}

// Status implements room.Store.
func (s *Store) Status(ctx context.Context, name string) (room.Status, error) {
	done, err := s.hold(ctx)
	if err != nil {
		return room.Status{}, err
	}
	defer done()
	rs := s.roomState(name)
	if rs == nil {
		return room.Status{}, room.ErrNoRoom
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.removed {
		return room.Status{}, room.ErrNoRoom
	}
	return rs.status(s.clock.now()), nil
}

// status returns the counts of a room.
func (rs *roomState) status(now int64) room.Status {
	c := &rs.counts
	return room.Status{
		Waiting: rs.waiting, Inside: rs.actives.len(), Called: rs.called,
		Entered: c.number, Admitted: c.admitted, NoShows: c.missed, Departed: c.departed, Expired: c.expired,
		EventsWaiting: rs.outbox.waiting, EventsDropped: c.dropped, Tick: c.batch.Tick, Now: moment(now),
	}
}
