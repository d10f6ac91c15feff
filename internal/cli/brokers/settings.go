package brokers

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/cli/term"
)

// Changes are the flags --set and --unset, which change settings.
type Changes struct{ set, unset []string }

// Add adds the flags.
func (f *Changes) Add(command *cobra.Command) {
	command.Flags().StringArrayVar(&f.set, "set", nil, "a setting, as `name=value`; may be repeated")
	command.Flags().StringArrayVar(&f.unset, "unset", nil, "the `name` of a setting that falls back to its default; may be repeated")
}

// Parse returns the change of each setting, in order. The example is of a setting.
func (f *Changes) Parse(example string) ([]kadm.AlterConfig, error) {
	settings, err := ParseSettings(f.set, example)
	if err != nil {
		return nil, err
	}
	var changes []kadm.AlterConfig
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: settings[name]})
	}
	for _, name := range f.unset {
		if name == "" || slices.ContainsFunc(changes, func(c kadm.AlterConfig) bool { return c.Name == name }) {
			return nil, exit.Usage("--unset: %q: want the name of a setting, once, that --set does not set", name)
		}
		changes = append(changes, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: name})
	}
	return changes, nil
}

// ParseSettings reads the NAME=VALUE pairs of --set. The example is one of them.
func ParseSettings(pairs []string, example string) (map[string]*string, error) {
	settings := map[string]*string{}
	for _, pair := range pairs {
		name, value, err := CutPair("set", pair, example)
		if err != nil {
			return nil, err
		}
		if settings[name] != nil {
			return nil, exit.Usage("--set: %s is given more than once", name)
		}
		settings[name] = &value
	}
	return settings, nil
}

// CutPair reads a NAME=VALUE pair of a flag.
func CutPair(flag, pair, example string) (name, value string, err error) {
	name, value, found := strings.Cut(pair, "=")
	if !found || name == "" {
		return "", "", exit.Usage("--%s: %q: want name=value, such as %s", flag, pair, example)
	}
	return name, value, nil
}

// Changed returns the settings that were set, by name, and those that have their defaults again.
func Changed(changes []kadm.AlterConfig) (set map[string]string, unset []string) {
	set = map[string]string{}
	for _, change := range changes {
		if change.Op == kadm.DeleteConfig {
			unset = append(unset, change.Name)
		} else {
			set[change.Name] = *change.Value
		}
	}
	return set, unset
}

// TellChanges returns a phrase for each change.
func TellChanges(changes []kadm.AlterConfig) (told []string) {
	for _, change := range changes {
		if change.Op == kadm.DeleteConfig {
			told = append(told, change.Name+" has its default")
		} else {
			told = append(told, change.Name+"="+term.Printable(*change.Value))
		}
	}
	return told
}
