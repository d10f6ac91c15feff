package config

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/sluice-project/sluice/internal/spelling"
)

// The names by which the file is given.
const (
	variablePrefix = "SLUICE_"
	fileVariable   = variablePrefix + "CONFIG"
	fileFlag       = "config"
)

// nearMiss is how many letters a variable may be off the name of a setting to
// be taken for a mistake. Other variables belong to others: Kubernetes, for one, sets
// SLUICE_PORT where a service is named sluice.
const nearMiss = 2

// variablesOf returns the variables of environ that have our prefix and are not
// empty.
func variablesOf(environ []string) map[string]string {
	variables := map[string]string{}
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(name, variablePrefix) && value != "" {
			variables[name] = value
		}
	}
	return variables
}

func (c *Config) readEnvironment(variables map[string]string) error {
	names := []string{fileVariable}
	for _, s := range c.schema() {
		if s.Variable() == "" {
			continue
		}
		names = append(names, s.Variable())
		if value, ok := variables[s.Variable()]; ok {
			if err := c.set(&s, value, "environment "+s.Variable()); err != nil {
				return err
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		near, distance := spelling.Nearest(name, names)
		if distance > 0 && distance <= nearMiss {
			return &Error{Key: name, Source: "environment", Why: "there is no such setting; the nearest is " + near}
		}
	}
	return nil
}

// Flags adds a flag for each setting that has one, and --config, to flags; Load reads them.
func Flags(flags *pflag.FlagSet) {
	addFlags(flags, Settings(), func(s *Setting) string { return sameFlag })
}

// GateFlags adds the flags of "sluice gate": the settings that it has, with those of
// the gate first and under shorter names: --room for gate.room, and --listen for
// gate.http.
func GateFlags(flags *pflag.FlagSet) {
	gateFirst := Settings()
	slices.SortStableFunc(gateFirst, func(a, b Setting) int {
		return cmp.Compare(strings.Index(b.Key, "gate."), strings.Index(a.Key, "gate."))
	})
	addFlags(flags, gateFirst, func(s *Setting) string { return s.gateFlag })
	flags.Lookup("listen").DefValue = DefaultGate
}

// PreviewFlags adds the flags of "sluice gate preview": those of "sluice gate" about its page.
func PreviewFlags(flags *pflag.FlagSet) {
	shown := []string{"gate.http", "gate.template", "gate.brand", "gate.logo", "gate.theme", "gate.texts", "gate.languages"}
	addFlags(flags, Settings(), func(s *Setting) string {
		if slices.Contains(shown, s.Key) {
			return s.gateFlag
		}
		return ""
	})
	flags.Lookup("listen").DefValue = DefaultGate
}

// MoveFlags adds the flags of "sluice bulk migrate", which copies the state of bulk from a
// data directory to one that is shared: --from is data, --to is state, --shards is
// bulk.shards; the other settings that apply have their own names.
func MoveFlags(flags *pflag.FlagSet) {
	addFlags(flags, Settings(), func(s *Setting) string { return s.migrateFlag })
}

// addFlags adds a flag for each setting that has a name, the first of each name.
func addFlags(flags *pflag.FlagSet, table []Setting, nameOf func(*Setting) string) {
	flags.String(fileFlag, "", "YAML `file` of settings (environment: "+fileVariable+")")
	for _, s := range table {
		name := nameOf(&s)
		if name == sameFlag || s.Flag() == "" {
			name = s.Flag()
		}
		if name == "" || flags.Lookup(name) != nil {
			continue
		}
		flag := flags.VarPF(&flagValue{setting: &s, text: s.Default}, name, "", s.help())
		if s.Unit == unitBool {
			flag.NoOptDefVal = "true"
		}
	}
}

// flagValue is a setting as a flag. It keeps the text if it can be read.
type flagValue struct {
	setting *Setting // of a Config of its own
	text    string
}

// String implements pflag.Value.
func (f *flagValue) String() string { return f.text }

// Set implements pflag.Value.
func (f *flagValue) Set(text string) error {
	// The error for a state would show the text, and a password in it: Load checks it.
	if _, state := f.setting.field.(*State); !state {
		if err := f.setting.parse(text); err != nil {
			return err
		}
	}
	f.text = text
	return nil
}

// Type implements pflag.Value: the placeholder in the help.
func (f *flagValue) Type() string { return placeholder(f.setting.Unit) }

func placeholder(unit string) string {
	switch unit {
	case unitWhole, unitNumber, unitOrAuto:
		return "number"
	case unitBool:
		return "bool"
	case unitRules:
		return "rule"
	}
	return cmp.Or(unit, "text")
}

// filePath returns the path of the file, or empty.
func filePath(flags *pflag.FlagSet, variables map[string]string) string {
	if flags != nil && flags.Changed(fileFlag) {
		return flags.Lookup(fileFlag).Value.String()
	}
	return variables[fileVariable]
}

func (c *Config) readFlags(flags *pflag.FlagSet) error {
	if flags == nil {
		return nil
	}
	set := map[string]*pflag.Flag{}
	flags.Visit(func(flag *pflag.Flag) {
		if value, ours := flag.Value.(*flagValue); ours {
			set[value.setting.Key] = flag
		}
	})
	for _, s := range c.schema() {
		if flag := set[s.Key]; flag != nil {
			if err := c.set(&s, flag.Value.String(), "flag --"+flag.Name); err != nil {
				return err
			}
		}
	}
	return nil
}
