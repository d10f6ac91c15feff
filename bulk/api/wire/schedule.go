package wire

import (
	"encoding/json"
	"time"
)

// NewSchedule asks for a recurring action.
type NewSchedule struct {
	Cron      string            `json:"cron" minLength:"1" maxLength:"256" doc:"When: five fields (minute, hour, day of the month, month, day of the week), @hourly, @daily, @weekly, @monthly, @yearly, or @every 90m."`
	TimeZone  string            `json:"time_zone,omitempty" maxLength:"64" doc:"The IANA time zone of the fields. Default UTC."`
	Jobs      []json.RawMessage `json:"jobs" nullable:"false" minItems:"1" maxItems:"10000" doc:"The payloads of each action, any JSON values, together at most 1 MiB."`
	Overlap   string            `json:"overlap,omitempty" enum:"skip,allow" doc:"Whether a run starts while the one before has not finished. Default skip."`
	CatchUpMS *int64            `json:"catch_up_ms,omitempty" nullable:"true" minimum:"0" maximum:"604800000" doc:"How late a missed run may start; of several, only the latest does. Default 1 h; 0: never."`

	Tenant      string   `json:"tenant" minLength:"1" maxLength:"256" doc:"The customer whose jobs these are: the unit of fairness and limits."`
	Type        string   `json:"type,omitempty" doc:"The handler of the jobs. Give either a type or a target."`
	Target      *Target  `json:"target,omitempty" doc:"The webhook that each job is sent to. Give either a type or a target."`
	Class       string   `json:"class,omitempty" enum:"high,normal,low" doc:"Orders the actions within a tenant. Default normal."`
	Key         string   `json:"key,omitempty" maxLength:"256" doc:"Which of the tenant's own customers the jobs are for: the keys of a tenant that wait have equal parts of what the tenant gets, however many actions and jobs each has. Printable characters; default: the empty key, which is one like any other."`
	Cost        int64    `json:"cost,omitempty" minimum:"0" maximum:"1000000" doc:"The value of cost in the expressions of limits by key: what one attempt of the jobs counts where a limit says so. Default 1."`
	Aggregate   []string `json:"aggregate,omitempty" nullable:"false" maxItems:"32" doc:"What is computed from the results, such as count, sum:FIELD or top-errors."`
	MaxAttempts int      `json:"max_attempts,omitempty" minimum:"0" maximum:"100" doc:"The most attempts of one job; 0 is the default of its type."`
	TimeoutMS   int64    `json:"timeout_ms,omitempty" minimum:"0" maximum:"86400000" doc:"The most time for one attempt; 0 is the default of its type."`
	FailAbove   *float64 `json:"fail_above,omitempty" nullable:"true" minimum:"0" maximum:"1" doc:"The share of failed jobs above which an action ends as FAILED. Default 1."`
	KeepResults bool     `json:"keep_results,omitempty" doc:"Keep what each job returns, up to 64 KiB, until its action is forgotten."`
	Events      []string `json:"events,omitempty" nullable:"false" doc:"What is published: jobs, an event for each finished job. Events of actions are always published; actions may be listed."`
}

// Schedule is a schedule, and its last run.
type Schedule struct {
	Name      string            `json:"name"`
	Cron      string            `json:"cron"`
	TimeZone  string            `json:"time_zone"`
	Total     int64             `json:"total" doc:"How many jobs each action has."`
	Jobs      []json.RawMessage `json:"jobs,omitempty" nullable:"false" doc:"The payloads; left out of lists."`
	Overlap   string            `json:"overlap" enum:"skip,allow"`
	CatchUpMS int64             `json:"catch_up_ms" doc:"0: missed runs do not start."`

	Tenant      string   `json:"tenant"`
	Type        string   `json:"type"`
	Target      *Target  `json:"target,omitempty" doc:"Absent where the jobs have a type of their own."`
	Class       string   `json:"class" enum:"high,normal,low"`
	Key         string   `json:"key,omitempty" doc:"Absent if it is empty."`
	Cost        int64    `json:"cost,omitempty" doc:"Absent if it is the default."`
	Aggregate   []string `json:"aggregate" nullable:"false"`
	MaxAttempts int      `json:"max_attempts" doc:"0: the default of the type."`
	TimeoutMS   int64    `json:"timeout_ms" doc:"0: the default of the type."`
	FailAbove   *float64 `json:"fail_above" doc:"Null: an action is COMPLETED however many jobs fail."`
	KeepResults bool     `json:"keep_results"`
	Events      []string `json:"events" nullable:"false"`

	Paused        bool       `json:"paused"`
	CreatedAt     time.Time  `json:"created_at"`
	UpdatedAt     time.Time  `json:"updated_at" doc:"When the definition last changed."`
	NextRunAt     *time.Time `json:"next_run_at" doc:"Null while the schedule is paused, or if no run follows."`
	LastRunAt     *time.Time `json:"last_run_at" doc:"When the last run was due, or requested; null if there was none."`
	LastAction    *string    `json:"last_action" doc:"The id of the action of the last run; null if there was none."`
	LastSkippedAt *time.Time `json:"last_skipped_at" doc:"When the last run was due that was skipped because the one before had not finished."`
	LastError     string     `json:"last_error" doc:"Why the last run did not start; empty if it did."`
}

// Schedules has all schedules, by name, without their jobs.
type Schedules struct {
	Schedules []Schedule `json:"schedules" nullable:"false"`
}
