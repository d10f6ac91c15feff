package wire

import (
	"encoding/json"
	"time"
)

// NewJob asks to enqueue one job.
type NewJob struct {
	Tenant      string          `json:"tenant" minLength:"1" maxLength:"256" doc:"The customer whose job this is: the unit of fairness and limits."`
	Type        string          `json:"type,omitempty" doc:"The handler of the job. Give either a type or a target."`
	Target      *Target         `json:"target,omitempty" doc:"The webhook that the job is sent to. Give either a type or a target."`
	Payload     json.RawMessage `json:"payload" doc:"Any JSON value, of at most 1 MiB."`
	Class       string          `json:"class,omitempty" enum:"high,normal,low" doc:"Orders the actions within a tenant. Default normal."`
	Key         string          `json:"key,omitempty" maxLength:"256" doc:"Which of the tenant's own customers the job is for: the keys of a tenant that wait have equal parts of what the tenant gets, however many actions and jobs each has. Printable characters; default: the empty key, which is one like any other."`
	Cost        int64           `json:"cost,omitempty" minimum:"0" maximum:"1000000" doc:"The value of cost in the expressions of limits by key: what one attempt of the job counts where a limit says so. Default 1."`
	MaxAttempts int             `json:"max_attempts,omitempty" minimum:"0" maximum:"100" doc:"The most attempts of the job; 0 is the default of its type."`
	TimeoutMS   int64           `json:"timeout_ms,omitempty" minimum:"0" maximum:"86400000" doc:"The most time for one attempt; 0 is the default of its type."`
	KeepResults bool            `json:"keep_results,omitempty" doc:"Keep what the job returns, up to 64 KiB, until it is forgotten: GET /v1/actions/{id}/jobs/{index} has it."`
	RunAt       *time.Time      `json:"run_at,omitempty" nullable:"true" doc:"The earliest time of the first attempt, at most 10 years ahead. Default: at once."`
	Unique      string          `json:"unique,omitempty" maxLength:"256" doc:"A key of at most 256 bytes: while a job with this key, tenant, type and target is kept, another is not enqueued."`
	UniqueForMS int64           `json:"unique_for_ms,omitempty" minimum:"0" maximum:"316224000000" doc:"The length of the windows of time in which the key is unique. They begin at multiples of it since 1970. Default: as long as the job is kept."`
}

// Enqueued says where an enqueued job is.
type Enqueued struct {
	ID        string `json:"id" doc:"The job's id."`
	Action    string `json:"action" doc:"The action that the job is in: a stream, or one of its own."`
	Index     int64  `json:"index" doc:"The job's place in its action, from 0."`
	Duplicate bool   `json:"duplicate" doc:"Whether nothing was enqueued, as there is a job with its key: this one."`
}
