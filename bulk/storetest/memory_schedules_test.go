package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"github.com/sluice-project/sluice/bulk"
)

func (m *memory) PutSchedule(_ context.Context, s bulk.Schedule) (bulk.Schedule, error) {
	unlock, err := m.lock()
	if err != nil {
		return s, err
	}
	defer unlock()
	key := s.Name
	if m.is("schedules of one name") {
		key = "the only one"
	}
	var stored bulk.Schedule
	raw, exists := m.schedules[key]
	if exists {
		err = json.Unmarshal(raw, &stored)
	}
	switch {
	case err != nil:
		return s, err
	case stored.Revision != s.Revision && !m.is("schedules without revisions"):
		return s, bulk.ErrConflict
	case !exists && len(m.schedules) >= bulk.MaxSchedules && !m.is("schedules without bound"):
		return s, bulk.ErrFull
	}
	if m.revision++; m.is("schedules begin anew") {
		m.revision = s.Revision + 1
	}
	s.Revision = m.revision
	m.schedules[key], err = json.Marshal(s)
	return s, err
}

func (m *memory) RemoveSchedule(_ context.Context, name string) error {
	unlock, err := m.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if m.schedules[name] == nil {
		return bulk.ErrNoSchedule
	}
	if !m.is("schedules stay") {
		delete(m.schedules, name)
	}
	return nil
}

func (m *memory) Schedules(context.Context) (schedules []bulk.Schedule, err error) {
	unlock, err := m.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	for _, name := range slices.Sorted(maps.Keys(m.schedules)) {
		var s bulk.Schedule
		err = errors.Join(err, json.Unmarshal(m.schedules[name], &s))
		schedules = append(schedules, s)
	}
	if m.is("schedules as they came") {
		slices.SortFunc(schedules, func(a, b bulk.Schedule) int { return int(a.Revision - b.Revision) })
	}
	return schedules, err
}

// reopenSchedules takes over the schedules of the store before.
func (m *memory) reopenSchedules(before *memory) {
	if m.schedules = before.schedules; m.is("schedules forgotten") {
		m.schedules = map[string][]byte{}
	}
	m.revision = before.revision
}
