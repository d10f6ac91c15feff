package redisstore

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/keys"
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
	spread   int64 // the revision, if every shard knew it when it was loaded; else 0
	// tenants have settings that changedTenants has yet to return.
	tenants map[string]bool
}

// settings are the settings that were set, and the global limit of the config; the instance
// that was opened last determines it. They are never changed: see with.
type settings struct {
	limits  *bulk.Limits
	tenants layers[bulk.Tenant]
	targets layers[bulk.TargetLimits]
	types   layers[bulk.TypeLimits]
	rate    float64
	// keys compute the keys of tenants with limits by key; nil of others.
	keys layers[*keys.Keys]
	// shortest is at most the length of the shortest windows that a limit counts in.
	shortest time.Duration
}

// layers is a map that is never changed: with makes another one, which has most of it in common,
// so that one of many settings is changed without copying all.
type layers[V any] struct{ under, over map[string]V }

func (l layers[V]) get(name string) (V, bool) {
	if v, is := l.over[name]; is {
		return v, true
	}
	v, is := l.under[name]
	return v, is
}

// with adds values. The upper layer is copied each time, and is put onto a copy of the other one
// when it has more than the square root of the values there.
func (l layers[V]) with(values map[string]V) layers[V] {
	if len(values) == 0 {
		return l
	}
	over := make(map[string]V, len(l.over)+len(values))
	maps.Copy(over, l.over)
	maps.Copy(over, values)
	if l.over = over; len(over)*len(over) > len(l.under) {
		l.under, l.over = l.flat(), nil
	}
	return l
}

// flat returns a copy as one map.
func (l layers[V]) flat() map[string]V {
	all := make(map[string]V, len(l.under)+len(l.over))
	maps.Copy(all, l.under)
	maps.Copy(all, l.over)
	return all
}

func (l layers[V]) all() iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		for name, v := range l.over {
			if !yield(name, v) {
				return
			}
		}
		for name, v := range l.under {
			if _, hidden := l.over[name]; !hidden && !yield(name, v) {
				return
			}
		}
	}
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
func (c *settingsCache) put(load int64, values settings, revision, spread int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if load > c.taken {
		c.taken, c.values, c.revision, c.spread = load, values, revision, spread
	}
}

// changed notes the tenants among the names of settings that were loaded.
func (c *settingsCache) changed(loaded map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for setting := range loaded {
		if name, is := strings.CutPrefix(setting, settingTenant); is {
			if c.tenants == nil {
				c.tenants = map[string]bool{}
			}
			c.tenants[name] = true
		}
	}
}

// changedTenants returns the tenants whose settings were loaded since it was last called.
func (c *settingsCache) changedTenants() map[string]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	changed := c.tenants
	c.tenants = nil
	return changed
}

// known returns a revision that every shard knows, unless it has lost it.
func (c *settingsCache) known() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.spread
}

// Settings implements bulk.Store.
func (s *Store) Settings(ctx context.Context) (bulk.Settings, error) {
	if err := s.loadSettings(ctx); err != nil {
		return bulk.Settings{}, err
	}
	values, _ := s.settings.get()
	return bulk.Settings{
		Limits: values.limits, Tenants: values.tenants.flat(), Targets: values.targets.flat(), Types: values.types.flat(),
	}, nil
}

// with returns the settings with those that are stored in the hub under some names.
func (s settings) with(stored map[string]string, window time.Duration) (settings, error) {
	tenants, targets, types := map[string]bulk.Tenant{}, map[string]bulk.TargetLimits{}, map[string]bulk.TypeLimits{}
	compiled := map[string]*keys.Keys{}
	for name, text := range stored {
		var err error
		switch rest := name[1:]; name[:1] {
		case settingRate:
			s.rate, err = readSetting[float64](text)
		case settingLimits:
			var limits bulk.Limits
			limits, err = readSetting[bulk.Limits](text)
			s.limits = &limits
		case settingTenant:
			var t bulk.Tenant
			t, err = readSetting[bulk.Tenant](text)
			tenants[rest] = t.WithDefaults()
			if _, had := s.keys.get(rest); had || len(t.Keys) > 0 {
				compiled[rest], _ = keys.Compile(t.Keys) // they were valid when they were set
			}
		case settingTarget:
			targets[rest], err = readSetting[bulk.TargetLimits](text)
		case settingType:
			types[rest], err = readSetting[bulk.TypeLimits](text)
		}
		if err != nil {
			return s, fmt.Errorf("redis: the setting %q: %w", name, err)
		}
	}
	s.tenants, s.targets, s.types, s.keys = s.tenants.with(tenants), s.targets.with(targets), s.types.with(types), s.keys.with(compiled)
	for name := range stored {
		s.shortest = min(s.shortest, s.limitOf(limitedBy(name)).Window(window))
	}
	return s, nil
}

func readSetting[V any](text string) (v V, err error) {
	err = json.Unmarshal([]byte(text), &v)
	return v, err
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
	if _, err := onHub(ctx, s, setScript, asInt, name, string(text), "0"); err != nil {
		return err
	}
	return s.spreadSettings(ctx)
}

// limitedBy returns the name of the limit that a setting has.
func limitedBy(setting string) string {
	switch rest := setting[1:]; setting[:1] {
	case settingTenant:
		return "t:" + rest
	case settingTarget:
		return "g:" + rest
	case settingType:
		return "g:" + bulk.HandlersOf(rest)
	}
	return "all"
}

// limitOf returns what is set for a name: "all", "t:TENANT" or "g:TARGET", where the handlers
// of a type are a target.
func (s *settings) limitOf(name string) bulk.Limit {
	rest := name[min(2, len(name)):]
	switch {
	case name == "all" && s.limits != nil:
		return s.limits.Limit()
	case name == "all":
		return bulk.Limit{RequestsPerSecond: s.rate}
	case name[:2] == "t:":
		t, _ := s.tenants.get(rest)
		return t.Limit()
	}
	if jobType, handlers := strings.CutPrefix(rest, bulk.HandlersOf("")); handlers {
		t, _ := s.types.get(jobType)
		return t.Limit()
	}
	t, _ := s.targets.get(rest)
	l := t.Limit()
	if t.Auto {
		l.RequestsPerSecond = bulk.MinRate // until the rate is found: see mirror.limitOf
	}
	return l
}

// limitedTargets returns the names of all targets, and of all handlers of types, with settings.
func (s *settings) limitedTargets() (names []string) {
	for name := range s.targets.all() {
		names = append(names, name)
	}
	for name := range s.types.all() {
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
	rate := s.configRate()
	if revision > 0 && values.rate == rate {
		return nil
	}
	return s.set(ctx, settingRate, rate)
}

// configRate returns the config's limit; 0: none.
func (s *Store) configRate() float64 { return max(0, s.config.RequestsPerSecond) }
