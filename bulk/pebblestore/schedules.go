package pebblestore

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/internal/pebblekv"
)

func scheduleKey(name string) []byte { return append([]byte{keySchedule}, name...) }

// loadSchedules counts the schedules, and reads the highest revision given.
func (s *Store) loadSchedules() error {
	revision, err := pebblekv.Get(s.db, metaRevision)
	if err != nil {
		return err
	}
	if len(revision) == 8 {
		s.revision = binary.BigEndian.Uint64(revision)
	}
	return s.eachSchedule(func(bulk.Schedule) { s.schedules++ })
}

func (s *Store) eachSchedule(f func(bulk.Schedule)) error {
	return pebblekv.Scan(s.db, []byte{keySchedule}, []byte{keySchedule + 1}, func(key, value []byte) (bool, error) {
		schedule, err := decodeSchedule(key, value)
		if err == nil {
			f(schedule)
		}
		return true, err
	})
}

func decodeSchedule(key, value []byte) (schedule bulk.Schedule, err error) {
	return schedule, pebblekv.Unmarshal(key, value, &schedule)
}

// Schedules implements bulk.Store. It reads them from disk: their jobs would take too
// much memory.
func (s *Store) Schedules(context.Context) (schedules []bulk.Schedule, err error) {
	done, err := s.hold()
	if err != nil {
		return nil, err
	}
	defer done()
	err = s.eachSchedule(func(schedule bulk.Schedule) { schedules = append(schedules, schedule) })
	return schedules, err
}

// PutSchedule implements bulk.Store.
func (s *Store) PutSchedule(_ context.Context, schedule bulk.Schedule) (bulk.Schedule, error) {
	key, asked := scheduleKey(schedule.Name), schedule.Revision
	err := s.do(func(c *call) error {
		value, err := pebblekv.Get(s.db, key)
		if err != nil {
			return err
		}
		var stored bulk.Schedule
		if value != nil {
			if stored, err = decodeSchedule(key, value); err != nil {
				return err
			}
		}
		switch {
		case stored.Revision != asked:
			return bulk.ErrConflict
		case value == nil && s.schedules >= bulk.MaxSchedules:
			return fmt.Errorf("%w: there are %d schedules, the most", bulk.ErrFull, s.schedules)
		}
		schedule.Revision = int64(s.revision + 1)
		encoded, err := json.Marshal(&schedule)
		if err != nil {
			return err
		}
		// Changes that hardly grow a schedule are accepted on a full disk too, so that
		// runs are recorded and schedules can be paused.
		if grows := len(encoded) - len(value); grows > scheduleSlack {
			if err := s.disk.Check(c.now, grows); err != nil {
				return err
			}
		}
		s.revision++
		if value == nil {
			s.schedules++
		}
		c.keep(c.batch.Set(metaRevision, binary.BigEndian.AppendUint64(nil, s.revision), nil))
		c.keep(c.batch.Set(key, encoded, nil))
		return nil
	})
	if err != nil {
		schedule.Revision = asked
	}
	return schedule, err
}

// scheduleSlack is by how many bytes recording a run may grow a schedule: a few times, an
// id and an error.
const scheduleSlack = 4 << 10

// RemoveSchedule implements bulk.Store.
func (s *Store) RemoveSchedule(_ context.Context, name string) error {
	key := scheduleKey(name)
	return s.do(func(c *call) error {
		value, err := pebblekv.Get(s.db, key)
		if err != nil {
			return err
		}
		if value == nil {
			return bulk.ErrNoSchedule
		}
		s.schedules--
		c.keep(c.batch.Delete(key, nil))
		return nil
	})
}
