package pebblestore

import (
	"bytes"
	"context"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/internal/pebblekv"
)

// Job implements bulk.Store.
func (s *Store) Job(_ context.Context, id string, index int64) (state bulk.JobState, err error) {
	done, err := s.hold()
	if err != nil {
		return state, err
	}
	defer done()
	s.reads.RLock()
	state, canceled, err := s.presentJob(id, index)
	s.reads.RUnlock()
	if err != nil || state.State != "" {
		return state, err
	}
	// An end does not change, and its log and its dead letter are read without s.mu.
	return state, s.endedJob(&state, canceled)
}

// presentJob returns the state of a job, and whether its action was canceled. The state is empty
// if the job has ended. s.reads must be held.
func (s *Store) presentJob(id string, index int64) (state bulk.JobState, canceled bool, err error) {
	number, err := s.lookup(id)
	if err != nil {
		return state, false, err
	}
	record, err := s.present(number)
	if err != nil {
		return state, false, err
	}
	a := s.actions[number]
	missing := &bulk.NoJobError{ID: id, Index: index, Received: record.Received}
	canceled = record.Status == bulk.Canceled
	if index == bulk.FirstJob && a != nil && !canceled {
		index = a.firstUnfinished()
	}
	if index < 0 || index >= record.Received {
		return state, canceled, missing
	}
	state = bulk.JobState{Number: number, Index: index}
	if a != nil {
		a.show(&state)
	}
	return state, canceled, nil
}

// firstUnfinished returns the least index of a job that has not ended; the number of jobs if
// there is none.
func (a *action) firstUnfinished() int64 {
	if at := bytes.IndexByte(a.finals, 0); at >= 0 {
		return min(int64(at), a.record.Received)
	}
	return min(int64(len(a.finals)), a.record.Received)
}

// show completes the state of a job that has not ended.
func (a *action) show(state *bulk.JobState) {
	j := a.jobs[uint32(state.Index)]
	if j == nil {
		if a.record.Status != bulk.Canceled && state.Index >= a.next {
			state.State, state.Before = bulk.StatePending, int64(a.returned.len())+state.Index-a.next
		}
		return
	}
	state.Attempts = int(j.attempts)
	switch j.phase {
	case ready:
		state.State = bulk.StateReady
	case inFlight:
		state.State, state.At = bulk.StateInFlight, j.at.UTC()
	case nonReady:
		state.State, state.Reason, state.At = bulk.StateNonReady, bulk.NonReadyReason(j.reason), j.at.UTC()
		if k := j.key; k != nil {
			state.Key, state.KeyHeld, state.At = k.of, k.inFlight, time.Time{}
		}
	default:
		state.State, state.Before = bulk.StatePending, bulk.NotKnown
		for n := range min(a.returned.len(), bulk.MaxReturned) {
			if a.returned.at(n) == j {
				state.Before = int64(n)
				break
			}
		}
	}
}

// endedJob completes the state of a job that has ended, from its log, and from its result or its
// dead letter.
func (s *Store) endedJob(state *bulk.JobState, wasCanceled bool) error {
	index := uint32(state.Index)
	key := indexKey(keyLog, state.Number, index>>pageBits)
	log, err := pebblekv.Get(s.db, key)
	if err != nil {
		return err
	}
	var facts pageFacts
	if err := facts.replay(log); err != nil {
		return pebblekv.Corrupt(key, err.Error())
	}
	f := &facts.jobs[index%pageSize]
	state.Attempts = int(f.attempts)
	switch {
	case f.phase == succeeded:
		state.State = bulk.StateSucceeded
		return s.addResult(state)
	case f.phase == failed:
		state.State = bulk.StateFailed
		return s.addError(state)
	case f.phase == canceled || wasCanceled:
		state.State = bulk.StateCanceled
	default: // the action was forgotten in the meantime
		return bulk.ErrNotFound
	}
	return nil
}

// addResult adds the result of a job that succeeded, if it was kept.
func (s *Store) addResult(state *bulk.JobState) error {
	key := indexKey(keyResult, state.Number, uint32(state.Index))
	value, err := pebblekv.Get(s.db, key)
	if err != nil || value == nil {
		return err
	}
	var ok bool
	if state.Result, state.ResultTruncated, ok = decodeResult(value); !ok {
		return pebblekv.Corrupt(key, "not a result")
	}
	return nil
}

// addError adds what the dead letter of a failed job has, if it is there.
func (s *Store) addError(state *bulk.JobState) error {
	key := indexKey(keyDead, state.Number, uint32(state.Index))
	value, err := pebblekv.Get(s.db, key)
	if err != nil || value == nil {
		return err
	}
	letter, ok := decodeDeadLetter(value)
	if !ok {
		return pebblekv.Corrupt(key, "not a dead letter")
	}
	// An attempt that a crash ended is in the log, and does not count.
	state.Error, state.At, state.Attempts = letter.Error, letter.FailedAt, letter.Attempts
	return nil
}
