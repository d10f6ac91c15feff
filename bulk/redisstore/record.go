package redisstore

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

// record is an action as a shard stores it; scripts use its field names. Times are in
// milliseconds, and true is 1.
type record struct {
	ID     string      `json:"id"`
	Tenant string      `json:"tenant"`
	Type   string      `json:"type"`
	Target string      `json:"target"`
	Status bulk.Status `json:"status"`
	Paused int         `json:"paused"`
	// Open is 1 for a stream that is not sealed.
	Open int `json:"open"`
	// Most is the maximum of attempts of one job. Aggregates, Jobs and Results are 1 if
	// outcomes, events of jobs, and results are kept.
	Most       int `json:"most"`
	Aggregates int `json:"aggregates"`
	Jobs       int `json:"jobs"`
	Results    int `json:"results"`

	Total    int64 `json:"total"`
	Received int64 `json:"received"`
	// Bytes is the size of all payloads, Largest that of the largest one.
	Bytes   int64 `json:"bytes"`
	Largest int64 `json:"largest"`
	// Next is the first job that was never admitted; Back counts the jobs that have returned.
	Next int64 `json:"next"`
	Back int64 `json:"back"`
	// Granted counts the jobs that were admitted; those that returned, each time.
	Granted int64 `json:"granted"`
	// Epoch increases when ready jobs are withdrawn.
	Epoch  int64 `json:"epoch"`
	Ready  int64 `json:"ready"`
	Flight int64 `json:"flight"`
	// Limited, Throttling, Failing and Keyed count jobs that were turned back. Holds is 1 once a job
	// was in flight that keys count.
	Limited    int64 `json:"limited"`
	Keyed      int64 `json:"keyed"`
	Holds      int   `json:"holds"`
	Throttling int64 `json:"throttling"`
	Failing    int64 `json:"failing"`
	Succeeded  int64 `json:"succeeded"`
	Failed     int64 `json:"failed"`
	Canceled   int64 `json:"canceled"`
	Throttled  int64 `json:"throttled"`
	Retried    int64 `json:"retried"`
	// Outcomes counts the recorded outcomes, Reduced those in the partial result, and Trimmed
	// the deleted ones.
	Outcomes int64 `json:"outcomes"`
	Reduced  int64 `json:"reduced"`
	Trimmed  int64 `json:"trimmed"`
	Replays  int   `json:"replays"`

	Created  int64  `json:"created"`
	Entered  int64  `json:"entered"`
	Finished int64  `json:"finished"`
	Error    string `json:"error"`
	// Started counts the attempts started in Window.
	Window  int64 `json:"window"`
	Started int64 `json:"started"`
}

// newRecord returns the record of a new action.
func (s *Store) newRecord(spec *bulk.Spec) *record {
	begin := spec.Action(time.Time{})
	r := &record{
		ID: spec.ID, Tenant: spec.Tenant, Type: spec.Type, Target: spec.Callee(), Status: begin.Status, Open: flag(begin.Open),
		Most: spec.MaxAttempts, Aggregates: flag(len(spec.Aggregate) > 0), Jobs: flag(spec.JobEvents()),
		Results: flag(spec.KeepResults),
	}
	r.Most = cmp.Or(r.Most, s.config.For(spec.Type).MaxAttempts)
	return r
}

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

// action returns the action of a record.
func (r *record) action(spec *bulk.Spec, partial []byte, result map[string]json.RawMessage) bulk.Action {
	a := bulk.Action{
		Spec: *spec, Status: r.Status, Paused: r.Paused == 1, Open: r.Open == 1, Total: r.Total,
		CreatedAt: utc(r.Created), EnteredAt: utc(r.Entered), FinishedAt: utc(r.Finished),
		Result: result, Error: r.Error, Reduced: uint64(r.Reduced), Partial: partial, Replays: r.Replays,
		Counts: bulk.Counts{
			Received: r.Received, Pending: r.waiting(), Ready: r.Ready, InFlight: r.Flight,
			Succeeded: r.Succeeded, Failed: r.Failed, Canceled: r.Canceled,
			Throttled: r.Throttled, Retried: r.Retried, Batches: uint64(r.Outcomes),
		},
	}
	a.NonReady = [...]int64{bulk.RateLimited: r.Limited, bulk.APIThrottled: r.Throttling, bulk.TransientError: r.Failing, bulk.KeyLimited: r.Keyed}
	return a
}

// unfinished returns what the engine follows of an unfinished action.
func (r *record) unfinished(spec *bulk.Spec, partial []byte) bulk.Unfinished {
	return bulk.Unfinished{
		Spec: spec, Status: r.Status, Open: r.Open == 1, CreatedAt: utc(r.Created),
		Total: r.Total, Done: r.Succeeded + r.Failed + r.Canceled, InFlight: r.Flight,
		Batches: uint64(r.Outcomes), Reduced: uint64(r.Reduced), Partial: partial, Error: r.Error,
	}
}

func utc(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// size returns the number of jobs: see bulk.Action.Size.
func (r *record) size() int64 {
	if r.Open == 1 {
		return r.Received
	}
	return r.Total
}

// waiting counts the jobs that wait in the action's line.
func (r *record) waiting() int64 { return r.Received - r.Next + r.Back }

// live reports whether the shard still works on the action.
func (r *record) live() bool {
	return !r.Status.Final() || r.Status == bulk.Canceled && r.Finished == 0
}

// stored is all stored data of one action.
type stored struct {
	number uint64
	now    time.Time
	record record
	action bulk.Action
}

// decodeStored decodes the answer of lua/read.lua.
func decodeStored(n uint64, now int64, texts [4]string) (*stored, error) {
	st := &stored{number: n, now: time.UnixMilli(now)}
	var spec bulk.Spec
	var result map[string]json.RawMessage
	for i, into := range []any{&st.record, &spec, nil, &result} {
		if into == nil || texts[i] == "" {
			continue
		}
		if err := json.Unmarshal([]byte(texts[i]), into); err != nil {
			return nil, fmt.Errorf("redis: action %d is not what this version of sluice stores: %w", n, err)
		}
	}
	var partial []byte
	if texts[2] != "" {
		partial = []byte(texts[2])
	}
	st.action = st.record.action(&spec, partial, result)
	return st, nil
}
