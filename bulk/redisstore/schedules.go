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

// PutSchedule implements bulk.Store. A schedule is stored behind its revision.
func (s *Store) PutSchedule(ctx context.Context, schedule bulk.Schedule) (bulk.Schedule, error) {
	asked := schedule.Revision
	revision, err := do(ctx, s, func(ctx context.Context) (int64, error) {
		return s.db.Do(ctx, s.db.B().Hincrby().Key(s.hub+"config").Field("schedules").Increment(1).Build()).AsInt64()
	})
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
	removed, err := do(ctx, s, func(ctx context.Context) (int64, error) {
		return s.db.Do(ctx, s.db.B().Hdel().Key(s.hub+"schedules").Field(name).Build()).AsInt64()
	})
	if err == nil && removed == 0 {
		err = bulk.ErrNoSchedule
	}
	return err
}

// Schedules implements bulk.Store. They are read some at a time: their jobs may be long.
func (s *Store) Schedules(ctx context.Context) (schedules []bulk.Schedule, err error) {
	key := s.hub + "schedules"
	names, err := do(ctx, s, func(ctx context.Context) ([]string, error) {
		return s.db.Do(ctx, s.db.B().Hkeys().Key(key).Build()).AsStrSlice()
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	for page := range slices.Chunk(names, 10) {
		texts, err := do(ctx, s, func(ctx context.Context) ([]rueidis.RedisMessage, error) {
			return s.db.Do(ctx, s.db.B().Hmget().Key(key).Field(page...).Build()).ToArray()
		})
		if err != nil {
			return nil, err
		}
		for i, m := range texts {
			text, err := m.ToString()
			if rueidis.IsRedisNil(err) { // removed meanwhile
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
