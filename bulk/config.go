package bulk

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// Config holds the settings of bulk. A zero field means its default, unless the field says
// otherwise. For when to change which setting, see docs/bulk/tuning.md.
type Config struct {
	// RequestsPerSecond limits the attempts started by all tenants together, until a limit is
	// set at run time. Default 10,000; negative: no limit.
	RequestsPerSecond float64
	// Window is the length of the fixed windows that limits are counted in.
	// Default 1 s; from 100 ms to 1 minute.
	Window time.Duration
	// ReadyMax is the maximum length of the ready queue; below it, the length follows the
	// workers' measured speed. Default 10,000.
	ReadyMax int
	// DispatchInterval is how often the dispatcher looks for due jobs when nothing wakes it.
	// DispatchBatch is the maximum of jobs returned at a time. Defaults 100 ms and 100.
	DispatchInterval time.Duration
	DispatchBatch    int
	// FetchInterval is how often the fetcher looks at the fair queue when nothing wakes it.
	// FetchBatch is the minimum of jobs that it asks for at a time. Defaults 200 ms and 50.
	FetchInterval time.Duration
	FetchBatch    int
	// Alpha is the weight of the shortest-job boost. Default 1 s; negative: no boost.
	Alpha time.Duration
	// BackoffBase and BackoffCap bound the delay after a transient error: the base, doubled
	// for each attempt, with jitter. The base is also the minimum delay of a throttled job.
	// Defaults 1 s and 60 s.
	BackoffBase, BackoffCap time.Duration
	// Workers is the number of workers for each type that has a handler in this process.
	// Default 10.
	Workers int
	// Webhooks is the number of webhooks that are in flight at a time in this process: the
	// number of workers of WebhookType. Default 2,000.
	Webhooks int
	// Reserve is the part of the workers of a type, if they are five or more, that attempts
	// do not hold of which it is not known that they end within a second. When no such
	// attempt has ended for a minute, it is 0.4 times as much. Default 0.5; at most 0.9;
	// negative: none.
	Reserve float64
	// JobTimeout is the maximum duration of one attempt. Default 30 s.
	JobTimeout time.Duration
	// MaxAttempts is the maximum of attempts of one job, including the first. Default 4.
	MaxAttempts int
	// MaxCrashes is the number of process crashes during which a job may be in flight before
	// it becomes a dead letter, so that a job that kills the process is not retried for ever.
	// These attempts do not count in MaxAttempts. Default 10.
	MaxCrashes int
	// Lease is the time after which a job in flight is given to another worker. Workers in
	// the process extend the leases of running jobs. Default 30 s.
	Lease time.Duration
	// ShutdownGrace is how long stopping waits for jobs in flight before it hands them back.
	// Default 30 s; negative: it does not wait.
	ShutdownGrace time.Duration
	// Retention is how long finished actions and their dead letters are kept, and how long an
	// upload may take: an action that is not sealed by then is canceled. Default 7 days;
	// negative: for ever.
	Retention time.Duration
	// StreamWindow is the window of time whose enqueued jobs share one stream, an action that
	// has their counts; see Engine.Enqueue. It is not longer than Retention. Default 1 h; at
	// least 1 s.
	StreamWindow time.Duration
	// TenantMaxActions, TenantMaxJobs and TenantMaxBytes bound what each tenant has stored, as the fields of
	// Tenant do, where those are 0. Default 0, and negative: no bound.
	TenantMaxActions, TenantMaxJobs int
	TenantMaxBytes                  int64
	// Types overrides settings for single job types.
	Types map[string]TypeConfig
}

// TypeConfig overrides settings of Config for one job type. A zero field overrides nothing.
type TypeConfig struct {
	Workers     int
	Reserve     float64
	JobTimeout  time.Duration
	MaxAttempts int
	BackoffBase time.Duration
	BackoffCap  time.Duration
}

// WithDefaults returns the config with every unset field at its default.
func (c Config) WithDefaults() Config {
	c.RequestsPerSecond = cmp.Or(c.RequestsPerSecond, 10_000)
	c.Window = cmp.Or(c.Window, time.Second)
	c.ReadyMax = cmp.Or(c.ReadyMax, 10_000)
	c.DispatchInterval = cmp.Or(c.DispatchInterval, 100*time.Millisecond)
	c.DispatchBatch = cmp.Or(c.DispatchBatch, 100)
	c.FetchInterval = cmp.Or(c.FetchInterval, 200*time.Millisecond)
	c.FetchBatch = cmp.Or(c.FetchBatch, 50)
	c.Alpha = cmp.Or(c.Alpha, time.Second)
	c.BackoffBase = cmp.Or(c.BackoffBase, time.Second)
	c.BackoffCap = cmp.Or(c.BackoffCap, time.Minute)
	c.Workers = cmp.Or(c.Workers, 10)
	c.Webhooks = cmp.Or(c.Webhooks, 2000)
	c.Reserve = cmp.Or(c.Reserve, 0.5)
	c.JobTimeout = cmp.Or(c.JobTimeout, 30*time.Second)
	c.MaxAttempts = cmp.Or(c.MaxAttempts, 4)
	c.MaxCrashes = cmp.Or(c.MaxCrashes, 10)
	c.Lease = cmp.Or(c.Lease, 30*time.Second)
	c.ShutdownGrace = cmp.Or(c.ShutdownGrace, 30*time.Second)
	c.Retention = cmp.Or(c.Retention, 7*24*time.Hour)
	c.StreamWindow = cmp.Or(c.StreamWindow, time.Hour)
	return c
}

// Validate returns an error that names the setting that is out of range, and its range. It
// expects a config with defaults.
func (c Config) Validate() error {
	err := firstWrong("bulk.", append([]check{
		{isFinite(c.RequestsPerSecond), "requests_per_second", "a number above 0, or a negative one for no limit"},
		{c.Window >= 100*time.Millisecond && c.Window <= MaxWindow, "window", "from 100ms to 1m"},
		{c.ReadyMax >= 1 && c.ReadyMax <= 1_000_000, "ready_max", "from 1 to 1,000,000"},
		{c.DispatchInterval >= time.Millisecond, "dispatch_interval", "at least 1ms"},
		{c.DispatchBatch >= 1, "dispatch_batch", "at least 1"},
		{c.FetchInterval >= time.Millisecond, "fetch_interval", "at least 1ms"},
		{c.FetchBatch >= 1, "fetch_batch", "at least 1"},
		{c.MaxCrashes >= 1 && c.MaxCrashes <= 100, "max_crashes", "from 1 to 100"},
		{c.Lease >= 100*time.Millisecond, "lease", "at least 100ms"},
		{c.StreamWindow >= time.Second && c.StreamWindow <= 366*24*time.Hour, "stream_window", "from 1s to 366 days"},
		{c.Webhooks >= 1 && c.Webhooks <= 10_000, "webhooks", "from 1 to 10,000"},
	}, TypeConfig{c.Workers, c.Reserve, c.JobTimeout, c.MaxAttempts, c.BackoffBase, c.BackoffCap}.checks()...))
	for _, name := range slices.Sorted(maps.Keys(c.Types)) {
		err = cmp.Or(err, firstWrong("bulk.types."+name+".", c.For(name).checks()))
	}
	return err
}

// check is whether one setting is in range, and its range.
type check struct {
	ok         bool
	name, want string
}

func (t TypeConfig) checks() []check {
	return []check{
		{t.Workers >= 1 && t.Workers <= 10_000, "workers", "from 1 to 10,000"},
		{t.Reserve <= 0.9, "reserve", "from 0, for none, to 0.9"},
		{t.JobTimeout > 0, "job_timeout", "more than 0"},
		{t.MaxAttempts >= 1 && t.MaxAttempts <= 100, "max_attempts", "from 1 to 100"},
		{t.BackoffBase > 0, "backoff_base", "more than 0"},
		{t.BackoffCap >= t.BackoffBase, "backoff_cap", "at least backoff_base"},
	}
}

func firstWrong(section string, checks []check) error {
	for _, check := range checks {
		if !check.ok {
			return fmt.Errorf("%s%s: want %s", section, check.name, check.want)
		}
	}
	return nil
}

func isFinite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }

// QuotaOf returns the most that a tenant may have stored.
func (c Config) QuotaOf(t *Tenant) Stored {
	return Stored{
		Actions: cmp.Or(t.MaxActions, max(0, int64(c.TenantMaxActions))),
		Jobs:    cmp.Or(t.MaxJobs, max(0, int64(c.TenantMaxJobs))),
		Bytes:   cmp.Or(t.MaxBytes, max(0, c.TenantMaxBytes)),
	}
}

// For returns the settings of one job type.
func (c Config) For(jobType string) TypeConfig {
	t := c.Types[jobType]
	if jobType == WebhookType {
		t.Workers = cmp.Or(t.Workers, c.Webhooks)
	}
	t.Workers = cmp.Or(t.Workers, c.Workers)
	t.Reserve = cmp.Or(t.Reserve, c.Reserve)
	t.JobTimeout = cmp.Or(t.JobTimeout, c.JobTimeout)
	t.MaxAttempts = cmp.Or(t.MaxAttempts, c.MaxAttempts)
	t.BackoffBase = cmp.Or(t.BackoffBase, c.BackoffBase)
	t.BackoffCap = cmp.Or(t.BackoffCap, max(c.BackoffCap, t.BackoffBase))
	return t
}
