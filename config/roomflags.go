package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/sluice-project/sluice/room"
)

// RoomFlags are the settings of one room as flags: --pass-ttl for pass_ttl, and
// --route and --bypass, once for each rule.
type RoomFlags struct {
	flags *pflag.FlagSet
}

// AddRoomFlags adds the flags for the settings with some keys, or all if none is
// named.
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
	"bypass": "requests that need none, whatever --route says; may be given more than once",
}

func (s *Setting) roomFlag() string {
	if s.Key == "routes" {
		return "route"
	}
	return strings.ReplaceAll(s.Key, "_", "-")
}

// Object returns what was set, as the object that the HTTP API takes. Without --mode
// it has the mode of which a setting was given. It is empty if nothing was.
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

// modeSettings are the names by which a mode is told.
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
	if f.setting.Unit == unitRules {
		rule, err := parseRule(text)
		if err != nil {
			return err
		}
		rules, _ := f.value.([]map[string]string)
		rules = append(rules, rule)
		f.value, f.text = rules, text
		return nil
	}
	value, err := roomValue(f.setting, text)
	if err != nil {
		return err
	}
	f.value, f.text = value, text
	return nil
}

// Type implements pflag.Value: the placeholder in the help.
func (f *roomFlag) Type() string {
	switch f.setting.Unit {
	case unitWhole:
		return "number"
	case unitBool:
		return "bool"
	case unitRules:
		return "rule"
	case "":
		return "text"
	}
	return f.setting.Unit
}

// parseRule reads a rule of the form [METHOD ][HOST][/PATH]. A host has a dot here, or is
// localhost: who forgets the slash before a path would name a host.
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
		// A gate whose routes are of a host that nobody asks for lets everybody through.
		return nil, fmt.Errorf("want /%s for a path: without the slash it names the host %q", where, host)
	}
	return rule, nil
}
