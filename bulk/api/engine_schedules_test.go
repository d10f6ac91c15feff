package api_test

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/engine"
)

// PutSchedule checks and keeps a schedule as the engine does.
func (e *fakeEngine) PutSchedule(_ context.Context, s bulk.Schedule) (bulk.Schedule, bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s, err := engine.NormalizeSchedule(s)
	if err = cmp.Or(err, e.fail["PutSchedule"]); err != nil {
		return s, false, err
	}
	_, exists := e.schedules[s.Name]
	s.CreatedAt, s.UpdatedAt, s.NextRunAt = start, start, start
	e.schedules[s.Name] = s
	return s, !exists, nil
}

func (e *fakeEngine) changeSchedule(method, name string, change func(*bulk.Schedule)) (bulk.Schedule, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s, exists := e.schedules[name]
	if !exists {
		return s, bulk.ErrNoSchedule
	}
	change(&s)
	e.schedules[name] = s
	return s, e.fail[method]
}

func (e *fakeEngine) Schedule(_ context.Context, name string) (bulk.Schedule, error) {
	return e.changeSchedule("Schedule", name, func(*bulk.Schedule) {})
}

func (e *fakeEngine) Schedules(context.Context) (all []bulk.Schedule, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(e.schedules)) {
		all = append(all, e.schedules[name])
	}
	return all, e.fail["Schedules"]
}

func (e *fakeEngine) RemoveSchedule(_ context.Context, name string) error {
	_, err := e.changeSchedule("RemoveSchedule", name, func(*bulk.Schedule) {})
	if err == nil {
		delete(e.schedules, name)
	}
	return err
}

func (e *fakeEngine) PauseSchedule(_ context.Context, name string) (bulk.Schedule, error) {
	return e.changeSchedule("PauseSchedule", name, func(s *bulk.Schedule) { s.Paused = true })
}

func (e *fakeEngine) ResumeSchedule(_ context.Context, name string) (bulk.Schedule, error) {
	return e.changeSchedule("ResumeSchedule", name, func(s *bulk.Schedule) { s.Paused = false })
}

func (e *fakeEngine) RunNow(_ context.Context, name string) (bulk.Action, error) {
	s, err := e.changeSchedule("RunNow", name, func(s *bulk.Schedule) {
		s.LastRunAt, s.LastAction = start, bulk.RunID(s.Name, start)
	})
	return bulk.Action{Spec: bulk.Spec{ID: s.LastAction}, Status: bulk.Dispatched}, err
}
