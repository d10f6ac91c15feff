package api

import (
	"encoding/json"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api/wire"
)

// specOf returns the spec of a new action. The engine validates it.
func specOf(n wire.NewAction) (bulk.Spec, error) {
	class, err := bulk.ParseClass(n.Class)
	if err != nil {
		return bulk.Spec{}, &bulk.SpecError{Field: "class", Why: err.Error()}
	}
	spec := bulk.Spec{
		ID:          n.ID,
		Tenant:      n.Tenant,
		Type:        n.Type,
		Class:       class,
		Key:         n.Key,
		Cost:        n.Cost,
		Aggregate:   n.Aggregate,
		MaxAttempts: n.MaxAttempts,
		Timeout:     milliseconds(n.TimeoutMS),
		FailAbove:   n.FailAbove,
		Events:      n.Events,
		KeepResults: n.KeepResults,
	}
	if n.Target != nil {
		spec.Target = &bulk.Target{Name: n.Target.Name, URL: n.Target.URL}
	}
	if n.RunAt != nil {
		spec.RunAt = n.RunAt.UTC()
	}
	return spec, nil
}

// action returns the JSON object of an action.
func (s *server) action(a bulk.Action) wire.Action {
	held := s.engine.HeldBack(&a)
	object := wire.Action{
		ID:       a.ID,
		Tenant:   a.Tenant,
		Type:     a.Type,
		Class:    a.Class.String(),
		Key:      a.Key,
		Cost:     a.Cost,
		Status:   string(a.Status),
		Paused:   a.Paused,
		Open:     a.Open,
		Received: a.Received,
		Pending:  a.Pending - held,
		Ready:    a.Ready,
		NonReady: a.NonReadyTotal() + held,
		NonReadyReasons: wire.NonReadyReasons{
			RateLimited:    a.NonReady[bulk.RateLimited],
			APIThrottled:   a.NonReady[bulk.APIThrottled],
			TransientError: a.NonReady[bulk.TransientError],
			KeyLimited:     a.NonReady[bulk.KeyLimited],
			TargetDown:     held,
		},
		InFlight:   a.InFlight,
		Succeeded:  a.Succeeded,
		Failed:     a.Failed,
		Canceled:   a.Counts.Canceled,
		Throttled:  a.Throttled,
		Retried:    a.Retried,
		Error:      a.Error,
		RunAt:      optional(a.RunAt),
		CreatedAt:  a.CreatedAt.UTC(),
		FinishedAt: optional(a.FinishedAt),
	}
	object.Target = targetObject(a.Target)
	if sealed := !a.EnteredAt.IsZero() && !a.Open; sealed {
		object.Total = &a.Total
	}
	if a.Status.Final() {
		object.Result = a.Result
	} else {
		object.EstimatedFinishAt = optional(s.engine.EstimatedFinish(a.ID))
	}
	if a.Status == bulk.Completed && a.Result == nil {
		object.Result = map[string]json.RawMessage{}
	}
	return object
}

// targetObject returns the JSON object of a target, without the secrets of its URL.
func targetObject(t *bulk.Target) *wire.Target { return (*wire.Target)(t.Redacted()) }

func deadLetter(d bulk.DeadLetter) wire.DeadLetter {
	return wire.DeadLetter{
		ID:       bulk.JobID(d.Action, d.Index),
		Action:   d.Action,
		Index:    d.Index,
		Payload:  value(d.Payload),
		Error:    d.Error,
		Cause:    bulk.Cause(d.Error),
		Attempts: d.Attempts,
		FailedAt: d.FailedAt.UTC(),
	}
}

func (s *server) job(j *bulk.Job) wire.Job {
	object := wire.Job{
		ID:       j.ID(),
		Action:   j.Spec.ID,
		Type:     j.Spec.Type,
		Payload:  value(j.Payload),
		Attempt:  j.Attempt,
		Lease:    s.engine.LeaseKey().Token(j.Lease),
		Deadline: j.Deadline.UTC(),
	}
	if j.Trace != nil {
		object.Traceparent, object.Tracestate = j.Trace.Parent, j.Trace.State
	}
	return object
}

// value returns a payload as JSON. Payloads of Go programs may not be JSON: they
// become strings.
func value(payload []byte) json.RawMessage {
	if json.Valid(payload) {
		return payload
	}
	text, _ := json.Marshal(string(payload)) // A string always has a JSON form.
	return text
}

// optional returns a time that is null when it is zero.
func optional(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

func milliseconds(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
