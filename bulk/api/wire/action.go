package wire

import (
	"encoding/json"
	"time"
)

// Target is what the jobs of an action call.
type Target struct {
	Name string `json:"name,omitempty" maxLength:"256" doc:"The target's name, by which it has limits, secrets and a prefix. Default: the URL's host:port."`
	URL  string `json:"url,omitempty" doc:"Where each job is sent: the whole URL, http or https; or, if the target has a url_prefix, a path below it, or nothing for the prefix. Answers have the whole URL, with xxxxx for its user and the values of its query."`
}

// NewAction asks for an action.
type NewAction struct {
	Tenant      string     `json:"tenant" minLength:"1" maxLength:"256" doc:"The customer whose jobs these are: the unit of fairness and limits."`
	Type        string     `json:"type,omitempty" doc:"The handler of the jobs. Give either a type or a target."`
	Target      *Target    `json:"target,omitempty" doc:"The webhook that each job is sent to. Give either a type or a target."`
	Class       string     `json:"class,omitempty" enum:"high,normal,low" doc:"Orders the actions within a tenant. Default normal."`
	Key         string     `json:"key,omitempty" maxLength:"256" doc:"Which of the tenant's own customers the jobs are for: the keys of a tenant that wait have equal parts of what the tenant gets, however many actions and jobs each has. Printable characters; default: the empty key, which is one like any other."`
	Cost        int64      `json:"cost,omitempty" minimum:"0" maximum:"1000000" doc:"The value of cost in the expressions of limits by key: what one attempt of the jobs counts where a limit says so. Default 1."`
	ID          string     `json:"id,omitempty" maxLength:"128" doc:"A repeated request with the same id creates one action. Letters, digits and . _ : - ; generated if absent."`
	Aggregate   []string   `json:"aggregate,omitempty" nullable:"false" maxItems:"32" doc:"What is computed from the results, such as count, sum:FIELD or top-errors."`
	RunAt       *time.Time `json:"run_at,omitempty" nullable:"true" doc:"The earliest time of the first attempt. Default: at once."`
	MaxAttempts int        `json:"max_attempts,omitempty" minimum:"0" maximum:"100" doc:"The most attempts of one job; 0 is the default of its type."`
	TimeoutMS   int64      `json:"timeout_ms,omitempty" minimum:"0" maximum:"86400000" doc:"The most time for one attempt; 0 is the default of its type."`
	FailAbove   *float64   `json:"fail_above,omitempty" nullable:"true" minimum:"0" maximum:"1" doc:"The share of failed jobs above which the action ends as FAILED. Default 1."`
	KeepResults bool       `json:"keep_results,omitempty" doc:"Keep what each job returns, up to 64 KiB, until the action is forgotten: GET /v1/actions/{id}/jobs/{index} has it."`
	Events      []string   `json:"events,omitempty" nullable:"false" doc:"What is published: jobs, an event for each finished job. Events of actions are always published; actions may be listed."`
}

// Created names an action that was created.
type Created struct {
	ID     string `json:"id"`
	Status string `json:"status"`
}

// Action is one bulk action and the states of its jobs.
type Action struct {
	ID                string                     `json:"id"`
	Tenant            string                     `json:"tenant"`
	Type              string                     `json:"type"`
	Target            *Target                    `json:"target,omitempty" doc:"Absent where the jobs have a type of their own."`
	Class             string                     `json:"class" enum:"high,normal,low"`
	Key               string                     `json:"key,omitempty" doc:"Absent if it is empty."`
	Cost              int64                      `json:"cost,omitempty" doc:"Absent if it is the default."`
	Status            string                     `json:"status" enum:"CREATED,DISPATCHED,RUNNING,AGGREGATING,COMPLETED,FAILED,CANCELED"`
	Paused            bool                       `json:"paused"`
	Open              bool                       `json:"open,omitempty" doc:"Whether the action is a stream, which takes jobs that are enqueued one at a time. Absent if not."`
	Total             *int64                     `json:"total" doc:"How many jobs the action has; null before the seal."`
	Received          int64                      `json:"received" doc:"How many jobs were uploaded: the sum of the counts that follow, without throttled and retried."`
	Pending           int64                      `json:"pending"`
	Ready             int64                      `json:"ready"`
	NonReady          int64                      `json:"non_ready"`
	NonReadyReasons   NonReadyReasons            `json:"non_ready_reasons"`
	InFlight          int64                      `json:"in_flight"`
	Succeeded         int64                      `json:"succeeded"`
	Failed            int64                      `json:"failed"`
	Canceled          int64                      `json:"canceled"`
	Throttled         int64                      `json:"throttled" doc:"Attempts that a target throttled."`
	Retried           int64                      `json:"retried" doc:"Attempts that failed and were retried."`
	Result            map[string]json.RawMessage `json:"result" nullable:"true" doc:"One entry for each aggregate; null until the action has finished."`
	Error             string                     `json:"error" doc:"Why the action failed; empty if it did not."`
	RunAt             *time.Time                 `json:"run_at" doc:"The earliest time of the first attempt; null: at once."`
	CreatedAt         time.Time                  `json:"created_at"`
	FinishedAt        *time.Time                 `json:"finished_at" doc:"Null until the action has finished."`
	EstimatedFinishAt *time.Time                 `json:"estimated_finish_at" doc:"Null when unknown."`
}

// NonReadyReasons counts the jobs in the non-ready queue, by reason.
type NonReadyReasons struct {
	RateLimited    int64 `json:"rate_limited"`
	APIThrottled   int64 `json:"api_throttled"`
	TransientError int64 `json:"transient_error"`
	KeyLimited     int64 `json:"key_limited,omitempty" doc:"Jobs that wait for a limit by their key."`
	TargetDown     int64 `json:"target_down,omitempty" doc:"Jobs that wait because this server takes their target for down."`
}

// The statuses of an action; the last three are final.
const (
	StatusCreated     = "CREATED"
	StatusDispatched  = "DISPATCHED"
	StatusRunning     = "RUNNING"
	StatusAggregating = "AGGREGATING"
	StatusCompleted   = "COMPLETED"
	StatusFailed      = "FAILED"
	StatusCanceled    = "CANCELED"
)

// Final reports whether the action's status never changes again. Jobs of a
// canceled action may still be in flight until FinishedAt is set.
func (a *Action) Final() bool {
	return a.Status == StatusCompleted || a.Status == StatusFailed || a.Status == StatusCanceled
}

// Actions is one page of actions, in the order of their creation.
type Actions struct {
	Actions []Action `json:"actions" nullable:"false"`
	Next    *string  `json:"next" doc:"The after of the next page, which may be empty and have a next itself; null if there is none."`
}

// Received says how many jobs of an action are durable.
type Received struct {
	Received int64 `json:"received" doc:"How many jobs of the action are durable: the next Upload-Offset."`
}

// Seal declares that all jobs were sent.
type Seal struct {
	Total int64 `json:"total" minimum:"0" doc:"How many jobs the action has."`
}

// Change says which actions to change, and how.
type Change struct {
	Do     string `json:"do" enum:"pause,resume,cancel,replay" doc:"What to do. Replay runs the failed jobs of finished actions, and of streams, again; the others look at the actions that have not finished."`
	Action string `json:"action,omitempty" doc:"Only the action with this id."`
	Tenant string `json:"tenant,omitempty" doc:"Only the actions of this tenant."`
	Type   string `json:"type,omitempty" doc:"Only those whose jobs have this type."`
	Target string `json:"target,omitempty" doc:"Only those with the target of this name."`
	Status string `json:"status,omitempty" enum:"CREATED,DISPATCHED,RUNNING,AGGREGATING,COMPLETED,FAILED,CANCELED" doc:"Only those in this status."`
	FailureFilter
	All    bool   `json:"all,omitempty" doc:"Needed to change every action: without anything that selects some."`
	DryRun bool   `json:"dry_run,omitempty" doc:"Count what would be changed, and change nothing."`
	After  string `json:"after,omitempty" maxLength:"160" doc:"The next of the request before."`
	Limit  int    `json:"limit,omitempty" minimum:"0" maximum:"1000" doc:"The most actions to change; 0 is 1,000."`
}

// WaitingActions is one page of the actions with jobs that wait, in the order of their creation.
type WaitingActions struct {
	Waits []WaitingAction `json:"waits" nullable:"false"`
	Next  *string         `json:"next" doc:"The after of the next page, which may be empty and have a next itself; null if there is none."`
}

// WaitingAction is an action with jobs that wait.
type WaitingAction struct {
	Tenant  string   `json:"tenant"`
	Type    string   `json:"type"`
	Target  string   `json:"target" doc:"The name of its target; empty if it has none."`
	Waiting int64    `json:"waiting" doc:"How many of its jobs wait: pending, ready and non-ready ones."`
	Job     JobState `json:"job" doc:"Its first job that has not ended, and why it does not run."`
}

// Workers is one page of the job types, by name.
type Workers struct {
	Workers []Workforce `json:"workers" nullable:"false"`
	Next    *string     `json:"next" doc:"The after of the next page; null if there is none."`
}

// Workforce is who runs the jobs of one type, and what there is to do.
type Workforce struct {
	Type     string `json:"type"`
	Workers  int64  `json:"workers" doc:"The workers that the server knows: its own, and the jobs that remote workers have or wait for."`
	Here     int64  `json:"here" doc:"How many of them are of the server that answers."`
	Waiting  int64  `json:"waiting" doc:"How many jobs wait in line."`
	Ready    int64  `json:"ready" doc:"How many jobs are ready to start."`
	InFlight int64  `json:"in_flight" doc:"How many jobs are being done."`
	Idle     bool   `json:"idle" doc:"True if jobs are ready and no worker asks for them."`
}

// FailureFilter selects failed jobs by why and when they failed; those that match all that is given.
type FailureFilter struct {
	Cause string    `json:"cause,omitempty" query:"cause" pattern:"^([1-9]([0-9]{2}|xx)|timeout)?$" patternDescription:"a status such as 503, a class such as 5xx, or timeout" doc:"Only failed jobs with this cause: a status of HTTP such as 503, a class of them such as 5xx, or timeout."`
	Error string    `json:"error,omitempty" query:"error" maxLength:"1024" doc:"Only failed jobs whose error contains this, in upper or lower case."`
	Since time.Time `json:"since,omitzero" query:"since" doc:"Only jobs that failed at this time or later."`
	Until time.Time `json:"until,omitzero" query:"until" doc:"Only jobs that failed before this time."`
}

// Changed counts what a change did.
type Changed struct {
	Matched int     `json:"matched" doc:"How many actions were selected."`
	Changed int     `json:"changed" doc:"How many of them were changed. The others were changed before, or their status does not allow it."`
	Jobs    int64   `json:"jobs" doc:"How many jobs of the changed actions had not ended, or are replayed."`
	Next    *string `json:"next" doc:"The after of the next request; null if all actions were looked at. Those created since the first request are not."`
}

// DeadLetter is a job that failed permanently.
type DeadLetter struct {
	ID       string          `json:"id" doc:"The job's id."`
	Action   string          `json:"action"`
	Index    int64           `json:"index" doc:"The job's place in its action, from 0, in upload order."`
	Payload  json.RawMessage `json:"payload"`
	Error    string          `json:"error" doc:"Of the last attempt."`
	Cause    string          `json:"cause" doc:"What the error says: the status of HTTP with which the target answered, or timeout; else empty."`
	Attempts int             `json:"attempts"`
	FailedAt time.Time       `json:"failed_at"`
}

// Failures is one page of the failed jobs of an action, by index.
type Failures struct {
	Failures []DeadLetter `json:"failures" nullable:"false"`
	Next     *int64       `json:"next" doc:"The from of the next page; null if there is none."`
}

// DeadLetters is one page of dead letters, in the order of their actions'
// creation and then by index.
type DeadLetters struct {
	DeadLetters []DeadLetter `json:"dead_letters" nullable:"false"`
	Next        *string      `json:"next" doc:"The after of the next page, which may be empty and have a next itself; null if there is none."`
}

// Replay asks to run the dead letters of a finished action, or of a stream, again.
type Replay struct {
	Action string `json:"action" minLength:"1" doc:"The finished action, or the stream, whose dead letters are run again, in a new action."`
	FailureFilter
}
