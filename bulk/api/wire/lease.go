package wire

import (
	"encoding/json"
	"time"
)

// LeaseRequest asks for ready jobs.
type LeaseRequest struct {
	Types   []string `json:"types" nullable:"false" minItems:"1" maxItems:"100" doc:"The job types to lease; jobs are taken from them in turn."`
	Max     int      `json:"max,omitempty" minimum:"1" maximum:"1000" default:"1" doc:"The most jobs to lease."`
	WaitMS  int64    `json:"wait_ms,omitempty" minimum:"0" maximum:"60000" doc:"How long to wait for the first job. Default 0: answer at once."`
	LeaseMS int64    `json:"lease_ms,omitempty" minimum:"1000" maximum:"43200000" doc:"The time until the lease ends. Default: the server's setting bulk.lease."`
}

// Leases are the jobs that were leased; none if none was ready in time.
type Leases struct {
	Jobs []Job `json:"jobs" nullable:"false"`
}

// Job is one leased job.
type Job struct {
	ID       string          `json:"id" doc:"The same in every attempt."`
	Action   string          `json:"action"`
	Type     string          `json:"type"`
	Payload  json.RawMessage `json:"payload"`
	Attempt  int             `json:"attempt" doc:"Counts from 1; throttled attempts do not count."`
	Lease    string          `json:"lease" doc:"The token that acknowledges this attempt."`
	Deadline time.Time       `json:"deadline" doc:"When the job is given to another worker."`
	// Traceparent and Tracestate are for the worker's spans.
	Traceparent string `json:"traceparent,omitempty" doc:"The attempt in the action's trace, as W3C Trace Context has it, for the spans of the worker. Absent if the action is not traced."`
	Tracestate  string `json:"tracestate,omitempty" doc:"The vendor state of traceparent, if there is any."`
}

// Acknowledgement reports outcomes of leases.
type Acknowledgement struct {
	Outcomes []Outcome `json:"outcomes" nullable:"false" minItems:"1" maxItems:"1000"`
}

// The statuses of an Outcome.
const (
	// OutcomeSucceeded is final.
	OutcomeSucceeded = "succeeded"
	// OutcomeFailed is final: the job becomes a dead letter.
	OutcomeFailed = "failed"
	// OutcomeRetry uses an attempt; the job is retried while it has attempts left.
	OutcomeRetry = "retry"
	// OutcomeThrottled uses no attempt; the job waits for its slot.
	OutcomeThrottled = "throttled"
	// OutcomeReleased uses no attempt; the job is due at once.
	OutcomeReleased = "released"
)

// Outcome is the outcome of one lease.
type Outcome struct {
	Lease        string          `json:"lease"`
	Status       string          `json:"status" enum:"succeeded,failed,retry,throttled,released" doc:"failed is final; retry uses an attempt; throttled and released use none."`
	Result       json.RawMessage `json:"result,omitempty" doc:"The result of a successful job, any JSON value, for the action's aggregates."`
	Error        string          `json:"error,omitempty" doc:"Why the attempt did not succeed. The first 1,024 bytes are kept."`
	RetryAfterMS int64           `json:"retry_after_ms,omitempty" minimum:"0" maximum:"86400000" doc:"The Retry-After of the target, for retry and throttled."`
	TookMS       int64           `json:"took_ms,omitempty" minimum:"0" maximum:"604800000" doc:"How long the attempt ran, for the latency aggregates."`
	Cost         int64           `json:"cost,omitempty" minimum:"0" maximum:"1000000" doc:"What the attempt has really cost, for limits by key with a cost. Default: what was charged when it started."`
}

// Extension asks for more time for leases.
type Extension struct {
	Leases  []string `json:"leases" nullable:"false" minItems:"1" maxItems:"1000"`
	LeaseMS int64    `json:"lease_ms,omitempty" minimum:"1000" maximum:"43200000" doc:"The time from now until the leases end. Default: the server's setting bulk.lease."`
}

// Verdicts has one verdict for each lease of the request, in its order.
type Verdicts struct {
	Verdicts []Verdict `json:"verdicts" nullable:"false"`
}

// Verdict is the server's answer to the report on one lease.
type Verdict struct {
	Lease   string `json:"lease"`
	Verdict string `json:"verdict" enum:"accepted,duplicate,expired,unknown,canceled" doc:"Only accepted changed anything. canceled, of an extension alone: the lease goes on, but the action was canceled; stop and release the job."`
}
