package config

import (
	"strings"

	"github.com/sluice-project/sluice/bulk"
)

// Setting is one thing that can be set. The file, the environment, flags, the
// reference and validation follow from it.
type Setting struct {
	// Key is its name in the file, with a dot for each level: bulk.workers.
	Key string
	// Usage says what it means, in words that go on after the key.
	Usage string
	// Zero says what 0 means, where it is allowed: "no limit".
	Zero string
	// Default is the value when nothing is set, as text.
	Default string
	// Unit is what the value is given in: "duration", "size", "whole number",
	// "number", "true or false", "list", "lists by name", "time",
	// "list of rules", or empty for text.
	Unit string
	// Secret settings are never shown, and have no flag: other users of a machine may
	// see command lines.
	Secret bool
	// FileOnly settings have neither a flag nor a variable.
	FileOnly bool

	// field points to the value in a Config; its type decides the unit.
	field any
	check check
	// flag is the name of its flag where it does not follow from the key. gateFlag and
	// migrateFlag are its names in "sluice gate" and "sluice bulk migrate", which do
	// not have the setting if they are empty; see sameFlag.
	flag, gateFlag, migrateFlag string
}

// Flag returns the name of the setting's flag, without dashes before it; empty if
// it has none.
func (s *Setting) Flag() string {
	switch {
	case s.Secret || s.FileOnly:
		return ""
	case s.flag != "":
		return s.flag
	}
	return flagName(s.Key)
}

func flagName(key string) string { return strings.NewReplacer(".", "-", "_", "-").Replace(key) }

// Variable returns the name of the setting's environment variable; empty if it
// has none.
func (s *Setting) Variable() string {
	if s.FileOnly {
		return ""
	}
	return variablePrefix + strings.ToUpper(strings.ReplaceAll(s.Key, ".", "_"))
}

// help says what the setting means.
func (s *Setting) help() string {
	switch {
	case s.FileOnly:
		return s.Usage + "; in the file only"
	case s.Secret:
		return s.Usage + "; in the file or the environment only"
	case s.Zero != "":
		return s.Usage + "; 0: " + s.Zero
	}
	return s.Usage
}

// Settings returns all settings, in the order of the file. Those of single job
// types, bulk.types.TYPE.KEY, can only be set in the file; [TypeSettings]
// returns them.
func Settings() []Setting {
	table := Default().schema()
	for i := range table {
		table[i].Unit, table[i].Default = unitOf(table[i].field), format(table[i].field)
	}
	return table
}

// TypeSettings returns the settings that can be set for a single job type, with
// the key that stands below bulk.types.TYPE. Their default is the setting of
// the same name for all types.
func TypeSettings() []Setting {
	table := typeSchema(&bulk.TypeConfig{})
	for i := range table {
		table[i].Unit = unitOf(table[i].field)
	}
	return table
}
