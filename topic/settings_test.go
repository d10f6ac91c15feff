package topic

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var updateDocs = flag.Bool("update-docs", false, "write docs/topic/settings.md")

func TestParseSettings(t *testing.T) {
	broker := Config{Retention: time.Hour, RetentionBytes: 1 << 30, MaxMessageBytes: 1000}
	defaults := Settings{Retention: time.Hour, RetentionBytes: 1 << 30, MaxMessageBytes: 1000, MinInSync: 1,
		Delete: true, DeleteRetention: 24 * time.Hour, MaxCompactionLag: math.MaxInt64, DirtyRatio: 0.5}
	with := func(change func(*Settings)) Settings {
		s := defaults
		change(&s)
		return s
	}
	for _, test := range []struct {
		own  map[string]string
		want Settings
	}{
		{nil, defaults},
		{map[string]string{"retention.ms": "1500"}, with(func(s *Settings) { s.Retention = 1500 * time.Millisecond })},
		{map[string]string{"retention.ms": "0"}, with(func(s *Settings) { s.Retention = 0 })},
		{map[string]string{"retention.ms": "-1", "retention.bytes": "-1"}, with(func(s *Settings) { s.Retention, s.RetentionBytes = -1, -1 })},
		{map[string]string{"retention.ms": fmt.Sprint(math.MaxInt64)}, with(func(s *Settings) { s.Retention = -1 })},
		{map[string]string{"max.message.bytes": "7340032"}, with(func(s *Settings) { s.MaxMessageBytes = 7 << 20 })},
		{map[string]string{"message.timestamp.type": "LogAppendTime"}, with(func(s *Settings) { s.LogAppendTime = true })},
		{map[string]string{"message.timestamp.type": "CreateTime", "cleanup.policy": "delete", "min.insync.replicas": "1"}, defaults},
		{map[string]string{"sluice.view.of": "orders", "sluice.view.where": "true", "cleanup.policy": "delete"}, with(func(s *Settings) { s.ViewOf, s.ViewWhere = "orders", "true" })},
		{map[string]string{"compression.type": "producer"}, defaults},
		{map[string]string{"compression.type": "uncompressed"}, with(func(s *Settings) { s.Compression = 1 + CodecNone })},
		{map[string]string{"compression.type": "zstd"}, with(func(s *Settings) { s.Compression = 1 + CodecZstd })},
		{map[string]string{
			"segment.bytes": "1048576", "segment.ms": "1", "flush.messages": "1", "flush.ms": "1000", "preallocate": "true", "index.interval.bytes": "4096",
			"unclean.leader.election.enable": "true", "file.delete.delay.ms": "0", "compression.zstd.level": "-3",
			"leader.replication.throttled.replicas": "0:1,1:2", "follower.replication.throttled.replicas": "*",
		}, defaults},
		{map[string]string{"sluice.view.of": "orders", "sluice.view.where": "true", "segment.bytes": "1048576"}, with(func(s *Settings) { s.ViewOf, s.ViewWhere = "orders", "true" })},
		{map[string]string{"cleanup.policy": "compact"}, with(func(s *Settings) { s.Delete, s.Compact = false, true })},
		{map[string]string{"cleanup.policy": "delete, compact"}, with(func(s *Settings) { s.Compact = true })},
		{map[string]string{"min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "0", "min.compaction.lag.ms": "5", "max.compaction.lag.ms": "5"}, with(func(s *Settings) {
			s.DirtyRatio, s.DeleteRetention, s.MinCompactionLag, s.MaxCompactionLag = 0.01, 0, 5*time.Millisecond, 5*time.Millisecond
		})},
		{map[string]string{"max.compaction.lag.ms": "9223372036854775807", "delete.retention.ms": "9223372036855"}, with(func(s *Settings) { s.DeleteRetention = math.MaxInt64 })},
		{map[string]string{"sluice.delay.enable": "true", "sluice.delay": "30m"}, with(func(s *Settings) { s.Delays, s.Delay = true, 30*time.Minute })},
	} {
		if got, err := ParseSettings(test.own, broker); err != nil || got != test.want {
			t.Errorf("%v: %+v, %v; want %+v", test.own, got, err, test.want)
		}
	}
}

func TestParseSettingsRefuses(t *testing.T) {
	for _, test := range []struct {
		own, want string
	}{
		{"retention.ms=1h", `retention.ms: "1h": want a whole number of milliseconds, or -1 for ever`},
		{"retention.ms=-2", "or -1 for ever"},
		{"retention.bytes=9223372036854775808", "want a whole number of bytes, or -1 for no limit"},
		{"max.message.bytes=7340033", "want a whole number from 61 to 7340032, of bytes"},
		{"max.message.bytes=4294967397", "want a whole number from 61 to 7340032, of bytes"},
		{"message.timestamp.type=createtime", "want CreateTime or LogAppendTime"},
		{"cleanup.policy=compacted", `cleanup.policy: "compacted": want delete, compact, or both, separated by a comma`},
		{"cleanup.policy=", "want delete, compact, or both"},
		{"cleanup.policy=compact sluice.view.of=orders sluice.view.where=true", "a view keeps no records: compact orders"},
		{"min.compaction.lag.ms=6 max.compaction.lag.ms=5", "min.compaction.lag.ms is 6: want at most max.compaction.lag.ms, which is 5"},
		{"max.compaction.lag.ms=0", "want a whole number of milliseconds, 1 or more"},
		{"compression.type=brotli", "want producer, uncompressed, gzip, snappy, lz4, zstd"},
		{"min.insync.replicas=4", "want a whole number from 1 to 3"},
		{"min.insync.replicas=0", "want a whole number from 1 to 3"},
		{"unclean.leader.election.enable=yes", "want true or false"},
		{"segment.bytes=13", "want a whole number, 14 to 2147483647"},
		{"segment.bytes=2147483648", "want a whole number, 14 to 2147483647"},
		{"flush.ms=-1", "want a whole number, 0 or more"},
		{"min.cleanable.dirty.ratio=1.1", "want a number from 0 to 1"},
		{"min.cleanable.dirty.ratio=NaN", "want a number from 0 to 1"},
		{"leader.replication.throttled.replicas=0", "want * or pairs such as 0:1,1:2"},
		{"message.format.version=3.0", "there is no message.format.version: records are kept in format 2, always"},
		{"retension.ms=1", `there is no "retension.ms"; did you mean retention.ms?`},
		{"sluice.delayed=1s", "did you mean sluice.delay?"},
		{"frobnicate=1", `there is no "frobnicate"; there are retention.ms, retention.bytes, `},
		{"sluice.view.of=", "want the name of a topic"},
		{"sluice.view.of=a", "sluice.view.of needs sluice.view.where"},
		{"sluice.view.where=true", "sluice.view.where needs sluice.view.of"},
		{"sluice.view.of=a sluice.view.where=true retention.ms=1", "retention.ms would do nothing on a view, which keeps no records: set it on a"},
		{"sluice.view.where=" + strings.Repeat("x", 4097), "an expression of 1 to 4096 bytes"},
		{"sluice.delay=1s", "sluice.delay needs sluice.delay.enable=true"},
		{"sluice.delay.enable=yes", "want true or false"},
		{"sluice.delay.enable=true sluice.delay=-1s", "want a duration from 0s to 8784h"},
		{"sluice.delay.enable=true sluice.delay=8785h", "want a duration from 0s to 8784h"},
		{"sluice.delay.enable=true sluice.delay=30", "want a duration from 0s to 8784h"},
	} {
		own := map[string]string{}
		for _, pair := range strings.Fields(test.own) {
			name, value, _ := strings.Cut(pair, "=")
			own[name] = value
		}
		_, err := ParseSettings(own, Config{})
		if !errors.Is(err, ErrInvalidSetting) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%.60s: %v\nwant an ErrInvalidSetting with %q", test.own, err, test.want)
		}
	}
}

// The text of a setting's value parses to the same value.
func TestSettingsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		broker := Config{
			Retention:       time.Duration(rapid.Int64Range(-1, 1e6).Draw(t, "retention")) * time.Millisecond,
			RetentionBytes:  rapid.Int64Range(-1, 1e12).Draw(t, "bytes"),
			MaxMessageBytes: rapid.Int32Range(BatchOverhead, MaxBatchBytes).Draw(t, "max"),
		}
		own := map[string]string{
			"message.timestamp.type": rapid.SampledFrom([]string{createTime, logAppendTime}).Draw(t, "type"),
			"compression.type":       rapid.SampledFrom(compressionNames).Draw(t, "compression"),
		}
		switch rapid.IntRange(0, 2).Draw(t, "kind") {
		case 1:
			own[SettingDelays] = "true"
			own[SettingDelay] = rapid.Just(time.Duration(rapid.Int64Range(0, int64(MaxDelay)).Draw(t, "delay"))).Draw(t, "d").String()
		case 2:
			own = map[string]string{SettingViewOf: "orders", SettingViewWhere: rapid.StringN(1, 100, 1000).Draw(t, "where")}
		}
		before, err := ParseSettings(own, broker)
		if err != nil {
			t.Fatal(err)
		}
		again := map[string]string{}
		for _, setting := range SettingsTable() {
			value := setting.Value(before)
			if value != "" && (setting.OfViews() || before.ViewOf == "") {
				again[setting.Name] = value
			}
		}
		after, err := ParseSettings(again, broker)
		if err != nil || after != before {
			t.Fatalf("%v\nbecame %v (%v)\nby %v", before, after, err, again)
		}
	})
}

func FuzzParseSettings(f *testing.F) {
	for _, setting := range settingsTable {
		f.Add(setting.Name, setting.Value(Settings{}))
	}
	f.Add("retention.ms", "-1")
	f.Fuzz(func(t *testing.T, name, value string) {
		settings, err := ParseSettings(map[string]string{name: value}, Config{})
		if err != nil {
			if !errors.Is(err, ErrInvalidSetting) {
				t.Fatalf("%v is no ErrInvalidSetting", err)
			}
			return
		}
		if settings.MaxMessageBytes < BatchOverhead || settings.MaxMessageBytes > MaxBatchBytes || settings.Delay < 0 {
			t.Fatalf("%q=%q gave %+v", name, value, settings)
		}
	})
}

func TestSettingsAreDocumented(t *testing.T) {
	const path = "../docs/topic/settings.md"
	want := settingsPage()
	if *updateDocs {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil || string(got) != want {
		t.Errorf("%s is not what the table says (%v): go test ./topic -run Documented -update-docs writes it", path, err)
	}
	const groups = "../docs/topic/share-groups.md"
	page, err := os.ReadFile(groups)
	if err != nil {
		t.Fatal(err)
	}
	defaults, _ := ParseGroupSettings(nil, Config{})
	for _, s := range GroupSettingsTable() {
		value := cmp.Or(s.Value(defaults), "not set")
		if row := fmt.Sprintf("| `%s` | `%s` | %s | %s |\n", s.Name, value, s.Allowed, s.Meaning); !strings.Contains(string(page), row) {
			t.Errorf("%s has no row:\n%s", groups, row)
		}
	}
}

func TestParseGroupSettings(t *testing.T) {
	broker := Config{Shares: SharesConfig{Lock: time.Minute, Deliveries: 7}}
	defaults := GroupSettings{Lock: time.Minute, Deliveries: 7}
	for own, want := range map[string]GroupSettings{
		"":                             defaults,
		"share.delivery.count.limit=9": {Lock: time.Minute, Deliveries: 9},
		"share.record.lock.duration.ms=1500,share.auto.offset.reset=earliest":                                     {Lock: 1500 * time.Millisecond, Deliveries: 7, Earliest: true},
		"errors.deadletterqueue.topic.name=dead.letters,errors.deadletterqueue.copy.record.enable=true":           {Lock: time.Minute, Deliveries: 7, DeadLetters: "dead.letters", CopyRecord: true},
		"errors.deadletterqueue.topic.name=,sluice.share.retry.backoff.ms=5,sluice.share.retry.backoff.max.ms=90": {Lock: time.Minute, Deliveries: 7, Backoff: 5 * time.Millisecond, BackoffMax: 90 * time.Millisecond},
	} {
		if got, err := ParseGroupSettings(settingsOf(own), broker); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", own, got, err, want)
		}
	}
	for own, want := range map[string]string{
		"share.delivery.count.limt=9":                     "did you mean share.delivery.count.limit?",
		"retention.ms=9":                                  "they have errors.deadletterqueue.topic.name, ",
		"share.delivery.count.limit=101":                  "from 1 to 100",
		"share.record.lock.duration.ms=999":               "from 1000 to 3600000, of milliseconds",
		"share.auto.offset.reset=none":                    "want earliest or latest",
		"errors.deadletterqueue.topic.name=a/b":           "letters, digits",
		"errors.deadletterqueue.topic.name=sluice.audit":  "none of the servers' own",
		"errors.deadletterqueue.copy.record.enable=maybe": "true or false",
		"sluice.share.retry.backoff.ms=-1":                "from 0 to 86400000",
	} {
		if _, err := ParseGroupSettings(settingsOf(own), broker); !errors.Is(err, ErrInvalidSetting) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", own, err, want)
		}
	}
}

// settingsOf returns settings that are written as name=value, separated by commas.
func settingsOf(text string) map[string]string {
	settings := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		if name, value, set := strings.Cut(pair, "="); set {
			settings[name] = value
		}
	}
	return settings
}

// settingsPage returns the documentation page of the settings of topics.
func settingsPage() string {
	var page strings.Builder
	page.WriteString(`# Settings of a topic

Set them when a topic is created or later, with any Kafka tool or with sluice:

    sluice topic create orders --partitions 6 --set retention.ms=86400000
    sluice topic alter orders --set retention.ms=3600000 --unset retention.bytes

Unset settings have the server's default, [topic.* in the settings](../settings.md). A name that is not on this
page, or another value than those allowed, is refused with INVALID_CONFIG and a text that says what is allowed.

| setting | default | allowed | meaning |
|---|---|---|---|
`)
	writeRows(&page, func(s *Setting) bool { return !s.Fixed && !s.Inert })
	page.WriteString(`
A view keeps no records, so it has only ` + "`sluice.view.of` and `sluice.view.where`" + ` of these.

With a ` + "`compression.type`" + ` other than ` + "`producer`" + ` the server decompresses and compresses each batch that was sent with another codec, within the
bounds of [decompression](operating.md#bounds). ` + "`max.message.bytes`" + ` holds before and after that. Delayed records appear as they were
sent.

## Settings with one value

Tools may send these: each accepts the one value that is true here, and refuses others.

| setting | value | meaning |
|---|---|---|
`)
	for i := range settingsTable {
		if s := &settingsTable[i]; s.Fixed {
			fmt.Fprintf(&page, "| `%s` | `%s` | %s |\n", s.Name, s.Allowed, s.Meaning)
		}
	}
	page.WriteString(`
## Settings without effect

Tools may set these too. They are checked, kept, shown as they were set, and have no effect; their description says so.

| setting | default, as in Kafka | allowed | meaning |
|---|---|---|---|
`)
	writeRows(&page, func(s *Setting) bool { return s.Inert })
	page.WriteString(`
## Settings that Kafka had

Tools that send these are refused, as by Kafka 4.

| setting | what is true here |
|---|---|
`)
	for _, name := range slices.Sorted(maps.Keys(refusedSettings)) {
		fmt.Fprintf(&page, "| `%s` | %s |\n", name, refusedSettings[name])
	}
	return page.String()
}

// writeRows writes a row for each setting that passes.
func writeRows(page *strings.Builder, passes func(*Setting) bool) {
	settings, err := ParseSettings(nil, Config{})
	if err != nil {
		panic(err)
	}
	for i := range settingsTable {
		s := &settingsTable[i]
		if !passes(s) {
			continue
		}
		value := "not set"
		if text := s.Value(settings); text != "" {
			value = "`" + text + "`"
		}
		fmt.Fprintf(page, "| `%s` | %s | %s | %s |\n", s.Name, value, s.Allowed, s.Meaning)
	}
}
