package topic

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Setting describes one setting of topics.
type Setting struct {
	// Name is Kafka's name; settings that Kafka does not have begin with "sluice.".
	Name string
	// Meaning describes the setting, Allowed its values.
	Meaning, Allowed string
	// Kind is the type of the value, as clients show it.
	Kind SettingKind
	// Broker is Kafka's name for the broker setting that is the default; empty if
	// there is none.
	Broker string
	// Fixed settings have one value, which describes how the broker works: they
	// cannot be set to any other.
	Fixed bool
	// Inert settings are kept and shown, and have no effect.
	Inert bool

	parse  func(text string, s *Settings) error
	format func(s *Settings) string
}

// SettingKind is the type of a setting's value.
type SettingKind int

// The kinds of settings, as in Kafka.
const (
	KindText SettingKind = iota
	KindBool
	KindInt32
	KindInt64
	KindDouble
	KindList
)

// SettingsTable returns all settings that a topic may have, those with an effect
// first.
func SettingsTable() []Setting { return slices.Clone(settingsTable) }

// OfViews reports whether views may have the setting too.
func (s *Setting) OfViews() bool {
	switch s.Name {
	case SettingViewOf, SettingViewWhere, SettingCleanup, settingDirtyRatio, settingDeleteRetention, settingMinLag, settingMaxLag:
		return true // views that clients made before there was compaction have the settings for it
	}
	return s.Fixed || s.Inert
}

// Value returns the setting's value in settings, as text that ParseSettings
// accepts; empty for a setting that is not set and has no default.
func (s *Setting) Value(settings Settings) string { return s.format(&settings) }

// Names that are used in more than one place.
const (
	SettingViewOf    = "sluice.view.of"
	SettingViewWhere = "sluice.view.where"
	SettingDelays    = "sluice.delay.enable"
	SettingDelay     = "sluice.delay"
	SettingMinInSync = "min.insync.replicas"
	// SettingDeadLetters lets share groups write dead letters to a topic.
	SettingDeadLetters = "errors.deadletterqueue.group.enable"
	SettingCleanup     = "cleanup.policy"

	settingDirtyRatio      = "min.cleanable.dirty.ratio"
	settingDeleteRetention = "delete.retention.ms"
	settingMinLag          = "min.compaction.lag.ms"
	settingMaxLag          = "max.compaction.lag.ms"
)

// MaxDelay is the default bound of a topic's delay.
const MaxDelay = 366 * 24 * time.Hour

// Majority returns the smallest number that is more than half of the replicas.
func Majority(replicas int) int { return replicas/2 + 1 }

// maxWhereBytes bounds the length of a view's filter.
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
		Meaning: "The maximum size of each partition in bytes; the oldest records are removed first.", Allowed: "0 or more; -1: no limit",
		parse: func(text string, s *Settings) (err error) {
			s.RetentionBytes, err = parseWhole(text, -1, math.MaxInt64, "bytes, or -1 for no limit")
			return err
		},
		format: func(s *Settings) string { return strconv.FormatInt(max(s.RetentionBytes, -1), 10) },
	},
	{
		Name: "max.message.bytes", Kind: KindInt32, Broker: "message.max.bytes",
		Meaning: "The maximum size of one record batch in bytes, as it was sent.", Allowed: fmt.Sprintf("%d to %d", BatchOverhead, MaxBatchBytes),
		parse: func(text string, s *Settings) error {
			value, err := parseWhole(text, BatchOverhead, MaxBatchBytes, "bytes")
			s.MaxMessageBytes = int32(value)
			return err
		},
		format: func(s *Settings) string { return strconv.Itoa(int(s.MaxMessageBytes)) },
	},
	{
		Name: "message.timestamp.type", Broker: "log.message.timestamp.type",
		Meaning: "The source of timestamps: the producer, or the time of the append.", Allowed: "CreateTime or LogAppendTime",
		parse: parseTimestampType,
		format: func(s *Settings) string {
			if s.LogAppendTime {
				return logAppendTime
			}
			return createTime
		},
	},
	{
		Name: SettingViewOf, Meaning: "Makes the topic a view: the name of its source topic.", Allowed: "the name of a topic that is not a view",
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
		Meaning: "Allows delayed records, by the headers sluice-deliver-at and sluice-delay and by sluice.delay.", Allowed: "true or false",
		parse: func(text string, s *Settings) error {
			s.Delays = text == "true"
			return trueOrFalse.check(text)
		},
		format: func(s *Settings) string { return strconv.FormatBool(s.Delays) },
	},
	{
		Name:    SettingDelay,
		Meaning: "The delay of records without a delay of their own. Needs sluice.delay.enable=true.", Allowed: "a duration such as 30m, at most 8784h; 0s: not at all",
		parse:  parseDelay,
		format: func(s *Settings) string { return s.Delay.String() },
	},

	{
		Name: SettingDeadLetters, Kind: KindBool,
		Meaning: "Allows share groups to write dead letters to the topic.", Allowed: trueOrFalse.text,
		parse: func(text string, s *Settings) error {
			s.DeadLetters = text == "true"
			return trueOrFalse.check(text)
		},
		format: func(s *Settings) string { return strconv.FormatBool(s.DeadLetters) },
	},
	{
		Name: SettingMinInSync, Kind: KindInt32, Broker: "min.insync.replicas",
		Meaning: "How many replicas must have a record before it is acknowledged. The majority always must, so a lower value changes nothing, and a higher one is refused.",
		Allowed: fmt.Sprintf("1 to the majority of the topic's replicas, at most %d", Majority(MaxReplicas)),
		parse: func(text string, s *Settings) error {
			value, err := parseWhole(text, 1, int64(Majority(MaxReplicas)), "replicas, at most the majority of the topic's: acks=all waits for that, and for no more")
			s.MinInSync = int(value)
			return err
		},
		format: func(s *Settings) string { return strconv.Itoa(s.MinInSync) },
	},

	{
		Name: "compression.type", Broker: "compression.type",
		Meaning: "How batches are kept: as their producers sent them, or with this codec, for which the server compresses those that have another.",
		Allowed: strings.Join(compressionNames, ", "),
		parse: func(text string, s *Settings) error {
			s.Compression = Compression(slices.Index(compressionNames, text))
			return wantIf(s.Compression < 0, strings.Join(compressionNames, ", "))
		},
		format: func(s *Settings) string { return compressionNames[s.Compression] },
	},

	{
		Name: SettingCleanup, Kind: KindList, Broker: "log.cleanup.policy",
		Meaning: "What removes records: delete, by retention.ms and retention.bytes; compact, those whose key has a newer record. In a cluster, compaction needs a version on all nodes that knows it.",
		Allowed: "delete, compact, or both, separated by a comma",
		parse:   parseCleanup,
		format: func(s *Settings) string {
			switch {
			case s.Compact && s.Delete:
				return "compact,delete"
			case s.Compact:
				return "compact"
			}
			return "delete"
		},
	},
	{
		Name: settingDirtyRatio, Kind: KindDouble, Broker: "log.cleaner.min.cleanable.ratio",
		Meaning: "How much of a partition compaction has not seen when it begins. At least 1 MiB in any case.", Allowed: ratio.text,
		parse: func(text string, s *Settings) (err error) {
			s.DirtyRatio, err = strconv.ParseFloat(text, 64)
			return cmp.Or(ratio.check(text), err)
		},
		format: func(s *Settings) string { return strconv.FormatFloat(s.DirtyRatio, 'g', -1, 64) },
	},
	lag(settingDeleteRetention, "log.cleaner.delete.retention.ms", 0, "How long compaction keeps a record without a value, and the end of a transaction, after it has removed what they delete or end, in milliseconds.",
		func(s *Settings) *time.Duration { return &s.DeleteRetention }),
	lag(settingMinLag, "log.cleaner.min.compaction.lag.ms", 0, "How old records are, in milliseconds, before compaction may remove them.",
		func(s *Settings) *time.Duration { return &s.MinCompactionLag }),
	lag(settingMaxLag, "log.cleaner.max.compaction.lag.ms", 1, "How old records get, in milliseconds, before compaction begins whatever min.cleanable.dirty.ratio is.",
		func(s *Settings) *time.Duration { return &s.MaxCompactionLag }),
	fixed("message.timestamp.before.max.ms", KindInt64, "log.message.timestamp.before.max.ms", strconv.Itoa(math.MaxInt64), "How old a record's timestamp may be: any age."),
	fixed("message.timestamp.after.max.ms", KindInt64, "log.message.timestamp.after.max.ms", strconv.FormatInt(TimestampAhead.Milliseconds(), 10), "How far in the future a record's timestamp may be, in milliseconds."),
	fixed("remote.storage.enable", KindBool, "", "false", "There is no tiered storage."),

	inert("segment.bytes", "log.segment.bytes", 14, math.MaxInt32, 1<<30, noSegments),
	inert("segment.ms", "log.roll.ms", 1, math.MaxInt64, 604_800_000, noSegments),
	inert("segment.jitter.ms", "log.roll.jitter.ms", 0, math.MaxInt64, 0, noSegments),
	inert("segment.index.bytes", "log.index.size.max.bytes", 4, math.MaxInt32, 10<<20, noSegments),
	inert("index.interval.bytes", "log.index.interval.bytes", 0, math.MaxInt32, 4096, "the server decides the spacing of its index"),
	inert("file.delete.delay.ms", "log.segment.delete.delay.ms", 0, math.MaxInt64, 60_000, "files are removed when their records are"),
	inert("flush.messages", "log.flush.interval.messages", 1, math.MaxInt64, math.MaxInt64, syncedByServer),
	inert("flush.ms", "log.flush.interval.ms", 0, math.MaxInt64, math.MaxInt64, syncedByServer),
	inertText("preallocate", KindBool, "log.preallocate", "false", trueOrFalse, "the server decides how files grow"),
	inertText("unclean.leader.election.enable", KindBool, "unclean.leader.election.enable", "false", trueOrFalse, "a replica that lacks acknowledged records never leads"),
	inert("compression.gzip.level", "compression.gzip.level", -1, 9, -1, oneLevel),
	inert("compression.lz4.level", "compression.lz4.level", 1, 17, 9, oneLevel),
	inert("compression.zstd.level", "compression.zstd.level", -131_072, 22, 3, oneLevel),
	inert("local.retention.ms", "log.local.retention.ms", -2, math.MaxInt64, -2, noTiers),
	inert("local.retention.bytes", "log.local.retention.bytes", -2, math.MaxInt64, -2, noTiers),
	inertText("remote.log.copy.disable", KindBool, "", "false", trueOrFalse, noTiers),
	inertText("remote.log.delete.on.disable", KindBool, "", "false", trueOrFalse, noTiers),
	inertText("leader.replication.throttled.replicas", KindList, "", "", replicaList, noThrottle),
	inertText("follower.replication.throttled.replicas", KindList, "", "", replicaList, noThrottle),
}

const (
	createTime    = "CreateTime"
	logAppendTime = "LogAppendTime"
)

// fixed returns a setting with one value.
func fixed(name string, kind SettingKind, broker, value, meaning string) Setting {
	return Setting{
		Name: name, Kind: kind, Broker: broker, Meaning: meaning, Allowed: value, Fixed: true,
		parse:  func(text string, _ *Settings) error { return wantIf(text != value, value+", nothing else. "+meaning) },
		format: func(*Settings) string { return value },
	}
}

// inert returns a setting without effect whose value is a whole number.
func inert(name, broker string, least, most, value int64, why string) Setting {
	kind, allowed := KindInt64, fmt.Sprintf("%d or more", least)
	if most < math.MaxInt64 {
		kind, allowed = KindInt32, fmt.Sprintf("%d to %d", least, most)
	}
	check := func(text string) error {
		number, err := strconv.ParseInt(text, 10, 64)
		return wantIf(err != nil || number < least || number > most, "a whole number, "+allowed)
	}
	return inertText(name, kind, broker, strconv.FormatInt(value, 10), allowedText{allowed, check}, why)
}

// inertText returns a setting without effect. Its value is checked as Kafka does, so that it
// also holds where it has an effect.
func inertText(name string, kind SettingKind, broker, value string, allowed allowedText, why string) Setting {
	return Setting{
		Name: name, Kind: kind, Broker: broker, Meaning: "No effect here: " + why + ".", Allowed: allowed.text, Inert: true,
		parse:  func(text string, _ *Settings) error { return allowed.check(text) },
		format: func(*Settings) string { return value },
	}
}

// allowedText is what a setting's text may be.
type allowedText struct {
	text  string
	check func(text string) error
}

var (
	trueOrFalse = allowedText{"true or false", func(text string) error {
		return wantIf(text != "true" && text != "false", "true or false")
	}}
	ratio = allowedText{"0 to 1", func(text string) error {
		value, err := strconv.ParseFloat(text, 64)
		return wantIf(err != nil || value < 0 || value > 1 || math.IsNaN(value), "a number from 0 to 1")
	}}
	replicaList = allowedText{"* or partition:broker pairs, separated by commas", func(text string) error {
		return wantIf(text != "" && text != "*" && !replicaPairs.MatchString(text), "* or pairs such as 0:1,1:2")
	}}
	replicaPairs = regexp.MustCompile(`^\d+:\d+(,\d+:\d+)*$`)
)

// refusedSettings are settings that Kafka no longer has, with what is true here.
var refusedSettings = map[string]string{
	"message.format.version":              "records are kept in format 2, always",
	"message.downconversion.enable":       "records are kept and sent in format 2, always",
	"message.timestamp.difference.max.ms": "it became message.timestamp.before.max.ms and message.timestamp.after.max.ms",
}

const (
	noSegments     = "records are not kept in such segments; use retention.ms and retention.bytes"
	syncedByServer = "the server's setting topic.sync decides how often records are synced to the disk"
	oneLevel       = "each codec has one level"
	noTiers        = "there is no tiered storage"
	noThrottle     = "replication is not throttled"
)

func parseRetention(text string, s *Settings) error {
	ms, err := parseWhole(text, -1, math.MaxInt64, "milliseconds, or -1 for ever")
	switch {
	case err != nil:
		return err
	case ms < 0 || ms > int64(math.MaxInt64/time.Millisecond): // 292 years; clients write the maximum
		s.Retention = -1
	default:
		s.Retention = time.Duration(ms) * time.Millisecond
	}
	return nil
}

// lag returns a setting that is a time in milliseconds, least or more. Times of more than 292 years
// are for ever.
func lag(name, broker string, least int64, meaning string, of func(*Settings) *time.Duration) Setting {
	return Setting{
		Name: name, Kind: KindInt64, Broker: broker, Meaning: meaning, Allowed: fmt.Sprintf("%d or more", least),
		parse: func(text string, s *Settings) error {
			ms, err := parseWhole(text, least, math.MaxInt64, "milliseconds, "+strconv.FormatInt(least, 10)+" or more")
			*of(s) = time.Duration(ms) * time.Millisecond
			if ms > int64(math.MaxInt64/time.Millisecond) {
				*of(s) = math.MaxInt64
			}
			return err
		},
		format: func(s *Settings) string {
			if *of(s) == math.MaxInt64 {
				return strconv.FormatInt(math.MaxInt64, 10)
			}
			return strconv.FormatInt(of(s).Milliseconds(), 10)
		},
	}
}

func parseCleanup(text string, s *Settings) error {
	s.Delete, s.Compact = false, false
	for _, policy := range strings.Split(text, ",") {
		switch strings.TrimSpace(policy) {
		case "delete":
			s.Delete = true
		case "compact":
			s.Compact = true
		default:
			return wantIf(true, "delete, compact, or both, separated by a comma")
		}
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

// wantIf returns the error for a value if it is wrong.
func wantIf(wrong bool, want string) error {
	if wrong {
		return errors.New("want " + want)
	}
	return nil
}

const (
	// TimestampAhead is how far in the future a timestamp may be: one far ahead
	// would keep all later records from expiring.
	TimestampAhead = time.Hour
)
