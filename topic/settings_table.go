package topic

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"
)

// Setting is one thing that can be set for a topic.
type Setting struct {
	// Name is as in Kafka; those that Kafka does not have begin with "sluice.".
	Name string
	// Meaning says what it does, Allowed what values it takes.
	Meaning, Allowed string
	// Kind is the type of the value, as clients show it.
	Kind SettingKind
	// Broker is the name that Kafka has for the broker's setting that is the
	// default; empty if there is none.
	Broker string
	// Fixed settings have one value, which says how it is: they can be set to
	// that and to nothing else.
	Fixed bool

	parse  func(text string, s *Settings) error
	format func(s *Settings) string
}

// SettingKind is the type of a setting's value.
type SettingKind int

// The kinds of settings: those of Kafka.
const (
	KindText SettingKind = iota
	KindBool
	KindInt32
	KindInt64
	KindList
)

// SettingsTable returns all settings that a topic may have, those that do
// something first.
func SettingsTable() []Setting { return slices.Clone(settingsTable) }

// Value returns the setting's value in settings, as text that ParseSettings
// takes; empty for one that is not set and has no default.
func (s *Setting) Value(settings Settings) string { return s.format(&settings) }

// Names that are used in more than one place.
const (
	SettingViewOf    = "sluice.view.of"
	SettingViewWhere = "sluice.view.where"
	SettingDelays    = "sluice.delay.enable"
	SettingDelay     = "sluice.delay"
	SettingMinInSync = "min.insync.replicas"
)

// MaxDelay is the longest delay that a topic may have by default.
const MaxDelay = 366 * 24 * time.Hour

// majority is how many of some replicas are more than half of them.
func majority(replicas int) int { return replicas/2 + 1 }

// maxWhereBytes is the longest filter of a view.
const maxWhereBytes = 4096

var settingsTable = []Setting{
	{
		Name: "retention.ms", Kind: KindInt64, Broker: "log.retention.ms",
		Meaning: "How long records are kept, in milliseconds, by their timestamps.", Allowed: "0 or more; -1: for ever",
		parse: parseRetention,
		format: func(s *Settings) string {
			if s.Retention < 0 {
				return "-1"
			}
			return strconv.FormatInt(s.Retention.Milliseconds(), 10)
		},
	},
	{
		Name: "retention.bytes", Kind: KindInt64, Broker: "log.retention.bytes",
		Meaning: "The most bytes that each partition keeps; the oldest records go first.", Allowed: "0 or more; -1: no limit",
		parse: func(text string, s *Settings) (err error) {
			s.RetentionBytes, err = parseWhole(text, -1, math.MaxInt64, "bytes, or -1 for no limit")
			return err
		},
		format: func(s *Settings) string { return strconv.FormatInt(max(s.RetentionBytes, -1), 10) },
	},
	{
		Name: "max.message.bytes", Kind: KindInt32, Broker: "message.max.bytes",
		Meaning: "The most bytes of one record batch, as it was sent.", Allowed: fmt.Sprintf("%d to %d", BatchOverhead, maxBatchBytes),
		parse: func(text string, s *Settings) error {
			value, err := parseWhole(text, BatchOverhead, maxBatchBytes, "bytes")
			s.MaxMessageBytes = int32(value)
			return err
		},
		format: func(s *Settings) string { return strconv.Itoa(int(s.MaxMessageBytes)) },
	},
	{
		Name: "message.timestamp.type", Broker: "log.message.timestamp.type",
		Meaning: "Whose time is a record's timestamp: the producer's, or that of the append.", Allowed: "CreateTime or LogAppendTime",
		parse: parseTimestampType,
		format: func(s *Settings) string {
			if s.LogAppendTime {
				return logAppendTime
			}
			return createTime
		},
	},
	{
		Name: SettingViewOf, Meaning: "Makes the topic a view: the name of the topic that it shows a part of.", Allowed: "the name of a topic that is no view",
		parse: func(text string, s *Settings) error {
			s.ViewOf = text
			return wantIf(text == "", "the name of a topic")
		},
		format: func(s *Settings) string { return s.ViewOf },
	},
	{
		Name:    SettingViewWhere,
		Meaning: "Which records the view shows: a CEL expression over key (string), value (bytes), headers (map of strings) and timestamp.",
		Allowed: fmt.Sprintf("an expression that is true or false, at most %d bytes", maxWhereBytes),
		parse: func(text string, s *Settings) error {
			s.ViewWhere = text
			return wantIf(text == "" || len(text) > maxWhereBytes, fmt.Sprintf(`an expression of 1 to %d bytes, such as headers.tag == "paid"`, maxWhereBytes))
		},
		format: func(s *Settings) string { return s.ViewWhere },
	},
	{
		Name: SettingDelays, Kind: KindBool,
		Meaning: "Lets records be delayed, by the headers sluice-deliver-at and sluice-delay and by sluice.delay.", Allowed: "true or false",
		parse: func(text string, s *Settings) error {
			s.Delays = text == "true"
			return wantIf(text != "true" && text != "false", "true or false")
		},
		format: func(s *Settings) string { return strconv.FormatBool(s.Delays) },
	},
	{
		Name:    SettingDelay,
		Meaning: "How long a record waits that does not say itself. Needs sluice.delay.enable=true.", Allowed: "a duration such as 30m, at most 8784h; 0s: not at all",
		parse:  parseDelay,
		format: func(s *Settings) string { return s.Delay.String() },
	},

	{
		Name: SettingMinInSync, Kind: KindInt32, Broker: "min.insync.replicas",
		Meaning: "How many replicas must have a record before it is acknowledged. The majority always must, so that less changes nothing, and more is refused.",
		Allowed: fmt.Sprintf("1 to the majority of the topic's replicas, at most %d", majority(maxReplicas)),
		parse: func(text string, s *Settings) error {
			value, err := parseWhole(text, 1, int64(majority(maxReplicas)), "replicas, at most the majority of the topic's: acks=all waits for that, and for no more")
			s.MinInSync = int(value)
			return err
		},
		format: func(s *Settings) string { return strconv.Itoa(s.MinInSync) },
	},

	fixed("cleanup.policy", KindList, "log.cleanup.policy", "delete", "What retention does with old records: it removes them. Compaction is not there yet."),
	fixed("compression.type", KindText, "compression.type", "producer", "Batches are kept as their producers compressed them."),
	fixed("unclean.leader.election.enable", KindBool, "unclean.leader.election.enable", "false", "A replica that lacks acknowledged records never leads, so it cannot be true."),
	fixed("message.timestamp.before.max.ms", KindInt64, "log.message.timestamp.before.max.ms", strconv.Itoa(math.MaxInt64), "How old a record's timestamp may be: any age."),
	fixed("message.timestamp.after.max.ms", KindInt64, "log.message.timestamp.after.max.ms", strconv.FormatInt(timestampAhead.Milliseconds(), 10), "How far in the future a record's timestamp may be, in milliseconds."),
	fixed("preallocate", KindBool, "log.preallocate", "false", "Files grow as records come."),
	fixed("remote.storage.enable", KindBool, "", "false", "There is no tiered storage."),
}

const (
	createTime    = "CreateTime"
	logAppendTime = "LogAppendTime"
)

// fixed is a setting with one value.
func fixed(name string, kind SettingKind, broker, value, meaning string) Setting {
	return Setting{
		Name: name, Kind: kind, Broker: broker, Meaning: meaning, Allowed: value, Fixed: true,
		parse:  func(text string, _ *Settings) error { return wantIf(text != value, value+", nothing else. "+meaning) },
		format: func(*Settings) string { return value },
	}
}

// refusedSettings are those of Kafka that would do nothing, and why.
var refusedSettings = map[string]string{
	"segment.bytes":                           noSegments,
	"segment.ms":                              noSegments,
	"segment.jitter.ms":                       noSegments,
	"segment.index.bytes":                     noSegments,
	"index.interval.bytes":                    "the index is made of what is appended together",
	"file.delete.delay.ms":                    "files are removed when their records are",
	"flush.messages":                          syncedByServer,
	"flush.ms":                                syncedByServer,
	"message.format.version":                  "records are kept in format 2, always",
	"message.downconversion.enable":           "records are kept and sent in format 2, always",
	"message.timestamp.difference.max.ms":     "it became message.timestamp.before.max.ms and message.timestamp.after.max.ms",
	"delete.retention.ms":                     noCompaction,
	"min.cleanable.dirty.ratio":               noCompaction,
	"min.compaction.lag.ms":                   noCompaction,
	"max.compaction.lag.ms":                   noCompaction,
	"local.retention.ms":                      noTiers,
	"local.retention.bytes":                   noTiers,
	"remote.log.copy.disable":                 noTiers,
	"remote.log.delete.on.disable":            noTiers,
	"leader.replication.throttled.replicas":   noThrottle,
	"follower.replication.throttled.replicas": noThrottle,
}

const (
	noSegments     = "records are not kept in segments of that kind; use retention.ms and retention.bytes"
	syncedByServer = "how often records are synced to the disk is a setting of the server, topic.sync"
	noCompaction   = "it is for compaction, which is not there yet"
	noTiers        = "there is no tiered storage"
	noThrottle     = "there is no replication to throttle"
)

func parseRetention(text string, s *Settings) error {
	ms, err := parseWhole(text, -1, math.MaxInt64, "milliseconds, or -1 for ever")
	switch {
	case err != nil:
		return err
	case ms < 0 || ms > int64(math.MaxInt64/time.Millisecond): // 292 years: clients write the largest number for "ever"
		s.Retention = -1
	default:
		s.Retention = time.Duration(ms) * time.Millisecond
	}
	return nil
}

func parseTimestampType(text string, s *Settings) error {
	s.LogAppendTime = text == logAppendTime
	return wantIf(text != logAppendTime && text != createTime, createTime+" or "+logAppendTime)
}

func parseDelay(text string, s *Settings) (err error) {
	s.Delay, err = time.ParseDuration(text)
	return wantIf(err != nil || s.Delay < 0 || s.Delay > MaxDelay, "a duration from 0s to 8784h, such as 90s, 30m or 24h")
}

func parseWhole(text string, least, most int64, what string) (int64, error) {
	value, err := strconv.ParseInt(text, 10, 64)
	if err == nil && value >= least && value <= most {
		return value, nil
	}
	if most == math.MaxInt64 {
		return 0, fmt.Errorf("want a whole number of %s", what)
	}
	return 0, fmt.Errorf("want a whole number from %d to %d, of %s", least, most, what)
}

// wantIf is the error of a value that is wrong.
func wantIf(wrong bool, want string) error {
	if wrong {
		return errors.New("want " + want)
	}
	return nil
}
