package bulk

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// Config holds the settings of bulk. The zero value of each field means its
// default, unless the field says otherwise; see docs/bulk/tuning.md for when to
// change which.
type Config struct {
	// RequestsPerSecond limits the attempts started by all tenants together,
	// until a limit is set at run time. Default 10,000; negative: no limit.
	RequestsPerSecond float64
	// Window is the length of the fixed windows that limits are counted in.
	// Default 1 s; from 100 ms to 1 minute.
	Window time.Duration
	// ReadyMax is the most jobs in the ready queue; below it, the bound follows
	// the workers' measured speed. Default 10,000.
	ReadyMax int
	// DispatchInterval is how often due jobs are looked for when nothing else
	// wakes the dispatcher; DispatchBatch is the most jobs of one look.
	// Defaults 100 ms and 100.
	DispatchInterval time.Duration
	DispatchBatch    int
	// FetchInterval is how often the fair queue is looked at when nothing else
	// wakes the fetcher; FetchBatch is the least that one look asks for.
	// Defaults 200 ms and 50.
	FetchInterval time.Duration
	FetchBatch    int
	// Alpha is the weight of the shortest-job boost. Default 1 s.
	Alpha time.Duration
	// BackoffBase and BackoffCap bound the delay before an attempt after a
	// transient error: base, doubled for each attempt, with jitter. The base is
	// also the least delay of a throttled job. Defaults 1 s and 60 s.
	BackoffBase, BackoffCap time.Duration
	// Workers is the number of workers of each type that has a handler here.
	// Default 10.
	Workers int
	// JobTimeout is the most time for one attempt. Default 30 s.
	JobTimeout time.Duration
	// MaxAttempts is the most attempts of one job: the first and its retries.
	// Default 4.
	MaxAttempts int
	// MaxCrashes is how many crashes of the process a job may be in flight at
	// before it becomes a dead letter: a job that kills the process must not be
	// retried for ever. Such attempts do not count in MaxAttempts. Default 10.
	MaxCrashes int
	// Lease is the time a worker has before its job is given to another; workers
	// in the process extend it while they run. Default 30 s.
	Lease time.Duration
	// ShutdownGrace is how long stopping waits for jobs in flight before they
	// are handed back. Default 30 s.
	ShutdownGrace time.Duration
	// Retention is how long finished actions and their dead letters are kept, and
	// how long an upload may go on: an action that is not sealed by then is
	// canceled.
	// Default 7 days; negative: for ever.
	Retention time.Duration
	// Types overrides settings for single job types.
	Types map[string]TypeConfig
}

// TypeConfig overrides settings of Config for one job type; a zero field does
// not.
type TypeConfig struct {
	Workers     int
	JobTimeout  time.Duration
	MaxAttempts int
	BackoffBase time.Duration
	BackoffCap  time.Duration
}

// WithDefaults returns the config with every unset field at its default.
func (c Config) WithDefaults() Config {
	orDefault(&c.RequestsPerSecond, 10_000)
	orDefault(&c.Window, time.Second)
	orDefault(&c.ReadyMax, 10_000)
	orDefault(&c.DispatchInterval, 100*time.Millisecond)
	orDefault(&c.DispatchBatch, 100)
	orDefault(&c.FetchInterval, 200*time.Millisecond)
	orDefault(&c.FetchBatch, 50)
	orDefault(&c.Alpha, time.Second)
	orDefault(&c.BackoffBase, time.Second)
	orDefault(&c.BackoffCap, time.Minute)
	orDefault(&c.Workers, 10)
	orDefault(&c.JobTimeout, 30*time.Second)
	orDefault(&c.MaxAttempts, 4)
	orDefault(&c.MaxCrashes, 10)
	orDefault(&c.Lease, 30*time.Second)
	orDefault(&c.ShutdownGrace, 30*time.Second)
	orDefault(&c.Retention, 7*24*time.Hour)
	return c
}

func orDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate says which setting is out of range, and what would be right. It is
// meant for a config with defaults.
func (c Config) Validate() error {
	checks := []struct {
		ok   bool
		name string
		want string
	}{
		{c.Window >= 100*time.Millisecond && c.Window <= MaxWindow, "window", "from 100ms to 1m"},
		{c.ReadyMax >= 1 && c.ReadyMax <= 1_000_000, "ready_max", "from 1 to 1,000,000"},
		{c.DispatchInterval >= time.Millisecond, "dispatch_interval", "at least 1ms"},
		{c.DispatchBatch >= 1, "dispatch_batch", "at least 1"},
		{c.FetchInterval >= time.Millisecond, "fetch_interval", "at least 1ms"},
		{c.FetchBatch >= 1, "fetch_batch", "at least 1"},
		{c.Alpha >= 0, "alpha", "at least 0"},
		{c.BackoffBase > 0, "backoff_base", "more than 0"},
		{c.BackoffCap >= c.BackoffBase, "backoff_cap", "at least backoff_base"},
		{c.Workers >= 1 && c.Workers <= 10_000, "workers", "from 1 to 10,000"},
		{c.JobTimeout > 0, "job_timeout", "more than 0"},
		{c.MaxAttempts >= 1 && c.MaxAttempts <= 100, "max_attempts", "from 1 to 100"},
		{c.MaxCrashes >= 1 && c.MaxCrashes <= 100, "max_crashes", "from 1 to 100"},
		{c.Lease >= 100*time.Millisecond, "lease", "at least 100ms"},
		{c.ShutdownGrace >= 0, "shutdown_grace", "at least 0"},
	}
	for _, check := range checks {
		if !check.ok {
			return fmt.Errorf("bulk.%s: want %s", check.name, check.want)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Types)) {
		t := c.For(name)
		switch {
		case t.Workers < 1 || t.Workers > 10_000:
			return fmt.Errorf("bulk.types.%s.workers: want from 1 to 10,000", name)
		case t.JobTimeout <= 0:
			return fmt.Errorf("bulk.types.%s.job_timeout: want more than 0", name)
		case t.MaxAttempts < 1 || t.MaxAttempts > 100:
			return fmt.Errorf("bulk.types.%s.max_attempts: want from 1 to 100", name)
		case t.BackoffBase <= 0:
			return fmt.Errorf("bulk.types.%s.backoff_base: want more than 0", name)
		case t.BackoffCap < t.BackoffBase:
			return fmt.Errorf("bulk.types.%s.backoff_cap: want at least backoff_base", name)
		}
	}
	return nil
}

// For returns the settings of one job type.
func (c Config) For(jobType string) TypeConfig {
	t := c.Types[jobType]
	orDefault(&t.Workers, c.Workers)
	orDefault(&t.JobTimeout, c.JobTimeout)
	orDefault(&t.MaxAttempts, c.MaxAttempts)
	orDefault(&t.BackoffBase, c.BackoffBase)
	orDefault(&t.BackoffCap, max(c.BackoffCap, t.BackoffBase))
	return t
}
