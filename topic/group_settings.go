package topic

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// GroupSettings are the settings of one share group, parsed and with the broker's defaults.
type GroupSettings struct {
	// Lock (share.record.lock.duration.ms), Deliveries (share.delivery.count.limit) and Earliest
	// (share.auto.offset.reset) are those of SharesConfig.
	Lock       time.Duration
	Deliveries int
	Earliest   bool
	// DeadLetters (errors.deadletterqueue.topic.name) is the topic of dead letters; empty: there are none. With
	// CopyRecord (errors.deadletterqueue.copy.record.enable) they have a copy of the record.
	DeadLetters string
	CopyRecord  bool
	// Backoff (sluice.share.retry.backoff.ms) is how long a record that was not settled waits for its next delivery: twice as
	// long with each one, up to BackoffMax (sluice.share.retry.backoff.max.ms), if that is more.
	Backoff, BackoffMax time.Duration
}

// MaxShareBackoff bounds the backoff of share groups.
const MaxShareBackoff = 24 * time.Hour

// GroupSetting describes one setting of share groups.
type GroupSetting struct {
	// Name is Kafka's name; settings that Kafka does not have begin with "sluice.".
	Name string
	// Meaning describes the setting, Allowed its values.
	Meaning, Allowed string
	// Kind is the type of the value, as clients show it.
	Kind SettingKind

	parse  func(text string, s *GroupSettings) error
	format func(s *GroupSettings) string
}

// GroupSettingsTable returns all settings that a share group may have.
func GroupSettingsTable() []GroupSetting { return slices.Clone(groupSettingsTable) }

// Value returns the setting's value in settings, as text that ParseGroupSettings accepts.
func (s *GroupSetting) Value(settings GroupSettings) string { return s.format(&settings) }

var groupSettingsTable = []GroupSetting{
	{
		Name: "errors.deadletterqueue.topic.name", Meaning: "The topic that records are written to when they are rejected, or were delivered too often.",
		Allowed: "the name of a topic that has " + SettingDeadLetters + "=true; empty: none",
		parse: func(text string, s *GroupSettings) error {
			if s.DeadLetters = text; text == "" {
				return nil
			}
			return cmp.Or(CheckName(text), wantIf(strings.HasPrefix(text, "sluice."), "a topic that is none of the servers' own"))
		},
		format: func(s *GroupSettings) string { return s.DeadLetters },
	},
	{
		Name: "errors.deadletterqueue.copy.record.enable", Kind: KindBool,
		Meaning: "Copies the key, the value and the headers of the record to the dead letter, which otherwise says only where it is.", Allowed: trueOrFalse.text,
		parse: func(text string, s *GroupSettings) error {
			s.CopyRecord = text == "true"
			return trueOrFalse.check(text)
		},
		format: func(s *GroupSettings) string { return strconv.FormatBool(s.CopyRecord) },
	},
	{
		Name: "share.auto.offset.reset", Meaning: "Where the group begins in a partition that it reads for the first time.", Allowed: "earliest or latest",
		parse: func(text string, s *GroupSettings) error {
			s.Earliest = text == "earliest"
			return wantIf(text != "earliest" && text != "latest", "earliest or latest")
		},
		format: func(s *GroupSettings) string {
			if s.Earliest {
				return "earliest"
			}
			return "latest"
		},
	},
	{
		Name: "share.delivery.count.limit", Kind: KindInt32, Meaning: "How often a record is delivered at most.", Allowed: "1 to 100",
		parse: func(text string, s *GroupSettings) error {
			value, err := parseWhole(text, 1, MaxDeliveries, "deliveries")
			s.Deliveries = int(value)
			return err
		},
		format: func(s *GroupSettings) string { return strconv.Itoa(s.Deliveries) },
	},
	groupTime("share.record.lock.duration.ms", "How long a member has a record before others get it, in milliseconds.",
		MinShareLock, MaxShareLock, func(s *GroupSettings) *time.Duration { return &s.Lock }),
	groupTime("sluice.share.retry.backoff.ms", "How long a record that was released, or whose lock has ended, waits until it is delivered again, in milliseconds.",
		0, MaxShareBackoff, func(s *GroupSettings) *time.Duration { return &s.Backoff }),
	groupTime("sluice.share.retry.backoff.max.ms", "If it is more than sluice.share.retry.backoff.ms, that doubles with each delivery, up to this.",
		0, MaxShareBackoff, func(s *GroupSettings) *time.Duration { return &s.BackoffMax }),
}

// groupTime returns a setting that is a time in milliseconds.
func groupTime(name, meaning string, least, most time.Duration, of func(*GroupSettings) *time.Duration) GroupSetting {
	return GroupSetting{
		Name: name, Kind: KindInt32, Meaning: meaning, Allowed: fmt.Sprintf("%d to %d", least.Milliseconds(), most.Milliseconds()),
		parse: func(text string, s *GroupSettings) error {
			ms, err := parseWhole(text, least.Milliseconds(), most.Milliseconds(), "milliseconds")
			*of(s) = time.Duration(ms) * time.Millisecond
			return err
		},
		format: func(s *GroupSettings) string { return strconv.FormatInt(of(s).Milliseconds(), 10) },
	}
}

// ParseGroupSettings parses a share group's own settings and fills in the broker's defaults. The error is an
// ErrInvalidSetting.
func ParseGroupSettings(own map[string]string, broker Config) (GroupSettings, error) {
	shares := broker.WithDefaults().Shares
	settings := GroupSettings{Lock: shares.Lock, Deliveries: shares.Deliveries, Earliest: shares.Earliest}
	for _, name := range slices.Sorted(maps.Keys(own)) {
		setting, err := FindGroupSetting(name)
		if err != nil {
			return GroupSettings{}, err
		}
		if err := setting.parse(own[name], &settings); err != nil {
			return GroupSettings{}, fmt.Errorf("%w: %s: %.200q: %w", ErrInvalidSetting, name, own[name], err)
		}
	}
	return settings, nil
}

// FindGroupSetting returns the setting of share groups of that name. The error, an ErrInvalidSetting, suggests a
// similar name, or has all of them.
func FindGroupSetting(name string) (*GroupSetting, error) {
	names := make([]string, len(groupSettingsTable))
	for i := range groupSettingsTable {
		if groupSettingsTable[i].Name == name {
			return &groupSettingsTable[i], nil
		}
		names[i] = groupSettingsTable[i].Name
	}
	return nil, unknownSetting(name, names, "groups have", "they have")
}
