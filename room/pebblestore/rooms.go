package pebblestore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-project/sluice/room"
)

// Rooms returns the records of all rooms, by name.
func (s *Store) Rooms(ctx context.Context) ([]room.Record, error) {
	done, err := s.hold(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	s.mu.RLock()
	defer s.mu.RUnlock()
	records := make([]room.Record, 0, len(s.halls))
	for _, h := range s.halls {
		h.mu.Lock()
		record := h.record
		h.mu.Unlock()
		record.Data = bytes.Clone(record.Data)
		records = append(records, record)
	}
	slices.SortFunc(records, func(a, b room.Record) int { return strings.Compare(a.Name, b.Name) })
	return records, nil
}

// hall returns a room; nil if there is none.
func (s *Store) hall(name string) *hall {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.halls[name]
}

// PutRoom creates a room or changes its record. What it does is durable before
// others can see it.
func (s *Store) PutRoom(ctx context.Context, name string, data []byte, revision uint64) (uint64, error) {
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
	h := s.hall(name)
	switch {
	case h == nil && revision != 0, h != nil && revision != h.record.Revision:
		return 0, room.ErrConflict
	case h == nil && len(s.halls) >= room.MaxRooms:
		return 0, room.ErrTooManyRooms
	}
	stored := roomRecord{revision: s.revision + 1, data: data}
	if h != nil {
		stored.id = h.id
	} else {
		stored.id = stored.revision
	}
	batch := s.db.NewBatch()
	if err := errors.Join(
		batch.Set(metaRevision, appendCounts(nil, int64(stored.revision)), nil),
		batch.Set(roomKey(name), stored.encode(), nil),
	); err != nil {
		return 0, s.broke(err)
	}
	if err := s.write(batch); err != nil {
		return 0, err
	}
	s.revision = stored.revision
	record := room.Record{Name: name, Data: bytes.Clone(data), Revision: stored.revision}
	if h == nil {
		s.mu.Lock()
		s.halls[name] = newHall(stored.id, record)
		s.mu.Unlock()
		return stored.revision, nil
	}
	h.mu.Lock()
	h.record = record
	h.mu.Unlock()
	return stored.revision, nil
}

// RemoveRoom removes a room with all that belongs to it.
func (s *Store) RemoveRoom(ctx context.Context, name string) error {
	done, err := s.hold(ctx)
	if err != nil {
		return err
	}
	defer done()
	s.admin.Lock()
	defer s.admin.Unlock()
	h := s.hall(name)
	if h == nil {
		return nil
	}
	// No move may write behind the removal.
	h.mu.Lock()
	h.removed = true
	h.mu.Unlock()
	batch := s.db.NewBatch()
	from, to := roomRange(h.id)
	if err := errors.Join(batch.Delete(roomKey(name), nil), batch.DeleteRange(from, to, nil)); err != nil {
		return s.broke(err)
	}
	if err := s.write(batch); err != nil {
		return err
	}
	s.mu.Lock()
	delete(s.halls, name)
	s.mu.Unlock()
	return nil
}

// Keys returns the key ring.
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

// PutKeys replaces the key ring, if its newest key is the one that the caller has seen.
func (s *Store) PutKeys(ctx context.Context, keys []room.SigningKey, seen string) error {
	done, err := s.hold(ctx)
	if err != nil {
		return err
	}
	defer done()
	s.admin.Lock()
	defer s.admin.Unlock()
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
	if err := batch.Set(metaKeys, value, nil); err != nil {
		return s.broke(err)
	}
	if err := s.write(batch); err != nil {
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

// Status returns how many visitors a room has.
func (s *Store) Status(ctx context.Context, name string) (room.Status, error) {
	done, err := s.hold(ctx)
	if err != nil {
		return room.Status{}, err
	}
	defer done()
	h := s.hall(name)
	if h == nil {
		return room.Status{}, room.ErrNoRoom
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.removed {
		return room.Status{}, room.ErrNoRoom
	}
	c := &h.counts
	return room.Status{
		Waiting: h.waiting, Inside: h.actives.len(), Called: h.called,
		Entered: c.number, Admitted: c.admitted, Missed: c.missed, Departed: c.departed, Expired: c.expired,
		EventsDropped: c.dropped, Tick: c.tick, Now: moment(s.clock.now()),
	}, nil
}
