package redisstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

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
	// shortest is the length of the shortest windows that a limit counts in.
	shortest time.Duration
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

// loadSettings reads the hub's settings, and sends them to the shards that answer if the instance
// that set the last one has not done so.
func (s *Store) loadSettings(ctx context.Context) error {
	return othersGoOn(s.spreadSettings(ctx))
}

// spreadSettings is loadSettings, but fails with errSilent if a silent shard lacks settings.
func (s *Store) spreadSettings(ctx context.Context) error {
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
	values.shortest = s.config.Window
	for _, name := range values.limited() {
		values.shortest = min(values.shortest, values.limitOf(name).Window(s.config.Window))
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
	return s.spreadSettings(ctx)
}

// limitOf returns what is set for a name: "all", "t:TENANT" or "g:TARGET", where the handlers
// of a type are a target.
func (s *settings) limitOf(name string) bulk.Limit {
	rest := name[min(2, len(name)):]
	switch {
	case name == "all" && s.Limits != nil:
		return s.Limits.Limit()
	case name == "all":
		return bulk.Limit{RequestsPerSecond: s.rate}
	case name[:2] == "t:":
		t := s.Tenants[rest]
		return t.Limit()
	}
	if jobType, handlers := strings.CutPrefix(rest, bulk.HandlersOf("")); handlers {
		t := s.Types[jobType]
		return t.Limit()
	}
	t := s.Targets[rest]
	l := t.Limit()
	if t.Auto {
		l.RequestsPerSecond = bulk.MinRate // until the rate is found: see mirror.limitOf
	}
	return l
}

// limited returns the names of all limits that are set.
func (s *settings) limited() []string {
	names := []string{"all"}
	for name := range s.Tenants {
		names = append(names, "t:"+name)
	}
	for _, name := range s.targets() {
		names = append(names, "g:"+name)
	}
	return names
}

// targets returns the names of all targets, and of all handlers of types, with settings.
func (s *settings) targets() []string {
	names := slices.Collect(maps.Keys(s.Targets))
	for name := range s.Types {
		names = append(names, bulk.HandlersOf(name))
	}
	return names
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
// started in the window. Several instances may do so at once. With a silent shard the hub is told
// nothing, and so gives no parts of limits until the shard is back.
func (s *Store) push(ctx context.Context, values settings, revision int64) error {
	started := []string{number(revision), number(s.kept())}
	var silent error
	for shard := range s.shards {
		answer, err := onShard(ctx, s, limitScript, shard, asArray, s.limitArgs(&values, revision, shard)...)
		if errors.Is(err, errSilent) {
			silent = err
			continue
		}
		if err != nil {
			return err
		}
		for limit := range slices.Chunk(answer, 5) {
			started = append(started, number(int64(shard)))
			for _, m := range limit {
				text, err := textOf(m)
				if err != nil {
					return err
				}
				started = append(started, text)
			}
		}
	}
	if silent != nil {
		return silent
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
	limited := func(name string) {
		if l := values.limitOf(name); l.RequestsPerSecond > 0 || l.Concurrency > 0 {
			text := fmt.Sprintf("%d %d", flag(l.RequestsPerSecond > 0), l.Concurrency)
			if window := l.Window(s.config.Window); window != s.config.Window { // earlier versions do not know it
				text += " " + number(window.Milliseconds())
			}
			args = append(args, "l", name, text)
		}
	}
	limited("all")
	for name, t := range values.Tenants {
		if s.shardOf(name) != shard {
			continue
		}
		limited("t:" + name)
		args = append(args, "w", name, fmt.Sprint(t.Weight))
	}
	for _, name := range values.targets() {
		limited("g:" + name)
	}
	return args
}
