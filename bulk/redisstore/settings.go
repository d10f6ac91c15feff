package redisstore

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"sync"

	"github.com/redis/rueidis"

	"github.com/sluice-project/sluice/bulk"
)

// The first byte of a setting's name in the hub is its kind.
const (
	settingLimits = "l"
	settingTenant = "t"
	settingTarget = "g"
	settingType   = "k"
	// settingRate is the global limit of the config, used if no limit was set.
	settingRate = "d"
)

// settingsCache is a copy of the hub's settings, as of a revision.
type settingsCache struct {
	mu       sync.Mutex
	began    int64 // counts loads; taken is the last load whose values were stored
	taken    int64
	revision int64
	values   settings
}

// settings are the settings that were set, and the global limit of the config; the instance
// that was opened last determines it.
type settings struct {
	bulk.Settings
	rate float64
}

func (c *settingsCache) get() (settings, int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.values, c.revision
}

// begin returns the number of a load, for put.
func (c *settingsCache) begin() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.began++
	return c.began
}

// put stores loaded values, unless a later load was stored before. The revision may be lower
// than the stored one: the server may have lost the newest.
func (c *settingsCache) put(load int64, values settings, revision int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if load > c.taken {
		c.taken, c.values, c.revision = load, values, revision
	}
}

// Settings implements bulk.Store.
func (s *Store) Settings(ctx context.Context) (bulk.Settings, error) {
	if err := s.loadSettings(ctx); err != nil {
		return bulk.Settings{}, err
	}
	values, _ := s.settings.get()
	values.Tenants, values.Targets, values.Types = maps.Clone(values.Tenants), maps.Clone(values.Targets), maps.Clone(values.Types)
	return values.Settings, nil
}

// loadSettings reads the hub's settings, and sends them to the shards if the instance that
// set the last one has not done so.
func (s *Store) loadSettings(ctx context.Context) error {
	load := s.settings.begin()
	fields, err := ask(ctx, s, s.db.B().Hgetall().Key(s.hub+"settings").Build(), asMap)
	if err != nil {
		return err
	}
	values := settings{Settings: bulk.Settings{
		Tenants: map[string]bulk.Tenant{}, Targets: map[string]bulk.TargetLimits{}, Types: map[string]bulk.TypeLimits{},
	}}
	revision := int64(0)
	for name, text := range fields {
		if err := readSetting(&values, &revision, name, text); err != nil {
			return fmt.Errorf("redis: the setting %q: %w", name, err)
		}
	}
	s.settings.put(load, values, revision)
	if fields["pushed"] == number(revision) {
		return nil
	}
	return s.push(ctx, values, revision)
}

func readSetting(values *settings, revision *int64, name, text string) error {
	read := func(into any) error { return json.Unmarshal([]byte(text), into) }
	switch name {
	case "revision":
		return read(revision)
	case "pushed":
		return nil
	case settingRate:
		return read(&values.rate)
	}
	switch rest := name[1:]; name[:1] {
	case settingLimits:
		values.Limits = new(bulk.Limits)
		return read(values.Limits)
	case settingTenant:
		var t bulk.Tenant
		err := read(&t)
		values.Tenants[rest] = t.WithDefaults()
		return err
	case settingTarget:
		var t bulk.TargetLimits
		err := read(&t)
		values.Targets[rest] = t
		return err
	case settingType:
		var t bulk.TypeLimits
		err := read(&t)
		values.Types[rest] = t
		return err
	}
	return nil
}

// Set implements bulk.Store. When it returns, every shard has the setting.
func (s *Store) Set(ctx context.Context, c bulk.SettingsChange) error {
	name, value := settingOf(c)
	if c.Target != nil && !c.Target.Auto {
		if err := s.dropAuto(ctx, c.Name); err != nil {
			return err
		}
	}
	return s.set(ctx, name, value)
}

// settingOf returns the name of a setting in the hub, and its value.
func settingOf(c bulk.SettingsChange) (name string, value any) {
	switch {
	case c.Tenant != nil:
		return settingTenant + c.Name, c.Tenant
	case c.Target != nil:
		return settingTarget + c.Name, c.Target
	case c.Type != nil:
		return settingType + c.Name, c.Type
	}
	return settingLimits, c.Limits
}

func (s *Store) set(ctx context.Context, name string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if _, err := onHub(ctx, s, setScript, asInt, name, string(text)); err != nil {
		return err
	}
	return s.loadSettings(ctx)
}

// globalRate returns the global limit, in attempts per second; 0 is no limit.
func (s *settings) globalRate() float64 {
	if s.Limits != nil {
		return s.Limits.RequestsPerSecond
	}
	return s.rate
}

// adoptRate makes the config's limit that of all instances.
func (s *Store) adoptRate(ctx context.Context) error {
	if err := s.loadSettings(ctx); err != nil {
		return err
	}
	values, revision := s.settings.get()
	rate := max(0, s.config.RequestsPerSecond)
	if revision > 0 && values.rate == rate {
		return nil
	}
	return s.set(ctx, settingRate, rate)
}

// push sends all settings to every shard, and then records in the hub what the shards have
// started in the window. Several instances may do so at once.
func (s *Store) push(ctx context.Context, values settings, revision int64) error {
	started := []string{number(revision), number(s.kept())}
	for shard := range s.shards {
		answer, err := onShard(ctx, s, limitScript, shard, asArray, s.limitArgs(&values, revision, shard)...)
		if err != nil {
			return err
		}
		for i := 1; i+3 < len(answer); i += 4 {
			texts := make([]string, 5)
			for at, m := range []rueidis.RedisMessage{answer[0], answer[i], answer[i+1], answer[i+2], answer[i+3]} {
				if texts[at], err = textOf(m); err != nil {
					return err
				}
			}
			started = append(started, number(int64(shard)), texts[0], texts[1], texts[2], texts[3], texts[4])
		}
	}
	_, err := onHub(ctx, s, pushedScript, asInt, started...)
	return err
}

// textOf returns a text or a number of a script as text.
func textOf(m rueidis.RedisMessage) (string, error) {
	if m.IsInt64() {
		n, err := m.AsInt64()
		return number(n), err
	}
	return m.ToString()
}

// kept returns how long the hub keeps the parts of a window, in milliseconds.
func (s *Store) kept() int64 { return 2*s.config.Window.Milliseconds() + 60_000 }

// limitArgs returns the settings for a shard: the global limit, those of targets, and those
// of its tenants.
func (s *Store) limitArgs(values *settings, revision int64, shard int) []string {
	args := []string{number(revision)}
	limited := func(name string, value string) { args = append(args, "l", name, value) }
	if values.globalRate() > 0 {
		limited("all", "1")
	}
	for name, t := range values.Tenants {
		if s.shardOf(name) != shard {
			continue
		}
		if t.RequestsPerSecond > 0 {
			limited("t:"+name, "1")
		}
		args = append(args, "w", name, fmt.Sprint(t.Weight))
	}
	for name, t := range values.Targets {
		if rated := t.Auto || t.RequestsPerSecond > 0; rated || t.Concurrency > 0 {
			limited("g:"+name, fmt.Sprintf("%d %d", flag(rated), t.Concurrency))
		}
	}
	return args
}
