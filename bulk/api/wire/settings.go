package wire

import (
	"encoding/json"
	"fmt"
)

// Tenant holds the settings of one tenant. A PUT replaces them all: an absent
// field is set to its default.
type Tenant struct {
	BasePriority      int64   `json:"base_priority" required:"false" minimum:"-1000000000000000" maximum:"1000000000000000" doc:"Milliseconds by which the tenant's actions rank as older. Default 0."`
	Weight            float64 `json:"weight,omitempty" exclusiveMinimum:"0" maximum:"1000" doc:"The tenant's share relative to other tenants. Default 1."`
	RequestsPerSecond float64 `json:"requests_per_second" required:"false" minimum:"0" maximum:"1000000000" doc:"Limits the attempts started for the tenant. Default 0: no limit of its own."`
	Concurrency       int     `json:"concurrency,omitempty" minimum:"0" maximum:"1000000" doc:"Limits the tenant's attempts in flight. Default 0: no limit of its own."`
	Pacing            string  `json:"pacing,omitempty" enum:"window,smooth" doc:"How requests_per_second is spread: within each window at any time, or evenly, so that any span of a second holds at most the rate. Default window."`

	Keys map[string]KeyLimit `json:"keys,omitempty" doc:"Limits of the tenant's jobs that have one key, by the CEL expression that computes the key of a job from payload, type, target, key and tenant, such as payload.customer. At most 8. Default: none."`

	MaxActions int64 `json:"max_actions,omitempty" minimum:"0" maximum:"1000000000000" doc:"The most unfinished actions, streams among them. Default 0: no bound."`
	MaxJobs    int64 `json:"max_jobs,omitempty" minimum:"0" maximum:"1000000000000" doc:"The most jobs of unfinished actions, done jobs among them. Default 0: no bound."`
	MaxBytes   int64 `json:"max_bytes,omitempty" minimum:"0" maximum:"100000000000000" doc:"The most bytes of payloads of unfinished actions. Default 0: no bound."`

	// Stored is nil while it is not known.
	Stored *Stored `json:"stored,omitempty" readOnly:"true" doc:"What counts in these quotas now. Absent while the part of the store that counts it does not answer. A PUT ignores it."`
}

// Stored counts what a tenant has stored.
type Stored struct {
	Actions int64 `json:"actions" doc:"Unfinished actions."`
	Jobs    int64 `json:"jobs" doc:"Their jobs, done jobs among them."`
	Bytes   int64 `json:"bytes" doc:"The bytes of their payloads."`
}

// KeyLimit limits the jobs of a tenant that have one key, each key for itself.
type KeyLimit struct {
	RequestsPerSecond float64 `json:"requests_per_second,omitempty" minimum:"0" maximum:"1000000000" doc:"Limits the attempts started of each key. Default 0: no limit."`
	Concurrency       int     `json:"concurrency,omitempty" minimum:"0" maximum:"1000000" doc:"Limits the attempts of each key in flight. Default 0: no limit."`
	Pacing            string  `json:"pacing,omitempty" enum:"window,smooth" doc:"How requests_per_second is spread. Default window."`
	Cost              string  `json:"cost,omitempty" maxLength:"512" doc:"The CEL expression of what an attempt counts in requests_per_second, from 1 to 1,000,000, such as payload.tokens. Default: each counts 1."`
}

// TargetLimits holds the settings of one target. A PUT replaces them all: an absent
// field is set to its default. Package api has its schema.
type TargetLimits struct {
	// RequestsPerSecond is 0 for no limit, or Auto.
	RequestsPerSecond Rate `json:"requests_per_second"`
	// Concurrency is 0 for no limit.
	Concurrency int `json:"concurrency"`
	// Pacing is window, the default, or smooth.
	Pacing string `json:"pacing,omitempty"`
	// URLPrefix is where the target is: actions give a path below it.
	URLPrefix string `json:"url_prefix,omitempty"`
	// Secrets sign the requests to the target. Nil, in a PUT, leaves them as they are, and
	// an empty list removes them. They are never answered: SecretCount is.
	Secrets []string `json:"secrets,omitzero"`
	// SecretCount is how many secrets the target has. A PUT ignores it.
	SecretCount int `json:"secret_count,omitempty"`
	// Tenants are those that may use the target; none: all.
	Tenants []string `json:"tenants,omitempty"`
	// FoundRequestsPerSecond is the current rate where RequestsPerSecond is Auto, else
	// absent. A PUT ignores it.
	FoundRequestsPerSecond float64 `json:"found_requests_per_second,omitempty"`
}

// Rate is a number of attempts per second, or Auto.
type Rate float64

// Auto is a rate that is found from the outcomes of attempts. In JSON it is "auto".
const Auto Rate = -1

// MaxRate is the highest rate that can be set.
const MaxRate = 1_000_000_000

const autoText = `"auto"`

// MarshalJSON writes a number or "auto".
func (r Rate) MarshalJSON() ([]byte, error) {
	if r == Auto {
		return []byte(autoText), nil
	}
	return json.Marshal(float64(r))
}

// UnmarshalJSON reads a number from 0, or "auto".
func (r *Rate) UnmarshalJSON(raw []byte) error {
	if string(raw) == autoText {
		*r = Auto
		return nil
	}
	var number float64
	if err := json.Unmarshal(raw, &number); err != nil || number < 0 {
		return fmt.Errorf("rate %.40s: want a number from 0, or %s", raw, autoText)
	}
	*r = Rate(number)
	return nil
}

// Limits holds the limits of the whole service.
type Limits struct {
	RequestsPerSecond float64 `json:"requests_per_second" required:"false" minimum:"0" maximum:"1000000000" doc:"Limits the attempts started by all tenants together. Default 0: no limit."`
	Concurrency       int     `json:"concurrency,omitempty" minimum:"0" maximum:"1000000" doc:"Limits the attempts in flight of all tenants together. Default 0: no limit."`
	Pacing            string  `json:"pacing,omitempty" enum:"window,smooth" doc:"How requests_per_second is spread: within each window at any time, or evenly, so that any span of a second holds at most the rate. Default window."`
}

// TypeLimits holds the settings of one job type.
type TypeLimits struct {
	Concurrency       int     `json:"concurrency" required:"false" minimum:"0" maximum:"10000" doc:"The workers of this type in each instance. Default 0: that of the instance's settings."`
	TotalConcurrency  int     `json:"total_concurrency,omitempty" minimum:"0" maximum:"1000000" doc:"Limits the attempts in flight in all instances and remote workers; not for webhooks, which targets limit. Default 0: no limit."`
	RequestsPerSecond float64 `json:"requests_per_second,omitempty" minimum:"0" maximum:"1000000000" doc:"Limits the attempts started; not for webhooks. Default 0: no limit."`
	Pacing            string  `json:"pacing,omitempty" enum:"window,smooth" doc:"How requests_per_second is spread: within each window at any time, or evenly, so that any span of a second holds at most the rate. Default window."`
}
