package bulk

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// The types of events, as in CloudEvents. An action has an event of its creation and of
// each transition.
const (
	ActionCreated     = "io.sluice.bulk.action.created"
	ActionDispatched  = "io.sluice.bulk.action.dispatched"
	ActionRunning     = "io.sluice.bulk.action.running"
	ActionPaused      = "io.sluice.bulk.action.paused"
	ActionResumed     = "io.sluice.bulk.action.resumed"
	ActionAggregating = "io.sluice.bulk.action.aggregating"
	ActionCompleted   = "io.sluice.bulk.action.completed"
	ActionFailed      = "io.sluice.bulk.action.failed"
	ActionCanceled    = "io.sluice.bulk.action.canceled"
	// ActionDrained: the last job in flight of a canceled action has ended. It occurs only if
	// a job was in flight at the cancellation, and is the action's last event.
	ActionDrained = "io.sluice.bulk.action.drained"
	// JobSucceeded and JobFailed: a job has finished. They need JobEvents in
	// Spec.Events.
	JobSucceeded = "io.sluice.bulk.job.succeeded"
	JobFailed    = "io.sluice.bulk.job.failed"
)

// EventSource is the source of all events, as in CloudEvents.
const EventSource = "/sluice/bulk"

// The values of Spec.Events.
const (
	// ActionEvents are those of an action's status. They are always published.
	ActionEvents = "actions"
	// JobEvents are one for each job that succeeded, or failed permanently.
	JobEvents = "jobs"
)

// Bounds of events.
const (
	// MaxEventResult bounds a job's result in its event, in bytes: the event of a larger
	// result has result_truncated, and no result. It also bounds the sum of an action's
	// results.
	MaxEventResult = 64 << 10
	// MaxEventBytes bounds an event as CloudEvent encodes it: results that are not JSON
	// become strings, up to six times as long.
	MaxEventBytes = 512 << 10
	// maxEventURL bounds a target's URL in an event.
	maxEventURL = 8 << 10
)

// Event is a notification about an action or a job.
type Event struct {
	// ID is unique over all stores. An event that is published again has the same ID.
	ID string
	// Type is one of the types above.
	Type string
	// Subject is the id of the action, or of the job.
	Subject string
	// Action is the id of the action. Events of one action are in order: use it as the
	// key of partitions.
	Action string
	Tenant string
	// Time is when the event happened, by the store's clock.
	Time time.Time
	// Data is a JSON object: the action as in the API, or a JobResult.
	Data json.RawMessage
}

// cloudEvent is the structured JSON form of CloudEvents 1.0, with the extension
// attributes partitionkey and tenant.
type cloudEvent struct {
	SpecVersion     string          `json:"specversion"`
	ID              string          `json:"id"`
	Source          string          `json:"source"`
	Type            string          `json:"type"`
	Subject         string          `json:"subject"`
	Time            time.Time       `json:"time"`
	DataContentType string          `json:"datacontenttype"`
	PartitionKey    string          `json:"partitionkey"`
	Tenant          string          `json:"tenant"`
	Data            json.RawMessage `json:"data"`
}

// CloudEvent returns the event in the structured JSON form of CloudEvents 1.0, with the
// media type application/cloudevents+json. It always returns the same bytes. It fails if
// Data is not JSON, which no Store returns.
func (e Event) CloudEvent() ([]byte, error) {
	return marshal(cloudEvent{
		SpecVersion: "1.0", ID: e.ID, Source: EventSource, Type: e.Type, Subject: e.Subject, Time: e.Time.UTC(),
		DataContentType: "application/json", PartitionKey: e.Action, Tenant: e.Tenant, Data: e.Data,
	})
}

// marshal is json.Marshal without escaping < > and &.
func marshal(value any) ([]byte, error) {
	var to bytes.Buffer
	encoder := json.NewEncoder(&to)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return bytes.TrimSuffix(to.Bytes(), []byte("\n")), err
}

// normalizeEvents checks Spec.Events and removes ActionEvents, which has no effect.
func normalizeEvents(names []string) ([]string, error) {
	var asked []string
	for _, name := range names {
		switch name {
		case ActionEvents:
		case JobEvents:
			asked = []string{JobEvents}
		default:
			return nil, &SpecError{"events", `want a list of "jobs" and "actions"; those of actions are always published`}
		}
	}
	return asked, nil
}

// JobEvents reports whether the action asks for events of its jobs.
func (s *Spec) JobEvents() bool { return slices.Contains(s.Events, JobEvents) }

// EventType returns the type of the event of a transition that changed an action from
// before to after; "" if it has none.
func (m Transition) EventType(before, after *Action) string {
	switch {
	case m.Kind == Pause && !before.Paused && after.Paused:
		return ActionPaused
	case m.Kind == Resume && before.Paused && !after.Paused:
		return ActionResumed
	case m.Kind == Drained && before.FinishedAt.IsZero() && !after.FinishedAt.IsZero():
		return ActionDrained
	case before.Status != after.Status:
		return statusEvents[after.Status]
	}
	return ""
}

var statusEvents = map[Status]string{
	Created: ActionCreated, Dispatched: ActionDispatched, Running: ActionRunning, Aggregating: ActionAggregating,
	Completed: ActionCompleted, Failed: ActionFailed, Canceled: ActionCanceled,
}

// actionData is the data of an action's event: the fields of the API.
type actionData struct {
	ID              string                     `json:"id"`
	Tenant          string                     `json:"tenant"`
	Type            string                     `json:"type"`
	Target          *Target                    `json:"target,omitempty"`
	Class           Class                      `json:"class"`
	Key             string                     `json:"key,omitempty"`
	Status          Status                     `json:"status"`
	Paused          bool                       `json:"paused"`
	Total           *int64                     `json:"total"`
	Received        int64                      `json:"received"`
	Pending         int64                      `json:"pending"`
	Ready           int64                      `json:"ready"`
	NonReady        int64                      `json:"non_ready"`
	NonReadyReasons map[string]int64           `json:"non_ready_reasons"`
	InFlight        int64                      `json:"in_flight"`
	Succeeded       int64                      `json:"succeeded"`
	Failed          int64                      `json:"failed"`
	Canceled        int64                      `json:"canceled"`
	Throttled       int64                      `json:"throttled"`
	Retried         int64                      `json:"retried"`
	Result          map[string]json.RawMessage `json:"result"`
	ResultTruncated bool                       `json:"result_truncated,omitempty"`
	Error           string                     `json:"error"`
	RunAt           *time.Time                 `json:"run_at"`
	CreatedAt       time.Time                  `json:"created_at"`
	FinishedAt      *time.Time                 `json:"finished_at"`
}

// Event returns an event about the action. The store sets its ID.
func (a *Action) Event(eventType string, at time.Time) (Event, error) {
	data := actionData{
		ID: a.ID, Tenant: a.Tenant, Type: a.Type, Target: a.Target.Redacted(), Class: a.Class, Key: a.Key, Status: a.Status, Paused: a.Paused,
		Received: a.Received, Pending: a.Pending, Ready: a.Ready, NonReady: a.NonReadyTotal(),
		NonReadyReasons: make(map[string]int64, nonReadyReasons),
		InFlight:        a.InFlight, Succeeded: a.Succeeded, Failed: a.Failed, Canceled: a.Counts.Canceled,
		Throttled: a.Throttled, Retried: a.Retried, Error: a.Error[:min(len(a.Error), MaxErrorBytes)],
		RunAt: orNull(a.RunAt), CreatedAt: a.CreatedAt.UTC(), FinishedAt: orNull(a.FinishedAt),
	}
	for reason, jobs := range a.NonReady {
		if reason := NonReadyReason(reason); jobs > 0 || reason != KeyLimited { // as in the API
			data.NonReadyReasons[reason.String()] = jobs
		}
	}
	if to := data.Target; to != nil {
		to.URL = to.URL[:min(len(to.URL), maxEventURL)]
	}
	if !a.EnteredAt.IsZero() && !a.Open {
		data.Total = &a.Total
	}
	if a.Status.Final() {
		data.Result, data.ResultTruncated = boundResults(a.Result)
	}
	if a.Status == Completed && a.Result == nil {
		data.Result = map[string]json.RawMessage{}
	}
	encoded, err := marshal(data)
	return Event{Type: eventType, Subject: a.ID, Action: a.ID, Tenant: a.Tenant, Time: at.UTC(), Data: encoded}, err
}

// boundResults drops the results if they are too long together.
func boundResults(results map[string]json.RawMessage) (bounded map[string]json.RawMessage, truncated bool) {
	bytes := 0
	for name, result := range results {
		bytes += len(name) + len(result)
	}
	if bytes > MaxEventResult {
		return nil, true
	}
	return results, false
}

// orNull returns a time that is null in JSON if it is zero.
func orNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// JobResult is the final result of a job, for its event.
type JobResult struct {
	Action    string
	Tenant    string
	Index     int64
	Succeeded bool
	Attempts  int
	// Result is the result of a job that succeeded, at most MaxEventResult bytes.
	// ResultTruncated reports whether the result was larger and was omitted.
	Result          []byte
	ResultTruncated bool
	// Error is the error of a job's last failed attempt. For a job that succeeded, it is
	// why the result could not be aggregated. At most MaxErrorBytes.
	Error      string
	FinishedAt time.Time
}

// jobData is the JSON object of a JobResult.
type jobData struct {
	ID              string          `json:"id"`
	Action          string          `json:"action"`
	Tenant          string          `json:"tenant"`
	Index           int64           `json:"index"`
	Status          string          `json:"status"`
	Attempts        int             `json:"attempts"`
	Result          json.RawMessage `json:"result"`
	ResultTruncated bool            `json:"result_truncated,omitempty"`
	Error           string          `json:"error"`
	FinishedAt      time.Time       `json:"finished_at"`
}

// Event returns the event of a job that has finished. The store sets its ID.
func (r *JobResult) Event() (Event, error) {
	e := Event{
		Type: JobSucceeded, Subject: JobID(r.Action, r.Index), Action: r.Action, Tenant: r.Tenant, Time: r.FinishedAt.UTC(),
	}
	data := jobData{
		ID: e.Subject, Action: r.Action, Tenant: r.Tenant, Index: r.Index, Status: "succeeded", Attempts: r.Attempts,
		ResultTruncated: r.ResultTruncated, Error: r.Error, FinishedAt: e.Time,
	}
	if !r.Succeeded {
		e.Type, data.Status = JobFailed, "failed"
	}
	var err error
	if data.Result, err = ResultJSON(r.Result); err != nil {
		return e, err
	}
	e.Data, err = marshal(data)
	return e, err
}

// ResultJSON returns a job's result as JSON: itself, or as text if it is not JSON, as handlers in
// Go may return anything. Nil stays nil.
func ResultJSON(result []byte) (json.RawMessage, error) {
	if len(result) == 0 {
		return nil, nil
	}
	if json.Valid(result) {
		return result, nil
	}
	return marshal(strings.ToValidUTF8(string(result), "\uFFFD"))
}
