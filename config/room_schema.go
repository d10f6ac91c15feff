package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/sluice-project/sluice/room"
)

// roomsKey is the section of the file with a mapping for each room.
const roomsKey = "room.rooms"

// The units that only settings of a room have.
const (
	unitTime  = "time"
	unitRules = "list of rules"
)

// oneRoomSettings are the settings of a room in the file. They are those of the HTTP API,
// under its names without _ms; durations are written as everywhere in the file.
var oneRoomSettings = []Setting{
	{Key: "mode", Usage: "teller: at most `capacity` are inside; park: every `interval`, `batch` visitors are let in, each for `stay`"},
	{Key: "capacity", Unit: unitOrAuto, Usage: "how many may be inside at most; auto: found from how the upstream answers; teller only"},
	{Key: "pass_ttl", Unit: unitDuration, Default: formatDuration(room.DefaultPassTTL), Usage: "how long a pass lasts; teller only"},
	{Key: "pass", Default: string(room.Sliding), Usage: "sliding: using a pass prolongs it; fixed: it does not; teller only"},
	{Key: "renewals", Unit: unitWhole, Default: "0", Usage: "how often a fixed pass may be renewed"},
	{Key: "batch", Unit: unitOrAuto, Usage: "how many are let in at each tick; auto: found from how the upstream answers; park only"},
	{Key: "interval", Unit: unitDuration, Usage: "time between ticks; park only"},
	{Key: "stay", Unit: unitDuration, Usage: "how long after its tick a pass ends; park only"},
	{Key: "auto_min", Unit: unitWhole, Default: strconv.Itoa(room.DefaultAutoMin), Usage: "the least `capacity` or `batch` that is auto"},
	{Key: "auto_max", Unit: unitWhole, Default: strconv.Itoa(room.DefaultAutoMax), Usage: "the most"},
	{Key: "claim_window", Unit: unitDuration, Default: formatDuration(room.DefaultClaimWindow), Usage: "how long a visitor who is called has to show up"},
	{Key: "abandon_after", Unit: unitDuration, Default: formatDuration(room.DefaultAbandonAfter), Usage: "silence after which a called visitor is skipped"},
	{Key: "grace", Unit: unitDuration, Default: formatDuration(room.DefaultGrace), Usage: "how long a skipped visitor keeps the place"},
	{Key: "max_waiting", Unit: unitWhole, Default: strconv.Itoa(room.DefaultMaxWaiting), Usage: "how many may wait; further visitors are refused"},
	{Key: "method", Default: string(room.FIFO), Usage: "order of visitors who came before `opens_at`: fifo or lottery"},
	{Key: "opens_at", Unit: unitTime, Usage: "time from which visitors are let in; without it: since the room was created"},
	{Key: "prequeue_from", Unit: unitTime, Usage: "time from which visitors may wait for `opens_at`; without it: at any time"},
	{Key: "ends_at", Unit: unitTime, Usage: "time from which nobody is let in; without it: never"},
	{Key: "repeats", Usage: "when each of many events opens, as a cron expression, instead of `opens_at`, `prequeue_from` and `ends_at`"},
	{Key: "time_zone", Usage: "IANA name of the time zone of `repeats`; without it: UTC"},
	{Key: "lasts", Unit: unitDuration, Usage: "how long after its opening each event of `repeats` ends"},
	{Key: "prequeue", Unit: unitDuration, Usage: "how long before each opening of `repeats` visitors may come to wait; without it: at any time"},
	{Key: "lanes", Usage: "lines of their own with shares of the calls, as in vip=20,members=30,public=50: a visitor is in the lane that its token names, or in the last; without it: one line"},
	{Key: "on_store_failure", Default: string(room.FailClosed), Usage: "what a gate does when the store does not answer: closed: it shows a page that says so; open: it lets everybody through"},
	{Key: "routes", Unit: unitRules, Usage: "requests that need a pass at a gate, each with `host`, `path` (/checkout/* is all below it) or `method`; without it: all"},
	{Key: "bypass", Unit: unitRules, Usage: "requests that need no pass, whatever `routes` says"},
	{Key: "joins_per_minute", Unit: unitWhole, Usage: "how many visitors may enter from one client address (of IPv6, one /64, and four times as many from one /48) in a minute, at each instance; 0: any number; without it: " + strconv.Itoa(room.DefaultJoinsPerMinute) + ", except from this machine, private networks and trusted proxies"},
	{Key: "bind_tickets", Unit: unitBool, Default: "false", Usage: "bind each ticket and pass to the client address that it was issued to"},
	{Key: "invitation_only", Unit: unitBool, Default: "false", Usage: "refuse visitors without a key; with `room.token_keys`, without a token of the shop or a code"},
	{Key: "codes", Unit: unitBool, Default: "false", Usage: "accept codes that were made for the room, which needs `lanes` or `invitation_only`"},
}

// RoomSettings returns the settings of a room in the file, with the key that stands
// below room.rooms.NAME.
func RoomSettings() []Setting { return slices.Clone(oneRoomSettings) }

// apiName is the name that the HTTP API has for a setting of a room.
func (s *Setting) apiName() string {
	if s.Unit == unitDuration {
		return s.Key + "_ms"
	}
	return s.Key
}

// roomValue returns the value of a setting as the API has it.
func roomValue(s *Setting, text string) (any, error) {
	switch s.Unit {
	case unitOrAuto:
		if text == "auto" {
			return text, nil
		}
		n, err := strconv.ParseInt(text, 10, 64)
		return n, as(err, "a whole number, or auto")
	case unitWhole:
		n, err := strconv.ParseInt(text, 10, 64)
		return n, as(err, "a whole number")
	case unitBool:
		b, err := strconv.ParseBool(text)
		return b, as(err, "true or false")
	case unitDuration:
		d, err := time.ParseDuration(text)
		if err == nil && d%time.Millisecond != 0 {
			err = errors.New("finer than a millisecond")
		}
		return d.Milliseconds(), as(err, "a duration of whole milliseconds, such as 500ms, 30s or 1h30m")
	case unitTime:
		t, err := time.Parse(time.RFC3339, text)
		return t, as(err, "a time such as 2030-01-31T09:00:00+09:00")
	}
	return text, nil
}

// RoomFlags are the settings of one room as flags: --pass-ttl for pass_ttl, and
// --route and --bypass, once for each rule.
type RoomFlags struct {
	flags *pflag.FlagSet
}

// AddRoomFlags adds the flags of the settings with the given keys, or of all settings
// if there are none.
func AddRoomFlags(flags *pflag.FlagSet, keys ...string) *RoomFlags {
	for i := range oneRoomSettings {
		s := &oneRoomSettings[i]
		if len(keys) > 0 && !slices.Contains(keys, s.Key) {
			continue
		}
		usage := strings.ReplaceAll(s.Usage, "`", "")
		if s.Default != "" && s.Unit != unitBool {
			usage += " (default " + s.Default + ")"
		}
		value := &roomFlag{setting: s}
		if s.Unit == unitRules {
			usage = ruleUsage[s.Key]
		}
		flag := flags.VarPF(value, s.roomFlag(), "", usage)
		if s.Unit == unitBool {
			flag.NoOptDefVal = "true"
		}
	}
	return &RoomFlags{flags}
}

var ruleUsage = map[string]string{
	"routes": "requests that need a pass at a gate, as [METHOD ][HOST]/PATH, such as /checkout/*; may be given more than once (default all)",
	"bypass": "requests that need no pass, whatever --route says; may be given more than once",
}

func (s *Setting) roomFlag() string {
	if s.Key == "routes" {
		return "route"
	}
	return strings.ReplaceAll(s.Key, "_", "-")
}

// Object returns the flags that were set, as the object that the HTTP API takes. Without
// --mode the object has the mode that the other flags belong to. It is empty if no flag
// was set.
func (r *RoomFlags) Object() map[string]any {
	object := map[string]any{}
	r.flags.Visit(func(flag *pflag.Flag) {
		if value, ours := flag.Value.(*roomFlag); ours {
			object[value.setting.apiName()] = value.value
		}
	})
	if _, set := object["mode"]; !set {
		for _, mode := range modeSettings {
			if slices.ContainsFunc(mode.names, func(name string) bool { return object[name] != nil }) {
				object["mode"] = mode.mode
				break
			}
		}
	}
	return object
}

// modeSettings are the settings that only one mode has.
var modeSettings = []struct {
	mode  room.Mode
	names []string
}{
	{room.Teller, []string{"capacity"}},
	{room.Park, []string{"batch", "interval_ms", "stay_ms"}},
}

// roomFlag is a setting of a room as a flag.
type roomFlag struct {
	setting *Setting
	text    string
	value   any
}

// String implements pflag.Value.
func (f *roomFlag) String() string { return f.text }

// Set implements pflag.Value.
func (f *roomFlag) Set(text string) error {
	if f.setting.Unit != unitRules {
		value, err := roomValue(f.setting, text)
		f.value, f.text = value, text
		return err
	}
	rule, err := parseRule(text)
	if err == nil {
		rules, _ := f.value.([]map[string]string)
		rules = append(rules, rule)
		f.value, f.text = rules, text
	}
	return err
}

// Type implements pflag.Value: the placeholder in the help.
func (f *roomFlag) Type() string { return placeholder(f.setting.Unit) }

// parseRule reads a rule of the form [METHOD ][HOST][/PATH]. A host needs a dot here, or is
// localhost: a path without its slash would be taken for a host.
func parseRule(text string) (map[string]string, error) {
	rule := map[string]string{}
	where := strings.TrimSpace(text)
	if method, rest, both := strings.Cut(where, " "); both {
		rule["method"], where = method, strings.TrimSpace(rest)
	}
	host, path, hasPath := strings.Cut(where, "/")
	if host != "" {
		rule["host"] = host
	}
	if hasPath {
		rule["path"] = "/" + path
	}
	if len(rule) == 0 || strings.ContainsAny(where, " \t") {
		return nil, fmt.Errorf("want [METHOD ][HOST]/PATH, such as /checkout/* or \"POST shop.example.com/orders\"")
	}
	if host != "" && host != "localhost" && !strings.ContainsAny(host, ".:") {
		// Routes of a host that nobody asks for would let everybody through the gate.
		return nil, fmt.Errorf("want /%s for a path: without the slash it names the host %q", where, host)
	}
	return rule, nil
}
