package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/sluice-project/sluice/room"
)

// roomsKey is the section with a mapping for each room.
const roomsKey = "room.rooms"

// The units of a room's settings beside those of others.
const (
	unitTime  = "time"
	unitRules = "list of rules"
)

// oneRoomSettings are those of a room in the file: the API's, under its names
// without _ms, where durations are written as everywhere in the file.
var oneRoomSettings = []Setting{
	{Key: "mode", Usage: "teller: at most `capacity` are inside; park: every `interval`, `batch` are let in, each for `stay`"},
	{Key: "capacity", Unit: unitWhole, Usage: "how many may be inside at most; teller only"},
	{Key: "pass_ttl", Unit: unitDuration, Default: formatDuration(room.DefaultPassTTL), Usage: "how long a pass lasts; teller only"},
	{Key: "pass", Default: string(room.Sliding), Usage: "sliding: using a pass prolongs it; fixed: it does not; teller only"},
	{Key: "renewals", Unit: unitWhole, Default: "0", Usage: "how often a fixed pass may be renewed"},
	{Key: "batch", Unit: unitWhole, Usage: "how many are let in at each tick; park only"},
	{Key: "interval", Unit: unitDuration, Usage: "time between ticks; park only"},
	{Key: "stay", Unit: unitDuration, Usage: "how long after its tick a pass ends; park only"},
	{Key: "claim_window", Unit: unitDuration, Default: formatDuration(room.DefaultClaimWindow), Usage: "how long who is called has to show up"},
	{Key: "abandon_after", Unit: unitDuration, Default: formatDuration(room.DefaultAbandonAfter), Usage: "silence after which a visitor is skipped when called"},
	{Key: "grace", Unit: unitDuration, Default: formatDuration(room.DefaultGrace), Usage: "for how long after that the place is kept"},
	{Key: "max_waiting", Unit: unitWhole, Default: strconv.Itoa(room.DefaultMaxWaiting), Usage: "how many may wait; beyond it newcomers are refused"},
	{Key: "method", Default: string(room.FIFO), Usage: "order of those who came before `opens_at`: fifo or lottery"},
	{Key: "opens_at", Unit: unitTime, Usage: "when visitors are let in from; without it: since the room was made"},
	{Key: "prequeue_from", Unit: unitTime, Usage: "when visitors may come to wait for `opens_at`; without it: at any time"},
	{Key: "ends_at", Unit: unitTime, Usage: "when nobody is let in any more; without it: never"},
	{Key: "on_store_failure", Default: string(room.FailClosed), Usage: "what a gate does when the store does not answer: closed, a page that says so; open, everybody is let through"},
	{Key: "routes", Unit: unitRules, Usage: "requests that need a pass at a gate, each with `host`, `path` (/checkout/* is all below it) or `method`; without it: all"},
	{Key: "bypass", Unit: unitRules, Usage: "requests that need none, whatever `routes` say"},
	{Key: "joins_per_minute", Unit: unitWhole, Default: "0", Usage: "how many visitors may enter from one client address in a minute, at each instance; 0: any number"},
	{Key: "bind_tickets", Unit: unitBool, Default: "false", Usage: "bind each ticket to the client address that it was given to"},
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

// rooms reads the rooms of the file.
func (f *fileReader) rooms(rooms entry) error {
	entries, err := f.entries(rooms.value, rooms.key)
	if err != nil {
		return err
	}
	f.config.sources[rooms.key] = f.source(rooms.name)
	for _, e := range entries {
		settings, err := f.oneRoom(e)
		if err != nil {
			return err
		}
		if f.config.Room.Rooms == nil {
			f.config.Room.Rooms = map[string]room.Settings{}
		}
		f.config.Room.Rooms[e.name.Value] = settings
		f.config.sources[e.key] = f.source(e.name)
	}
	return nil
}

// oneRoom reads a room as the API would, from the object that its settings make.
func (f *fileReader) oneRoom(of entry) (settings room.Settings, err error) {
	entries, err := f.entries(of.value, of.key)
	if err != nil {
		return settings, err
	}
	object := map[string]any{}
	for _, e := range entries {
		if err := f.roomEntry(object, e, of.key); err != nil {
			return settings, err
		}
	}
	text, err := json.Marshal(object)
	if err != nil {
		return settings, f.wrong(of.name, of.key, err.Error())
	}
	if err := json.Unmarshal(text, &settings); err != nil {
		var wrong *room.SettingsError
		if errors.As(err, &wrong) {
			f.config.sources[of.key] = f.source(of.name)
			return settings, f.config.wrongRoom(of.key, wrong)
		}
		return settings, f.wrong(of.name, of.key, err.Error())
	}
	return settings, nil
}

func (f *fileReader) roomEntry(object map[string]any, e entry, section string) error {
	var keys []string
	for i := range oneRoomSettings {
		s := &oneRoomSettings[i]
		keys = append(keys, section+"."+s.Key)
		if s.Key != e.name.Value {
			continue
		}
		f.config.sources[e.key] = f.source(e.value)
		if s.Unit == unitRules {
			rules, err := f.rules(e)
			object[s.apiName()] = rules
			return err
		}
		return f.value(e, func(text string) error {
			value, err := roomValue(s, text)
			if err != nil {
				return f.wrong(e.value, e.key, fmt.Sprintf("%q: %v", text, err))
			}
			object[s.apiName()] = value
			return nil
		})
	}
	return f.unknown(e, keys)
}

// roomValue is a setting's value as the API has it.
func roomValue(s *Setting, text string) (any, error) {
	switch s.Unit {
	case unitWhole:
		n, err := strconv.ParseInt(text, 10, 64)
		return n, as(err, "a whole number")
	case unitBool:
		b, err := strconv.ParseBool(text)
		return b, as(err, "true or false")
	case unitDuration:
		d, err := time.ParseDuration(text)
		if err == nil && d%time.Millisecond != 0 {
			err = errors.New("finer than the API has it")
		}
		return d.Milliseconds(), as(err, "a duration of whole milliseconds, such as 500ms, 30s or 1h30m")
	case unitTime:
		t, err := time.Parse(time.RFC3339, text)
		return t, as(err, "a time such as 2030-01-31T09:00:00+09:00")
	}
	return text, nil
}

// rules reads a list of rules.
func (f *fileReader) rules(e entry) ([]map[string]string, error) {
	if e.value.Kind != yaml.SequenceNode {
		return nil, f.wrong(e.value, e.key, "want a list of rules, each with host, path or method")
	}
	rules := []map[string]string{}
	for _, node := range e.value.Content {
		if node.Kind == yaml.AliasNode {
			node = node.Alias
		}
		parts, err := f.entries(node, e.key)
		if err != nil {
			return nil, err
		}
		rule := map[string]string{}
		for _, part := range parts {
			keys := []string{"host", "path", "method"}
			if !slices.Contains(keys, part.name.Value) {
				return nil, f.unknown(part, []string{e.key + ".host", e.key + ".path", e.key + ".method"})
			}
			if err := f.value(part, func(text string) error { rule[part.name.Value] = text; return nil }); err != nil {
				return nil, err
			}
		}
		rules = append(rules, rule)
	}
	return rules, nil
}

// addRooms adds what was set for rooms.
func (c *Config) addRooms(section *yaml.Node) error {
	for _, name := range slices.Sorted(maps.Keys(c.Room.Rooms)) {
		mapping := addMapping(section, name)
		text, err := json.Marshal(c.Room.Rooms[name])
		if err != nil {
			return err
		}
		var object map[string]json.RawMessage
		if err := json.Unmarshal(text, &object); err != nil {
			return err
		}
		for i := range oneRoomSettings {
			s := &oneRoomSettings[i]
			if source, set := c.sources[roomsKey+"."+name+"."+s.Key]; set {
				addRoomValue(mapping, s, object[s.apiName()], source)
			}
		}
	}
	return nil
}

// addRoomValue adds a setting of a room, from what the API shows of it. What it does
// not show is empty.
func addRoomValue(mapping *yaml.Node, s *Setting, value json.RawMessage, source string) {
	switch s.Unit {
	case unitRules:
		var rules []room.Rule
		_ = json.Unmarshal(value, &rules) // made by Marshal
		addRules(mapping, s.Key, rules, source)
	case unitDuration:
		ms, _ := strconv.ParseInt(string(value), 10, 64)
		addValue(mapping, s.Key, s.Unit, formatDuration(time.Duration(ms)*time.Millisecond), source)
	default:
		addValue(mapping, s.Key, s.Unit, strings.Trim(string(value), `"`), source)
	}
}

func addRules(mapping *yaml.Node, name string, rules []room.Rule, source string) {
	list := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle, LineComment: "# " + source}
	for _, rule := range rules {
		parts := &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle}
		for _, part := range [][2]string{{"host", rule.Host}, {"path", rule.Path}, {"method", rule.Method}} {
			if part[1] != "" {
				parts.Content = append(parts.Content, text(part[0]), text(part[1]))
			}
		}
		list.Content = append(list.Content, parts)
	}
	mapping.Content = append(mapping.Content, text(name), list)
}
