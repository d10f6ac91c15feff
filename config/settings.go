package config

import (
	"slices"
	"strings"

	"github.com/sluice-project/sluice/bulk"
)

// Setting is one thing that can be set.
type Setting struct {
	// Key is its name in the file, with a dot for each level: bulk.workers.
	Key string
	// Usage says what it means, in words that go on after the key.
	Usage string
	// Zero says what 0 means, where it is allowed: "no limit".
	Zero string
	// Default is the value when nothing is set, as text.
	Default string
	// Unit is what the value is given in: "duration", "size", "whole number",
	// "number", "true or false", "list", "lists by name", "time",
	// "list of rules", or empty for text.
	Unit string
	// Secret settings are never shown, and have no flag: others may see the
	// command lines of a machine.
	Secret bool
	// FileOnly settings have neither a flag nor a variable.
	FileOnly bool

	field func(*Config) any
	check func(text string) error
	// flag is the name of its flag where that does not follow from the key.
	flag string
}

// Flag returns the name of the setting's flag, without dashes before it; empty if
// it has none.
func (s *Setting) Flag() string {
	switch {
	case s.Secret || s.FileOnly:
		return ""
	case s.flag != "":
		return s.flag
	}
	return strings.NewReplacer(".", "-", "_", "-").Replace(s.Key)
}

// Variable returns the name of the setting's environment variable; empty if it
// has none.
func (s *Setting) Variable() string {
	if s.FileOnly {
		return ""
	}
	return variablePrefix + strings.ToUpper(strings.ReplaceAll(s.Key, ".", "_"))
}

// Settings returns all settings, in the order of the file. Those of single job
// types, bulk.types.TYPE.KEY, can only be set in the file; [TypeSettings]
// returns them.
func Settings() []Setting { return slices.Clone(settings) }

// TypeSettings returns the settings that can be set for a single job type, with
// the key that stands below bulk.types.TYPE. Their default is the setting of
// the same name for all types.
func TypeSettings() []Setting { return slices.Clone(typeSettings) }

var settings = withDefaults(slices.Concat([]Setting{
	{Key: "data", Usage: "directory of everything durable, made if it is missing; one process at a time",
		field: func(c *Config) any { return &c.DataDir }, check: checkPath},
	{Key: "http", Usage: "address to serve HTTP at, host:port; anybody who reaches it may use the API",
		field: func(c *Config) any { return &c.HTTP }, check: checkAddress},
	{Key: "log.level", Usage: "least level to log: debug, info, warn or error",
		field: func(c *Config) any { return &c.Log.Level }},
	{Key: "log.format", Usage: "format of logs: text or json",
		field: func(c *Config) any { return &c.Log.Format }, check: checkFormat},
	{Key: "pprof", Usage: "serve profiles of the process at /debug/pprof/",
		field: func(c *Config) any { return &c.Pprof }},
	{Key: "disk_reserve", Usage: "free disk space below which nothing new is accepted, so that what was accepted can finish",
		field: func(c *Config) any { return &c.DiskReserve }, check: checkReserve},
}, tracingSettings, clusterSettings, topicSettings, roomSettings, gateSettings, []Setting{
	{Key: "bulk.requests_per_second", Zero: "no limit",
		Usage: "attempts started in a second by all tenants together, until a limit is set at run time",
		field: bulkField(func(c *bulk.Config) any { return &c.RequestsPerSecond })},
	{Key: "bulk.window", Usage: "length of the fixed windows that limits are counted in",
		field: bulkField(func(c *bulk.Config) any { return &c.Window })},
	{Key: "bulk.ready_max", Usage: "most jobs in the ready queue; below it, the bound follows the workers' measured speed",
		field: bulkField(func(c *bulk.Config) any { return &c.ReadyMax })},
	{Key: "bulk.dispatch_interval", Usage: "how often due jobs are looked for when nothing else wakes the dispatcher",
		field: bulkField(func(c *bulk.Config) any { return &c.DispatchInterval })},
	{Key: "bulk.dispatch_batch", Usage: "most due jobs of one look",
		field: bulkField(func(c *bulk.Config) any { return &c.DispatchBatch })},
	{Key: "bulk.fetch_interval", Usage: "how often the fair queue is looked at when nothing else wakes the fetcher",
		field: bulkField(func(c *bulk.Config) any { return &c.FetchInterval })},
	{Key: "bulk.fetch_batch", Usage: "least jobs that one look at the fair queue asks for",
		field: bulkField(func(c *bulk.Config) any { return &c.FetchBatch })},
	{Key: "bulk.alpha", Zero: "no boost", Usage: "weight of the boost for actions with little left",
		field: bulkField(func(c *bulk.Config) any { return &c.Alpha })},
	{Key: "bulk.backoff_base", Usage: "delay before the second attempt of a job, doubled for each further one; the least delay of a throttled job",
		field: bulkField(func(c *bulk.Config) any { return &c.BackoffBase })},
	{Key: "bulk.backoff_cap", Usage: "most delay before an attempt after a transient error",
		field: bulkField(func(c *bulk.Config) any { return &c.BackoffCap })},
	{Key: "bulk.workers", Usage: "workers of each job type that has a handler in this process",
		field: bulkField(func(c *bulk.Config) any { return &c.Workers })},
	{Key: "bulk.job_timeout", Usage: "most time for one attempt",
		field: bulkField(func(c *bulk.Config) any { return &c.JobTimeout })},
	{Key: "bulk.max_attempts", Usage: "most attempts of one job: the first and its retries",
		field: bulkField(func(c *bulk.Config) any { return &c.MaxAttempts })},
	{Key: "bulk.max_crashes", Usage: "crashes of the process that a job may be in flight at before it becomes a dead letter",
		field: bulkField(func(c *bulk.Config) any { return &c.MaxCrashes })},
	{Key: "bulk.lease", Usage: "time a worker has before its job is given to another; workers in the process extend it",
		field: bulkField(func(c *bulk.Config) any { return &c.Lease })},
	{Key: "bulk.shutdown_grace", Zero: "at once", Usage: "how long stopping waits for jobs in flight before they are handed back",
		field: bulkField(func(c *bulk.Config) any { return &c.ShutdownGrace })},
	{Key: "bulk.retention", Zero: "for ever", Usage: "how long finished actions and their dead letters are kept",
		field: bulkField(func(c *bulk.Config) any { return &c.Retention })},
	{Key: "bulk.shards", Zero: "what the store has or, when it is new, 16 on Redis Cluster and else 1", Usage: "shards over which tenants are spread where the state is in Redis; fixed when the store is first used",
		field: func(c *Config) any { return &c.BulkShards }, check: checkShards},

	{Key: "webhook.secrets", Secret: true,
		Usage: "secrets that sign webhooks, the current one first, then those it replaces; a list in the file, with commas between them in the environment",
		field: func(c *Config) any { return &c.Webhook.Secrets }},
	{Key: "webhook.target_secrets", Secret: true, FileOnly: true,
		Usage: "for single targets, by name, the list of secrets to use instead; an empty list: not signed",
		field: func(c *Config) any { return &c.Webhook.TargetSecrets }},
	{Key: "webhook.max_response_bytes", Usage: "most of an answer's body that is read as the job's result; a longer one is no result",
		field: func(c *Config) any { return &c.Webhook.MaxResponseBytes }, check: checkResponseBytes},
	{Key: "webhook.idle_connections", Usage: "connections to one target that are kept for its next requests",
		field: func(c *Config) any { return &c.Webhook.IdleConnections }, check: checkIdleConnections},
}))

// typeSettings name a field of bulk.TypeConfig by typeField.
var typeSettings = []Setting{
	{Key: "workers", Unit: unitWhole, Usage: "workers of this job type"},
	{Key: "job_timeout", Unit: unitDuration, Usage: "most time for one attempt"},
	{Key: "max_attempts", Unit: unitWhole, Usage: "most attempts of one job: the first and its retries"},
	{Key: "backoff_base", Unit: unitDuration, Usage: "delay before the second attempt of a job, doubled for each further one"},
	{Key: "backoff_cap", Unit: unitDuration, Usage: "most delay before an attempt after a transient error"},
}

// typeField returns the field of t that the key of a type setting names.
func typeField(t *bulk.TypeConfig, key string) any {
	switch key {
	case "workers":
		return &t.Workers
	case "job_timeout":
		return &t.JobTimeout
	case "max_attempts":
		return &t.MaxAttempts
	case "backoff_base":
		return &t.BackoffBase
	case "backoff_cap":
		return &t.BackoffCap
	}
	panic("config: no type setting named " + key)
}

func bulkField(field func(*bulk.Config) any) func(*Config) any {
	return func(c *Config) any { return field(&c.Bulk) }
}

// withDefaults fills in what follows from the fields: units and defaults.
func withDefaults(table []Setting) []Setting {
	c := Default()
	for i := range table {
		s := &table[i]
		s.Unit = unitOf(s.field(c))
		s.Default = format(s.field(c))
	}
	return table
}
