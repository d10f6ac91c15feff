package topic

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/sluice-project/sluice/internal/spelling"
)

// Settings are the settings of one topic, parsed and with the broker's defaults.
type Settings struct {
	// Retention (retention.ms) and RetentionBytes (retention.bytes) bound what is
	// kept; -1: no limit.
	Retention      time.Duration
	RetentionBytes int64
	// Delete and Compact (cleanup.policy) say what removes records: retention, compaction, or
	// both.
	Delete, Compact bool
	// DeleteRetention (delete.retention.ms) is how long compaction keeps a tombstone after what it
	// deletes; MinCompactionLag (min.compaction.lag.ms) how old records are that it may remove, and
	// MaxCompactionLag (max.compaction.lag.ms) how old the first one that it has not seen may get.
	DeleteRetention, MinCompactionLag, MaxCompactionLag time.Duration
	// DirtyRatio (min.cleanable.dirty.ratio) is the least part of a partition that compaction has
	// not seen, for it to begin.
	DirtyRatio float64
	// MaxMessageBytes (max.message.bytes) bounds the size of one batch.
	MaxMessageBytes int32
	// MinInSync (min.insync.replicas) is how many replicas must have a record before
	// it is acknowledged: at most the majority, which always has it.
	MinInSync int
	// Compression (compression.type) is how batches are kept.
	Compression Compression
	// LogAppendTime (message.timestamp.type) sets the records' timestamps to the
	// time of the append.
	LogAppendTime bool
	// ViewOf and ViewWhere (sluice.view.of, sluice.view.where) make the topic a view.
	ViewOf, ViewWhere string
	// Delays (sluice.delay.enable) lets records be delayed; Delay (sluice.delay) is
	// the delay of records that set none themselves.
	Delays bool
	Delay  time.Duration
	// DeadLetters (errors.deadletterqueue.group.enable) lets share groups write dead letters to the topic.
	DeadLetters bool
}

// ParseSettings parses a topic's own settings and fills in the broker's defaults.
// The error is an ErrInvalidSetting. ParseSettings checks neither other topics
// nor the grammar of a view's filter.
func ParseSettings(own map[string]string, broker Config) (Settings, error) {
	broker = broker.WithDefaults()
	settings := Settings{
		Retention: max(broker.Retention, -1), RetentionBytes: max(broker.RetentionBytes, -1), MaxMessageBytes: broker.MaxMessageBytes,
		MinInSync: 1,
		Delete:    true, DeleteRetention: 24 * time.Hour, MaxCompactionLag: math.MaxInt64, DirtyRatio: 0.5,
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
// says why there is none, or suggests a similar name.
func FindSetting(name string) (*Setting, error) {
	names := make([]string, len(settingsTable))
	for i := range settingsTable {
		if settingsTable[i].Name == name {
			return &settingsTable[i], nil
		}
		names[i] = settingsTable[i].Name
	}
	if why, known := refusedSettings[name]; known {
		return nil, fmt.Errorf("%w: there is no %s: %s", ErrInvalidSetting, name, why)
	}
	return nil, unknownSetting(name, names, "there is", "there are")
}

// unknownSetting says that something has no setting of a name, and suggests a similar one, or has all.
func unknownSetting(name string, names []string, has, have string) error {
	if near, distance := spelling.Nearest(name, names); distance <= nearMiss {
		return fmt.Errorf("%w: %s no %.200q; did you mean %s?", ErrInvalidSetting, has, name, near)
	}
	return fmt.Errorf("%w: %s no %.200q; %s %s", ErrInvalidSetting, has, name, have, strings.Join(names, ", "))
}

// CheckInSync returns an ErrInvalidSetting if the settings require more replicas
// to have a record than the majority of a partition's replicas.
func (s *Settings) CheckInSync(partitions [][]int32) error {
	for i, replicas := range partitions {
		if most := Majority(len(replicas)); s.MinInSync > most {
			return fmt.Errorf("%w %s: %d; partition %d has %d replicas, and acks=all waits for the majority of them, so want 1 to %d",
				ErrInvalidSetting, SettingMinInSync, s.MinInSync, i, len(replicas), most)
		}
	}
	return nil
}

// nearMiss is the largest edit distance at which a name counts as a typing error.
const nearMiss = 4

// check checks the conditions that involve more than one setting.
func (s *Settings) check(own map[string]string) error {
	switch {
	case s.MinCompactionLag > s.MaxCompactionLag:
		return fmt.Errorf("%s is %d: want at most %s, which is %d", settingMinLag, s.MinCompactionLag.Milliseconds(), settingMaxLag, s.MaxCompactionLag.Milliseconds())
	case s.ViewOf == "" && s.ViewWhere != "":
		return fmt.Errorf("%s needs %s: the topic that the view shows a part of", SettingViewWhere, SettingViewOf)
	case s.ViewOf != "" && s.ViewWhere == "":
		return fmt.Errorf("%s needs %s: which records the view shows, such as headers.tag == \"paid\"", SettingViewOf, SettingViewWhere)
	case s.ViewOf != "" && s.Compact:
		return fmt.Errorf("%s: a view keeps no records: compact %s", SettingCleanup, s.ViewOf)
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
		if !setting.OfViews() {
			return fmt.Errorf("%s would do nothing on a view, which keeps no records: set it on %s", name, s.ViewOf)
		}
	}
	return nil
}
