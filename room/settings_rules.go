package room

import (
	"encoding/json"
	"fmt"
	"strings"
)

// rules is a list of rules; null and an empty one are none.
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
