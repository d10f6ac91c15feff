package topic

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sluice-project/sluice/spelling"
)

// Settings are those of one topic, parsed and with the broker's defaults.
type Settings struct {
	// Retention (retention.ms) and RetentionBytes (retention.bytes) say how
	// much is kept; -1: no limit.
	Retention      time.Duration
	RetentionBytes int64
	// MaxMessageBytes (max.message.bytes) is the most bytes of one batch.
	MaxMessageBytes int32
	// MinInSync (min.insync.replicas) is how many replicas must have a record before
	// it is acknowledged: at most the majority, which always have it.
	MinInSync int
	// LogAppendTime (message.timestamp.type) makes the time of the append the
	// records' timestamp.
	LogAppendTime bool
	// ViewOf and ViewWhere (sluice.view.of, sluice.view.where) make it a view.
	ViewOf, ViewWhere string
	// Delays (sluice.delay.enable) lets records be delayed; Delay
	// (sluice.delay) is how long those wait that do not say.
	Delays bool
	Delay  time.Duration
}

// ParseSettings returns the settings with those values, and the broker's
// defaults for the rest. The error is an ErrInvalidSetting. It does not look at
// other topics, nor at the grammar of a view's filter.
func ParseSettings(own map[string]string, broker Config) (Settings, error) {
	broker = broker.WithDefaults()
	settings := Settings{
		Retention: max(broker.Retention, -1), RetentionBytes: max(broker.RetentionBytes, -1), MaxMessageBytes: broker.MaxMessageBytes,
		MinInSync: 1,
	}
	for _, name := range slices.Sorted(maps.Keys(own)) {
		setting, err := FindSetting(name)
		if err != nil {
			return Settings{}, err
		}
		if err := setting.parse(own[name], &settings); err != nil {
			return Settings{}, fmt.Errorf("%w: %s: %.200q: %w", ErrInvalidSetting, name, own[name], err)
		}
	}
	if err := settings.check(own); err != nil {
		return Settings{}, fmt.Errorf("%w: %w", ErrInvalidSetting, err)
	}
	return settings, nil
}

// FindSetting returns the setting of that name. The error, an ErrInvalidSetting,
// says why there is none, or which may have been meant.
func FindSetting(name string) (*Setting, error) {
	names := make([]string, len(settingsTable))
	for i := range settingsTable {
		if settingsTable[i].Name == name {
			return &settingsTable[i], nil
		}
		names[i] = settingsTable[i].Name
	}
	if why, known := refusedSettings[name]; known {
		return nil, fmt.Errorf("%w: %s would do nothing here: %s", ErrInvalidSetting, name, why)
	}
	near, distance := spelling.Nearest(name, names)
	if distance <= nearMiss {
		return nil, fmt.Errorf("%w: there is no %.200q; did you mean %s?", ErrInvalidSetting, name, near)
	}
	return nil, fmt.Errorf("%w: there is no %.200q; there are %s", ErrInvalidSetting, name, strings.Join(names, ", "))
}

// checkInSync returns an ErrInvalidSetting if the settings want more replicas to have
// a record than the majority of those that there are.
func (s *Settings) checkInSync(partitions []partitionRecord) error {
	for i, p := range partitions {
		if most := majority(len(p.Replicas)); s.MinInSync > most {
			return fmt.Errorf("%w %s: %d; partition %d has %d replicas, and acks=all waits for the majority of them, so want 1 to %d",
				ErrInvalidSetting, SettingMinInSync, s.MinInSync, i, len(p.Replicas), most)
		}
	}
	return nil
}

// nearMiss is how many letters a name may be off to be taken for a mistake.
const nearMiss = 4

// check checks what depends on more than one setting.
func (s *Settings) check(own map[string]string) error {
	switch {
	case s.ViewOf == "" && s.ViewWhere != "":
		return fmt.Errorf("%s needs %s: the topic that the view shows a part of", SettingViewWhere, SettingViewOf)
	case s.ViewOf != "" && s.ViewWhere == "":
		return fmt.Errorf("%s needs %s: which records the view shows, such as headers.tag == \"paid\"", SettingViewOf, SettingViewWhere)
	case !s.Delays && s.Delay != 0:
		return fmt.Errorf("%s needs %s=true", SettingDelay, SettingDelays)
	case s.ViewOf == "":
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(own)) {
		setting, err := FindSetting(name)
		if err != nil {
			return err
		}
		if !setting.Fixed && name != SettingViewOf && name != SettingViewWhere {
			return fmt.Errorf("%s would do nothing on a view, which keeps no records: set it on %s", name, s.ViewOf)
		}
	}
	return nil
}
