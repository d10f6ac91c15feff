package wire

import (
	"encoding/json"
	"time"
)

// JobState is where one job is and, if it has not ended, why it does not run.
type JobState struct {
	ID       string          `json:"id" doc:"The job's id."`
	Action   string          `json:"action"`
	Index    int64           `json:"index" doc:"The job's place in its action, from 0, in upload order."`
	State    string          `json:"state" enum:"pending,ready,non_ready,in_flight,succeeded,failed,canceled" doc:"Where the action's counts have the job."`
	Attempts *int            `json:"attempts" doc:"How many attempts were made, with the present one; throttled ones do not count. Null where it is no longer known."`
	Error    string          `json:"error" doc:"Why the job failed; empty if it did not, or if it was replayed."`
	Result   json.RawMessage `json:"result,omitempty" doc:"What the job returned, any JSON value, where keep_results asks for it; absent where there is none."`
	// ResultTruncated is as in events.
	ResultTruncated bool `json:"result_truncated,omitempty" doc:"Whether the result was larger than 64 KiB, and was not kept. Absent if not."`
	// Reason is one of bulk's constants Why…, or a key of NonReadyReasons.
	Reason        *string      `json:"reason" enum:"in_flight,paused,not_sealed,run_at,starting,rate_limited,api_throttled,transient_error,key_limited,target_down,no_worker,global_limit,tenant_limit,target_limit,global_concurrency,tenant_concurrency,target_concurrency,congestion,long_attempts,workers_busy,in_line,next" doc:"What holds the job back; null if it has ended."`
	Explanation   *string      `json:"explanation" doc:"The reason as a sentence; null if the job has ended."`
	HeldBy        []TenantJobs `json:"held_by" nullable:"false" maxItems:"3" doc:"The tenants with the most jobs ready or in flight of what the job waits for: of its type, its target, or all."`
	Place         *int64       `json:"place" doc:"How many jobs of its tenant and type go before it; null if it is not in line, or if too many have returned to count."`
	EarliestStart *time.Time   `json:"earliest_start" doc:"Before this it does not start: its run_at, when it is due, or the end of the window; null if that is not known."`
	Deadline      *time.Time   `json:"deadline" doc:"When the lease of a job in flight ends unless it is extended; else null."`
	FailedAt      *time.Time   `json:"failed_at" doc:"Null unless the job is a dead letter."`
}

// TenantJobs counts jobs of a tenant that are ready or in flight.
type TenantJobs struct {
	Tenant string `json:"tenant"`
	Jobs   int64  `json:"jobs"`
}

// FirstJob, in place of an index, is the first job that has not ended.
const FirstJob = "first"
