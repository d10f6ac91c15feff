package bulk

import (
	"cmp"
	"fmt"
)

// Stored counts what is stored of a tenant's unfinished actions. An action counts, with all jobs that were
// uploaded to it, until it ends, as a store keeps the payloads until then; one that was canceled, until no
// job of it is in flight. In Config.QuotaOf, 0 is no bound.
type Stored struct{ Actions, Jobs, Bytes int64 }

// Add returns the sum of two.
func (s Stored) Add(o Stored) Stored {
	return Stored{s.Actions + o.Actions, s.Jobs + o.Jobs, s.Bytes + o.Bytes}
}

// Less returns s without o.
func (s Stored) Less(o Stored) Stored {
	return Stored{s.Actions - o.Actions, s.Jobs - o.Jobs, s.Bytes - o.Bytes}
}

// The names of quotas, as in the JSON of Tenant.
const (
	MaxActionsQuota = "max_actions"
	MaxJobsQuota    = "max_jobs"
	MaxBytesQuota   = "max_bytes"
)

// Refuse returns a *QuotaError if more would exceed s, the quota of a tenant, beyond what it has stored.
// It looks only at what more adds to: a quota that was lowered refuses what is new, and nothing else.
// redisstore/lua/quota.lua has the same rule.
func (s Stored) Refuse(tenant string, stored, more Stored) error {
	refuse := func(name string, most, stored, more int64) error {
		if most == 0 || more == 0 || stored+more <= most {
			return nil
		}
		return &QuotaError{Tenant: tenant, Quota: name, Most: most}
	}
	return cmp.Or(
		refuse(MaxActionsQuota, s.Actions, stored.Actions, more.Actions),
		refuse(MaxJobsQuota, s.Jobs, stored.Jobs, more.Jobs),
		refuse(MaxBytesQuota, s.Bytes, stored.Bytes, more.Bytes),
	)
}

// QuotaError is the error of an action or of jobs beyond a quota of their tenant: see Stored. Nothing
// of the operation was stored.
type QuotaError struct {
	Tenant string
	// Quota is the name of the quota, and Most its value.
	Quota string
	Most  int64
}

func (e *QuotaError) Error() string {
	what := map[string]string{
		MaxActionsQuota: "unfinished actions", MaxJobsQuota: "jobs of unfinished actions", MaxBytesQuota: "bytes of payloads of unfinished actions",
	}[e.Quota]
	return fmt.Sprintf("tenant %q would have more than %d %s (%s): try again when some of its actions have ended, cancel some, or ask an operator for more (PUT /v1/tenants/{id})",
		e.Tenant, e.Most, what, e.Quota)
}
