package room

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// settingField is one setting with its JSON form.
type settingField struct {
	name string
	// mode is the one that has it; empty: both.
	mode Mode
	// required fields have no default. Optional ones may be left out, and are checked
	// only if they are set.
	required, optional bool
	// give says what would be right.
	give string

	set func(*Settings) bool
	// check says what is wrong with the value, defaults not applied.
	check func(*Settings) *SettingsError
	parse func(*Settings, json.RawMessage) *SettingsError
	// value is what to write in JSON.
	value func(*Settings) any
}

// settingFields are all, in the order of the JSON form. The mode is first: the
// others depend on it.
var settingFields = []settingField{
	choice("mode", func(s *Settings) *Mode { return &s.Mode }, Teller, Park).requires(),
	whole("capacity", 1, maxVisitors, func(s *Settings) *int64 { return &s.Capacity }).only(Teller).requires(),
	lasting("pass_ttl_ms", minWindow, maxVisit, func(s *Settings) *time.Duration { return &s.PassTTL }).only(Teller),
	choice("pass", func(s *Settings) *PassKind { return &s.Pass }, Sliding, Fixed).only(Teller),
	whole("renewals", 0, maxRenewals, func(s *Settings) *int { return &s.Renewals }).only(Teller),
	whole("batch", 1, maxVisitors, func(s *Settings) *int64 { return &s.Batch }).only(Park).requires(),
	lasting("interval_ms", minWindow, maxInterval, func(s *Settings) *time.Duration { return &s.Interval }).only(Park).requires(),
	lasting("stay_ms", minWindow, maxVisit, func(s *Settings) *time.Duration { return &s.Stay }).only(Park).requires(),
	lasting("claim_window_ms", minWindow, maxClaim, func(s *Settings) *time.Duration { return &s.ClaimWindow }),
	lasting("abandon_after_ms", minWindow, maxSilence, func(s *Settings) *time.Duration { return &s.AbandonAfter }),
	graceField(),
	whole("max_waiting", 1, maxVisitors, func(s *Settings) *int64 { return &s.MaxWaiting }),
	choice("method", func(s *Settings) *Method { return &s.Method }, FIFO, Lottery),
	moment("opens_at", func(s *Settings) *time.Time { return &s.OpensAt }),
	moment("prequeue_from", func(s *Settings) *time.Time { return &s.PrequeueFrom }),
	moment("ends_at", func(s *Settings) *time.Time { return &s.EndsAt }),
	choice("on_store_failure", func(s *Settings) *OnStoreFailure { return &s.OnStoreFailure }, FailOpen, FailClosed),
	rules("routes", func(s *Settings) *[]Rule { return &s.Routes }),
	rules("bypass", func(s *Settings) *[]Rule { return &s.Bypass }),
	whole("joins_per_minute", 0, maxJoins, func(s *Settings) *int64 { return &s.JoinsPerMinute }),
	yesOrNo("bind_tickets", func(s *Settings) *bool { return &s.BindTickets }),
}

func (f settingField) only(mode Mode) settingField {
	f.mode = mode
	return f
}

func (f settingField) requires() settingField {
	f.required = true
	return f
}

// shown is a value in an error: no more of it than helps.
func shown(raw []byte) string {
	if len(raw) > 40 {
		return strings.ToValidUTF8(string(raw[:40]), "") + "…"
	}
	return string(raw)
}

// whole is a number.
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

// graceField is a duration of which 0 in JSON is -1 in Settings: there 0 is the
// default.
func graceField() settingField {
	at := func(s *Settings) *time.Duration { return &s.Grace }
	field := lasting("grace_ms", 0, maxSilence, at)
	check, parse := field.check, field.parse
	field.check = func(s *Settings) *SettingsError {
		if s.Grace < 0 {
			return nil
		}
		return check(s)
	}
	field.parse = func(s *Settings, raw json.RawMessage) *SettingsError {
		why := parse(s, raw)
		if why == nil && s.Grace == 0 {
			s.Grace = -1
		}
		return why
	}
	field.value = func(s *Settings) any { return max(s.Grace, 0).Milliseconds() }
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

// moment is a time; the zero time is none.
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
