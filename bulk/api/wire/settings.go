package wire

// Tenant holds the settings of one tenant. A PUT replaces them all: an absent
// field is set to its default.
type Tenant struct {
	BasePriority      int64   `json:"base_priority" required:"false" minimum:"-1000000000000000" maximum:"1000000000000000" doc:"Milliseconds by which the tenant's actions rank as older. Default 0."`
	Weight            float64 `json:"weight,omitempty" exclusiveMinimum:"0" maximum:"1000" doc:"The tenant's part of what is divided, relative to the others. Default 1."`
	RequestsPerSecond float64 `json:"requests_per_second" required:"false" minimum:"0" maximum:"1000000000" doc:"Limits the attempts started for the tenant. Default 0: no limit of its own."`
}

// TargetLimits holds the settings of one target. A PUT replaces them all: an absent field is set to its
// default.
type TargetLimits struct {
	RequestsPerSecond float64 `json:"requests_per_second" required:"false" minimum:"0" maximum:"1000000000" doc:"Limits the attempts started against the target. Default 0: no limit."`
	Concurrency       int     `json:"concurrency" required:"false" minimum:"0" maximum:"1000000" doc:"Limits the attempts in flight against the target. Default 0: no limit."`
}

// Limits holds the limits of the whole service.
type Limits struct {
	RequestsPerSecond float64 `json:"requests_per_second" minimum:"0" maximum:"1000000000" doc:"Limits the attempts started by all tenants together. 0: no limit."`
}

// TypeLimits holds the settings of one job type.
type TypeLimits struct {
	Concurrency int `json:"concurrency" minimum:"0" maximum:"10000" doc:"The workers of this type in each instance. Setting 0 goes back to the instance's default."`
}
