package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/sluice-project/sluice/bulk"
)

// Job implements bulk.Store. Jobs that have succeeded or were canceled have attempts that are not
// known, and so have those that failed, once their dead letter was replayed. Where the dead
// letters of a canceled action are gone, jobs that were canceled in flight are shown as failed.
func (s *Store) Job(ctx context.Context, id string, index int64) (state bulk.JobState, err error) {
	return s.job(ctx, id, index, bulk.MaxReturned)
}

// job is Job. One script looks through so many pages of an action for the first job that has not
// ended, and through so many runs for a job.
func (s *Store) job(ctx context.Context, id string, index int64, most int) (state bulk.JobState, err error) {
	n, err := s.lookup(ctx, id)
	if err != nil {
		return state, err
	}
	for page := int64(0); ; {
		answer, err := onShard(ctx, s, jobScript, s.shardOfNumber(n), asTexts,
			strconv.FormatUint(n, 10), number(index), number(page), strconv.Itoa(most))
		if err != nil {
			return state, err
		}
		if len(answer) == 0 {
			return state, bulk.ErrNotFound
		}
		found, received, err := decodeJob(answer)
		switch {
		case err != nil:
			return state, fmt.Errorf("redis: job %d of action %q: %w", index, id, err)
		case answer[0] == "further":
			page = found.Index
			continue
		case answer[0] == "none":
			return state, &bulk.NoJobError{ID: id, Index: index, Received: received}
		}
		found.Number = n
		return found, nil
	}
}

// decodeJob decodes the answer of lua/job.lua.
func decodeJob(answer []string) (state bulk.JobState, received int64, err error) {
	if len(answer) != 8 {
		return state, 0, errShort
	}
	var numbers [6]int64
	for i := range numbers {
		n, failed := strconv.ParseInt(answer[1+i], 10, 64)
		numbers[i], err = n, errors.Join(err, failed)
	}
	state = bulk.JobState{
		State: bulk.State(answer[0]), Index: numbers[0], Attempts: int(numbers[2]),
		Reason: bulk.NonReadyReason(numbers[3]), At: utc(numbers[4]), Before: numbers[5],
	}
	switch rest := answer[7]; {
	case rest == "":
	case state.Reason == bulk.KeyLimited:
		if id := strings.SplitN(rest, "\n", 3); len(id) == 3 {
			state.Key, state.KeyHeld, state.Before = bulk.JobKey{Expression: id[1], Key: id[2]}, state.Before, 0
		}
	case state.State == bulk.StateSucceeded:
		state.Result, state.ResultTruncated = []byte(rest[1:]), rest[0] == '1'
	default:
		dead, failed := decodeDead(rest)
		state.Error, err = dead.Error, errors.Join(err, failed)
	}
	return state, numbers[1], err
}
