package room

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/sluice-project/sluice/spelling"
)

// MarshalJSON returns all settings that hold in the mode, defaults included, so
// that a reader sees what is in force. Times and rules that are not set are left out.
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

// UnmarshalJSON takes what MarshalJSON gives, or a part of it: a setting that is
// left out, or null, gets its default. Unknown settings, and those of the other mode,
// are refused, and so are values out of bounds: with a *SettingsError. Whether all
// goes together, and nothing is missing, Validate says.
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

// findSetting returns the field of that name, or says which may have been meant.
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

// unknown is the error about a name that none of names is.
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

// nearMiss is how many letters a name may be off to be taken for a mistake.
const nearMiss = 4

// member is one of a JSON object.
type member struct {
	name  string
	value json.RawMessage
}

// members returns those of a JSON object, in their order. Names are as they are
// written, and may be there twice.
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
