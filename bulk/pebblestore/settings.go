package pebblestore

import (
	"context"
	"encoding/json"
	"maps"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/internal/pebblekv"
)

// The second byte of a setting's key is its kind.
const (
	settingLimits = 'g'
	settingTenant = 't'
	settingTarget = 'u'
	settingType   = 'y'
)

func (s *Store) loadSettings() error {
	s.settings = bulk.Settings{
		Tenants: map[string]bulk.Tenant{}, Targets: map[string]bulk.TargetLimits{}, Types: map[string]bulk.TypeLimits{},
	}
	err := s.eachSetting(s.adopt)
	if s.settings.Limits == nil {
		s.global.limit = bulk.Limit{RequestsPerSecond: max(0, s.config.RequestsPerSecond)}
	}
	if err != nil {
		return err
	}
	return s.loadAuto()
}

// eachSetting reads the settings.
func (s *Store) eachSetting(f func(bulk.SettingsChange)) error {
	return pebblekv.Scan(s.db, []byte{keySetting}, []byte{keySetting + 1}, func(key, value []byte) (bool, error) {
		change := bulk.SettingsChange{Name: string(key[2:])}
		var into any
		switch key[1] {
		case settingLimits:
			change.Limits = new(bulk.Limits)
			into = change.Limits
		case settingTenant:
			change.Tenant = new(bulk.Tenant)
			into = change.Tenant
		case settingTarget:
			change.Target = new(bulk.TargetLimits)
			into = change.Target
		case settingType:
			change.Type = new(bulk.TypeLimits)
			into = change.Type
		}
		if err := pebblekv.Unmarshal(key, value, into); err != nil {
			return false, err
		}
		f(change)
		return true, nil
	})
}

// adopt applies a setting in memory.
func (s *Store) adopt(change bulk.SettingsChange) {
	switch {
	case change.Limits != nil:
		s.settings.Limits = change.Limits
		s.global.limit = change.Limits.Limit()
	case change.Tenant != nil:
		settings := change.Tenant.WithDefaults()
		s.settings.Tenants[change.Name] = settings
		t := s.tenantOf(change.Name)
		for _, l := range t.lines {
			some := l.actions[:1] // one tells that the limit may admit more
			if t.settings.BasePriority != settings.BasePriority {
				some = l.actions
			}
			for _, a := range some {
				s.changed(a)
			}
		}
		t.settings, t.counter.limit = settings, settings.Limit()
		s.adoptKeys(t, s.now())
	case change.Target != nil:
		s.settings.Targets[change.Name] = *change.Target
		t := s.targetOf(change.Name)
		t.limit = change.Target.Limit()
		s.adoptAuto(t, change.Target.Auto)
	case change.Type != nil:
		s.settings.Types[change.Name] = *change.Type
		s.targetOf(bulk.HandlersOf(change.Name)).limit = change.Type.Limit()
	}
}

// Settings implements bulk.Store.
func (s *Store) Settings(context.Context) (bulk.Settings, error) {
	s.reads.RLock()
	defer s.reads.RUnlock()
	settings := s.settings
	settings.Tenants = maps.Clone(settings.Tenants)
	settings.Targets = maps.Clone(settings.Targets)
	settings.Types = maps.Clone(settings.Types)
	return settings, s.state
}

// Set implements bulk.Store.
func (s *Store) Set(_ context.Context, change bulk.SettingsChange) error {
	kind, value := byte(settingLimits), any(change.Limits)
	switch {
	case change.Tenant != nil:
		kind, value = settingTenant, change.Tenant
	case change.Target != nil:
		kind, value = settingTarget, change.Target
	case change.Type != nil:
		kind, value = settingType, change.Type
	}
	encoded, err := json.Marshal(value)
	if err != nil {
		return err
	}
	key := append([]byte{keySetting, kind}, change.Name...)
	return s.do(func(c *call) error {
		c.keep(c.batch.Set(key, encoded, &pebble.WriteOptions{}))
		if change.Target != nil && !change.Target.Auto {
			c.keep(c.batch.Delete(autoKey(change.Name), nil))
		}
		s.adopt(change)
		return nil
	})
}
