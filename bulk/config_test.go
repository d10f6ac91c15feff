package bulk

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
)

// TestConfigDefaults checks the defaults against the table of the design.
func TestConfigDefaults(t *testing.T) {
	got := Config{}.WithDefaults()
	want := Config{
		RequestsPerSecond: 10_000,
		Window:            time.Second,
		ReadyMax:          10_000,
		DispatchInterval:  100 * time.Millisecond,
		DispatchBatch:     100,
		FetchInterval:     200 * time.Millisecond,
		FetchBatch:        50,
		Alpha:             1000 * time.Millisecond,
		BackoffBase:       time.Second,
		BackoffCap:        60 * time.Second,
		Workers:           10,
		Webhooks:          2000,
		Reserve:           0.5,
		JobTimeout:        30 * time.Second,
		MaxAttempts:       1 + 3,
		MaxCrashes:        10,
		Lease:             30 * time.Second,
		ShutdownGrace:     30 * time.Second,
		Retention:         7 * 24 * time.Hour,
	}
	if !equalConfig(got, want) {
		t.Errorf("defaults %+v, want %+v", got, want)
	}
	if err := got.Validate(); err != nil {
		t.Errorf("the defaults are refused: %v", err)
	}
	if again := got.WithDefaults(); !equalConfig(again, got) {
		t.Errorf("with defaults twice: %+v", again)
	}
	if tenant := (Tenant{}).WithDefaults(); !reflect.DeepEqual(tenant, Tenant{Weight: 1}) {
		t.Errorf("a tenant's defaults are %+v", tenant)
	}
}

func equalConfig(a, b Config) bool {
	if len(a.Types)+len(b.Types) > 0 {
		return false
	}
	a.Types, b.Types = nil, nil
	return a.RequestsPerSecond == b.RequestsPerSecond && a.Window == b.Window && a.ReadyMax == b.ReadyMax &&
		a.DispatchInterval == b.DispatchInterval && a.DispatchBatch == b.DispatchBatch &&
		a.FetchInterval == b.FetchInterval && a.FetchBatch == b.FetchBatch && a.Alpha == b.Alpha &&
		a.BackoffBase == b.BackoffBase && a.BackoffCap == b.BackoffCap && a.Workers == b.Workers && a.Webhooks == b.Webhooks && a.Reserve == b.Reserve &&
		a.JobTimeout == b.JobTimeout && a.MaxAttempts == b.MaxAttempts && a.MaxCrashes == b.MaxCrashes &&
		a.Lease == b.Lease && a.ShutdownGrace == b.ShutdownGrace && a.Retention == b.Retention
}

func TestWithDefaultsKeepsWhatIsSet(t *testing.T) {
	set := Config{RequestsPerSecond: -1, Window: 100 * time.Millisecond, Workers: 3, Alpha: -1, ShutdownGrace: -1, Retention: -1}
	c := set.WithDefaults()
	if c.RequestsPerSecond != -1 || c.Window != 100*time.Millisecond || c.Workers != 3 ||
		c.Alpha != -1 || c.ShutdownGrace != -1 || c.Retention != -1 {
		t.Errorf("changed to %+v", c)
	}
	if err := c.Validate(); err != nil {
		t.Errorf("no limit, no boost, no grace and no end of retention are refused: %v", err)
	}
}

func TestValidateNamesTheSetting(t *testing.T) {
	ms := time.Millisecond
	for name, changes := range map[string][]func(*Config){
		"window": {func(c *Config) { c.Window = 99 * ms }, func(c *Config) { c.Window = time.Minute + 1 },
			func(c *Config) { c.Window = -time.Second }},
		"ready_max":         {func(c *Config) { c.ReadyMax = -1 }, func(c *Config) { c.ReadyMax = 1_000_001 }},
		"dispatch_interval": {func(c *Config) { c.DispatchInterval = ms - 1 }},
		"dispatch_batch":    {func(c *Config) { c.DispatchBatch = -1 }},
		"fetch_interval":    {func(c *Config) { c.FetchInterval = -ms }},
		"fetch_batch":       {func(c *Config) { c.FetchBatch = -1 }},
		"requests_per_second": {func(c *Config) { c.RequestsPerSecond = math.NaN() },
			func(c *Config) { c.RequestsPerSecond = math.Inf(1) }},
		"backoff_base": {func(c *Config) { c.BackoffBase = -1 }},
		"backoff_cap":  {func(c *Config) { c.BackoffCap = c.BackoffBase - 1 }},
		"workers":      {func(c *Config) { c.Workers = -1 }, func(c *Config) { c.Workers = 10_001 }},
		"job_timeout":  {func(c *Config) { c.JobTimeout = -1 }},
		"max_attempts": {func(c *Config) { c.MaxAttempts = -1 }, func(c *Config) { c.MaxAttempts = 101 }},
		"max_crashes":  {func(c *Config) { c.MaxCrashes = -1 }, func(c *Config) { c.MaxCrashes = 101 }},
		"lease":        {func(c *Config) { c.Lease = 99 * ms }},
		"types.x.workers": {func(c *Config) { c.Types = map[string]TypeConfig{"x": {Workers: -1}} },
			func(c *Config) { c.Types = map[string]TypeConfig{"x": {Workers: 10_001}} }},
		"types.x.job_timeout": {func(c *Config) { c.Types = map[string]TypeConfig{"x": {JobTimeout: -1}} }},
		"types.x.max_attempts": {func(c *Config) { c.Types = map[string]TypeConfig{"x": {MaxAttempts: -1}} },
			func(c *Config) { c.Types = map[string]TypeConfig{"x": {MaxAttempts: 101}} }},
		"types.x.backoff_base": {func(c *Config) { c.Types = map[string]TypeConfig{"x": {BackoffBase: -1}} }},
		"types.x.backoff_cap": {func(c *Config) { c.Types = map[string]TypeConfig{"x": {BackoffCap: -1}} },
			func(c *Config) { c.Types = map[string]TypeConfig{"x": {BackoffBase: 2 * ms, BackoffCap: ms}} }},
	} {
		for i, change := range changes {
			c := Config{}.WithDefaults()
			change(&c)
			if err := c.Validate(); err == nil || !strings.HasPrefix(err.Error(), "bulk."+name+": want ") {
				t.Errorf("%s, case %d: %v", name, i, err)
			}
		}
	}
}

func TestConfigForAType(t *testing.T) {
	c := Config{Workers: 7, Types: map[string]TypeConfig{
		"slow": {Workers: 2, JobTimeout: time.Hour, MaxAttempts: 9, BackoffBase: 5 * time.Minute},
		"some": {BackoffCap: 90 * time.Second},
	}}.WithDefaults()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]TypeConfig{
		"other": {7, 0.5, 30 * time.Second, 4, time.Second, time.Minute},
		"slow":  {2, 0.5, time.Hour, 9, 5 * time.Minute, 5 * time.Minute},
		"some":  {7, 0.5, 30 * time.Second, 4, time.Second, 90 * time.Second},
	} {
		if got := c.For(name); got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}
