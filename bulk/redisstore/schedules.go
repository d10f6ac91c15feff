package redisstore

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/rueidis"

	"github.com/sluice-project/sluice/bulk"
)

// PutSchedule implements bulk.Store. A schedule is stored after its revision.
func (s *Store) PutSchedule(ctx context.Context, schedule bulk.Schedule) (bulk.Schedule, error) {
	asked := schedule.Revision
	revision, err := ask(ctx, s, s.db.B().Hincrby().Key(s.hub+"config").Field("schedules").Increment(1).Build(), asInt)
	if err != nil {
		return schedule, err
	}
	stored := schedule
	stored.Revision = revision
	text, err := json.Marshal(&stored)
	if err != nil {
		return schedule, err
	}
	became, err := exec(ctx, s, schedulePutScript, s.hub+"schedules",
		[]string{schedule.Name, number(asked), number(revision) + " " + string(text), number(bulk.MaxSchedules)}, asInt)
	switch {
	case err != nil:
		return schedule, err
	case became == 1:
		return schedule, bulk.ErrConflict
	case became == 2:
		return schedule, fmt.Errorf("%w: there are %d schedules, the most", bulk.ErrFull, bulk.MaxSchedules)
	}
	return stored, nil
}

// RemoveSchedule implements bulk.Store.
func (s *Store) RemoveSchedule(ctx context.Context, name string) error {
	removed, err := ask(ctx, s, s.db.B().Hdel().Key(s.hub+"schedules").Field(name).Build(), asInt)
	if err == nil && removed == 0 {
		err = bulk.ErrNoSchedule
	}
	return err
}

// Schedules implements bulk.Store. It reads them in chunks, as their jobs may be large.
func (s *Store) Schedules(ctx context.Context) (schedules []bulk.Schedule, err error) {
	key := s.hub + "schedules"
	names, err := ask(ctx, s, s.db.B().Hkeys().Key(key).Build(), asTexts)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	for page := range slices.Chunk(names, 10) {
		texts, err := ask(ctx, s, s.db.B().Hmget().Key(key).Field(page...).Build(), asArray)
		if err != nil {
			return nil, err
		}
		for i, m := range texts {
			text, err := m.ToString()
			if rueidis.IsRedisNil(err) { // it was removed in the meantime
				continue
			}
			_, value, _ := strings.Cut(text, " ")
			var schedule bulk.Schedule
			if err := json.Unmarshal([]byte(value), &schedule); err != nil {
				return nil, fmt.Errorf("redis: the schedule %q: %w", page[i], err)
			}
			schedules = append(schedules, schedule)
		}
	}
	return schedules, nil
}
