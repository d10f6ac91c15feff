package room

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-project/sluice/internal/spelling"
)

// settingField is one setting with its JSON form.
type settingField struct {
	name string
	// mode is the mode that has the setting; empty: both.
	mode Mode
	// required fields have no default. Optional ones may be left out, and are checked
	// only if they are set.
	required, optional bool
	// give says what would be right.
	give string

	set func(*Settings) bool
	// check returns what is wrong with the value, before defaults.
	check func(*Settings) *SettingsError
	parse func(*Settings, json.RawMessage) *SettingsError
	// value returns the value to write in JSON.
	value func(*Settings) any
}

// settingFields are all settings, in the order of the JSON form. The mode is first: the
// others depend on it.
var settingFields = []settingField{
	choice("mode", func(s *Settings) *Mode { return &s.Mode }, Teller, Park).requires(),
	orAuto("capacity", func(s *Settings) *int64 { return &s.Capacity }).only(Teller).requires(),
	lasting("pass_ttl_ms", minWindow, maxVisit, func(s *Settings) *time.Duration { return &s.PassTTL }).only(Teller),
	choice("pass", func(s *Settings) *PassKind { return &s.Pass }, Sliding, Fixed).only(Teller),
	whole("renewals", 0, maxRenewals, func(s *Settings) *int { return &s.Renewals }).only(Teller),
	orAuto("batch", func(s *Settings) *int64 { return &s.Batch }).only(Park).requires(),
	lasting("interval_ms", minWindow, maxInterval, func(s *Settings) *time.Duration { return &s.Interval }).only(Park).requires(),
	lasting("stay_ms", minWindow, maxVisit, func(s *Settings) *time.Duration { return &s.Stay }).only(Park).requires(),
	whole("auto_min", 1, MaxVisitors, func(s *Settings) *int64 { return &s.AutoMin }).optionally(),
	whole("auto_max", 1, MaxVisitors, func(s *Settings) *int64 { return &s.AutoMax }).optionally(),
	lasting("claim_window_ms", minWindow, maxClaim, func(s *Settings) *time.Duration { return &s.ClaimWindow }),
	lasting("abandon_after_ms", minWindow, maxSilence, func(s *Settings) *time.Duration { return &s.AbandonAfter }),
	graceField(),
	whole("max_waiting", 1, MaxVisitors, func(s *Settings) *int64 { return &s.MaxWaiting }),
	choice("method", func(s *Settings) *Method { return &s.Method }, FIFO, Lottery),
	moment("opens_at", func(s *Settings) *time.Time { return &s.OpensAt }),
	moment("prequeue_from", func(s *Settings) *time.Time { return &s.PrequeueFrom }),
	moment("ends_at", func(s *Settings) *time.Time { return &s.EndsAt }),
	text("repeats", func(s *Settings) *string { return &s.Repeats }),
	text("time_zone", func(s *Settings) *string { return &s.TimeZone }),
	lasting("lasts_ms", minEvent, maxEvent, func(s *Settings) *time.Duration { return &s.Lasts }).optionally(),
	lasting("prequeue_ms", minEvent, maxEvent, func(s *Settings) *time.Duration { return &s.Prequeue }).optionally(),
	text("lanes", func(s *Settings) *string { return &s.Lanes }),
	choice("on_store_failure", func(s *Settings) *OnStoreFailure { return &s.OnStoreFailure }, FailOpen, FailClosed),
	rules("routes", func(s *Settings) *[]Rule { return &s.Routes }),
	rules("bypass", func(s *Settings) *[]Rule { return &s.Bypass }),
	joinsField(),
	yesOrNo("bind_tickets", func(s *Settings) *bool { return &s.BindTickets }),
	yesOrNo("invitation_only", func(s *Settings) *bool { return &s.InvitationOnly }),
	yesOrNo("codes", func(s *Settings) *bool { return &s.Codes }),
}

func (f settingField) only(mode Mode) settingField {
	f.mode = mode
	return f
}

func (f settingField) requires() settingField {
	f.required = true
	return f
}

// optionally leaves a field that is not set out of JSON.
func (f settingField) optionally() settingField {
	set, value := f.set, f.value
	f.optional = true
	f.value = func(s *Settings) any {
		if !set(s) {
			return nil
		}
		return value(s)
	}
	return f
}

// shown returns a value for an error message, cut to 40 bytes.
func shown(raw []byte) string {
	if len(raw) > 40 {
		return strings.ToValidUTF8(string(raw[:40]), "") + "…"
	}
	return string(raw)
}

// whole is a whole number.
func whole[T int | int64](name string, low, high int64, at func(*Settings) *T) settingField {
	give := fmt.Sprintf("give a whole number from %s to %s", grouped(low), grouped(high))
	return settingField{
		name: name, give: give, set: func(s *Settings) bool { return *at(s) != 0 },
		check: func(s *Settings) *SettingsError {
			if n := int64(*at(s)); n < low || n > high {
				return &SettingsError{name, fmt.Sprintf("is %d; %s", n, give)}
			}
			return nil
		},
		parse: func(s *Settings, raw json.RawMessage) *SettingsError {
			n, err := strconv.ParseInt(string(raw), 10, 64)
			if err != nil {
				return &SettingsError{name, fmt.Sprintf("is %s; %s", shown(raw), give)}
			}
			*at(s) = T(n)
			return nil
		},
		value: func(s *Settings) any { return *at(s) },
	}
}

// orAuto is a number of visitors, or "auto".
func orAuto(name string, at func(*Settings) *int64) settingField {
	field := whole(name, 1, MaxVisitors, at)
	check, parse, value := field.check, field.parse, field.value
	field.give += `, or "auto"`
	field.check = func(s *Settings) *SettingsError {
		if *at(s) == Auto {
			return nil
		}
		return check(s)
	}
	field.parse = func(s *Settings, raw json.RawMessage) *SettingsError {
		if string(raw) == `"auto"` {
			*at(s) = Auto
			return nil
		}
		why := parse(s, raw)
		if why != nil {
			why.Why += `, or "auto"`
		} else if *at(s) == Auto {
			why = check(s)
		}
		return why
	}
	field.value = func(s *Settings) any {
		if *at(s) == Auto {
			return "auto"
		}
		return value(s)
	}
	return field
}

// lasting is a duration.
func lasting(name string, low, high time.Duration, at func(*Settings) *time.Duration) settingField {
	give := fmt.Sprintf("give whole milliseconds from %s to %s", grouped(low.Milliseconds()), grouped(high.Milliseconds()))
	return settingField{
		name: name, give: give, set: func(s *Settings) bool { return *at(s) != 0 },
		check: func(s *Settings) *SettingsError {
			if d := *at(s); d < low || d > high || d%time.Millisecond != 0 {
				return &SettingsError{name, fmt.Sprintf("is %s; %s", strconv.FormatFloat(float64(d)/1e6, 'f', -1, 64), give)}
			}
			return nil
		},
		parse: func(s *Settings, raw json.RawMessage) *SettingsError {
			n, err := strconv.ParseInt(string(raw), 10, 64)
			if err != nil || n < low.Milliseconds() || n > high.Milliseconds() {
				return &SettingsError{name, fmt.Sprintf("is %s; %s", shown(raw), give)}
			}
			*at(s) = time.Duration(n) * time.Millisecond
			return nil
		},
		value: func(s *Settings) any { return at(s).Milliseconds() },
	}
}

// zeroGiven is a field whose 0 in JSON is -1 in Settings, where 0 is the default.
func zeroGiven[T ~int64](field settingField, at func(*Settings) *T) settingField {
	check, parse := field.check, field.parse
	field.check = func(s *Settings) *SettingsError {
		if *at(s) < 0 {
			return nil
		}
		return check(s)
	}
	field.parse = func(s *Settings, raw json.RawMessage) *SettingsError {
		why := parse(s, raw)
		if why == nil {
			why = check(s)
		}
		if why == nil && *at(s) == 0 {
			*at(s) = -1
		}
		return why
	}
	return field
}

func graceField() settingField {
	at := func(s *Settings) *time.Duration { return &s.Grace }
	field := zeroGiven(lasting("grace_ms", 0, maxSilence, at), at)
	field.value = func(s *Settings) any { return max(s.Grace, 0).Milliseconds() }
	return field
}

// joinsField leaves the default out of JSON: it is no number for all addresses.
func joinsField() settingField {
	at := func(s *Settings) *int64 { return &s.JoinsPerMinute }
	field := zeroGiven(whole("joins_per_minute", 0, maxJoins, at), at)
	field.value = func(s *Settings) any {
		if s.JoinsPerMinute == 0 {
			return nil
		}
		return max(s.JoinsPerMinute, 0)
	}
	return field
}

// choice is one of some words.
func choice[T ~string](name string, at func(*Settings) *T, choices ...T) settingField {
	words := make([]string, len(choices))
	for i, c := range choices {
		words[i] = string(c)
	}
	give := "give " + strings.Join(words, " or ")
	return settingField{
		name: name, give: give, set: func(s *Settings) bool { return *at(s) != "" },
		check: func(s *Settings) *SettingsError {
			if !slices.Contains(choices, *at(s)) {
				return &SettingsError{name, fmt.Sprintf("is %.40q; %s", string(*at(s)), give)}
			}
			return nil
		},
		parse: func(s *Settings, raw json.RawMessage) *SettingsError {
			var word *string
			if json.Unmarshal(raw, &word) != nil {
				return &SettingsError{name, fmt.Sprintf("is %s; %s", shown(raw), give)}
			}
			*at(s) = T(*word)
			return nil
		},
		value: func(s *Settings) any { return *at(s) },
	}
}

// text is a short text. Its meaning is checked with the other settings.
func text(name string, at func(*Settings) *string) settingField {
	give := fmt.Sprintf("give a text of at most %d bytes", maxText)
	return settingField{
		name: name, give: give, set: func(s *Settings) bool { return *at(s) != "" },
		check: func(s *Settings) *SettingsError {
			if n := len(*at(s)); n > maxText {
				return &SettingsError{name, fmt.Sprintf("has %d bytes; %s", n, give)}
			}
			return nil
		},
		parse: func(s *Settings, raw json.RawMessage) *SettingsError {
			if json.Unmarshal(raw, at(s)) != nil {
				return &SettingsError{name, fmt.Sprintf("is %s; %s", shown(raw), give)}
			}
			return nil
		},
		value: func(s *Settings) any { return *at(s) },
	}.optionally()
}

// moment is a time; the zero time means none.
func moment(name string, at func(*Settings) *time.Time) settingField {
	const give = "give a time as in 2030-01-31T09:00:00Z, from 1970 to 9999"
	return settingField{
		name: name, optional: true, give: give, set: func(s *Settings) bool { return !at(s).IsZero() },
		check: func(s *Settings) *SettingsError {
			if t := *at(s); t.Before(time.UnixMilli(0)) || t.Year() > 9999 {
				return &SettingsError{name, fmt.Sprintf("is in the year %d; %s", t.Year(), give)}
			}
			return nil
		},
		parse: func(s *Settings, raw json.RawMessage) *SettingsError {
			var t time.Time
			if t.UnmarshalJSON(raw) != nil {
				return &SettingsError{name, fmt.Sprintf("is %s; %s", shown(raw), give)}
			}
			*at(s) = t.UTC().Truncate(time.Millisecond)
			return nil
		},
		value: func(s *Settings) any {
			if at(s).IsZero() {
				return nil
			}
			return at(s).UTC().Format(time.RFC3339Nano)
		},
	}
}

func yesOrNo(name string, at func(*Settings) *bool) settingField {
	return settingField{
		name: name, optional: true, give: "give true or false", set: func(s *Settings) bool { return *at(s) },
		check: func(*Settings) *SettingsError { return nil },
		parse: func(s *Settings, raw json.RawMessage) *SettingsError {
			if text := string(raw); text != "true" && text != "false" {
				return &SettingsError{name, fmt.Sprintf("is %s; give true or false", shown(raw))}
			}
			*at(s) = string(raw) == "true"
			return nil
		},
		value: func(s *Settings) any { return *at(s) },
	}
}

// rules is a list of rules; null and an empty list mean none.
func rules(name string, at func(*Settings) *[]Rule) settingField {
	return settingField{
		name: name, optional: true, set: func(s *Settings) bool { return len(*at(s)) > 0 },
		check: func(s *Settings) *SettingsError {
			if n := len(*at(s)); n > maxRules {
				return &SettingsError{name, fmt.Sprintf("has %d rules; give %d at most", n, maxRules)}
			}
			for i, rule := range *at(s) {
				if part, why := rule.wrong(); why != "" {
					return &SettingsError{fmt.Sprintf("%s[%d]%s", name, i, part), why}
				}
			}
			return nil
		},
		parse: func(s *Settings, raw json.RawMessage) (why *SettingsError) {
			*at(s), why = parseRules(name, raw)
			return why
		},
		value: func(s *Settings) any {
			if len(*at(s)) == 0 {
				return nil
			}
			return *at(s)
		},
	}
}

// parseRules parses a list of rules. Errors name the rule and its part.
func parseRules(name string, raw json.RawMessage) ([]Rule, *SettingsError) {
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, &SettingsError{name, fmt.Sprintf(`is %s; give a list as in [{"path":"/checkout/*"}]`, shown(raw))}
	}
	if len(list) > maxRules {
		return nil, &SettingsError{name, fmt.Sprintf("has %d rules; give %d at most", len(list), maxRules)}
	}
	var parsed []Rule
	for i, text := range list {
		rule, why := parseRule(fmt.Sprintf("%s[%d]", name, i), text)
		if why != nil {
			return nil, why
		}
		parsed = append(parsed, rule)
	}
	return parsed, nil
}

func parseRule(at string, text json.RawMessage) (Rule, *SettingsError) {
	parts, err := members(text)
	if err != nil {
		return Rule{}, &SettingsError{at, fmt.Sprintf(`is %s; give an object as in {"path":"/checkout/*"}`, shown(text))}
	}
	var rule Rule
	into := map[string]*string{"host": &rule.Host, "path": &rule.Path, "method": &rule.Method}
	for _, part := range parts {
		value := into[part.name]
		field := at + "." + shown([]byte(part.name))
		switch {
		case value == nil:
			return Rule{}, unknown(at+".", part.name, []string{"host", "path", "method"})
		case *value != "":
			return Rule{}, &SettingsError{field, "is there twice: give it once"}
		case !strings.HasPrefix(string(part.value), `"`) || json.Unmarshal(part.value, value) != nil || *value == "":
			return Rule{}, &SettingsError{field, fmt.Sprintf("is %s; give text, or leave it out", shown(part.value))}
		}
	}
	return rule, nil
}

// MarshalJSON returns all settings of the mode, defaults included, so that a reader sees
// what is in force. It leaves out times, rules and joins_per_minute if they are not set.
func (s Settings) MarshalJSON() ([]byte, error) {
	s = s.WithDefaults()
	out := []byte{'{'}
	for i := range settingFields {
		field := &settingFields[i]
		if field.mode != "" && field.mode != s.Mode {
			continue
		}
		value := field.value(&s)
		if value == nil {
			continue
		}
		text, err := json.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", field.name, err)
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(out, '"'), field.name...)
		out = append(append(out, '"', ':'), text...)
	}
	return append(out, '}'), nil
}

// UnmarshalJSON accepts what MarshalJSON returns, or a part of it: a setting that is left
// out, or null, gets its default. It returns a *SettingsError for unknown settings,
// settings of the other mode and values out of bounds. Validate checks that all settings
// fit together and none is missing.
func (s *Settings) UnmarshalJSON(data []byte) error {
	members, err := members(data)
	if err != nil {
		return &SettingsError{"settings", "are not a JSON object: " + err.Error()}
	}
	var parsed Settings
	given := make(map[string]bool, len(members))
	for _, m := range members {
		field, why := findSetting(m.name)
		if why != nil {
			return why
		}
		if given[m.name] {
			return &SettingsError{m.name, "is there twice: give it once"}
		}
		given[m.name] = true
		if string(m.value) == "null" {
			given[m.name] = false
			continue
		}
		if why := field.parse(&parsed, m.value); why != nil {
			return why
		}
		if why := field.check(&parsed); why != nil {
			return why
		}
	}
	for i := range settingFields {
		field := &settingFields[i]
		if given[field.name] && field.mode != "" && parsed.Mode != "" && field.mode != parsed.Mode {
			return field.otherMode(parsed.Mode)
		}
	}
	*s = parsed.WithDefaults()
	return nil
}

// findSetting returns the field of that name, or an error that suggests a similar one.
func findSetting(name string) (*settingField, *SettingsError) {
	names := make([]string, len(settingFields))
	for i := range settingFields {
		if settingFields[i].name == name {
			return &settingFields[i], nil
		}
		names[i] = settingFields[i].name
	}
	return nil, unknown("", name, names)
}

// unknown returns the error for an unknown name.
func unknown(prefix, name string, names []string) *SettingsError {
	if name = shown([]byte(name)); name == "" {
		name = `""`
	}
	why := "is not a setting; there are " + strings.Join(names, ", ")
	if near, distance := spelling.Nearest(name, names); distance <= max(1, min(nearMiss, len(near)/2)) {
		why = "is not a setting; did you mean " + near + "?"
	}
	return &SettingsError{prefix + name, why}
}

// nearMiss is the most letters by which a mistyped name may differ.
const nearMiss = 4

// member is a member of a JSON object.
type member struct {
	name  string
	value json.RawMessage
}

// members returns the members of a JSON object, in their order. Names are as written, and
// may repeat.
func members(data []byte) ([]member, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	if open, err := decoder.Token(); err != nil {
		return nil, err
	} else if open != json.Delim('{') {
		return nil, fmt.Errorf("it begins with %s", shown(bytes.TrimSpace(data)))
	}
	var found []member
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return nil, err
		}
		found = append(found, member{fmt.Sprint(name), value})
	}
	if _, err := decoder.Token(); err != nil {
		return nil, err
	}
	if rest := bytes.TrimSpace(data[decoder.InputOffset():]); len(rest) > 0 {
		return nil, fmt.Errorf("there is more after it: %s", shown(rest))
	}
	return found, nil
}
