package config

import (
	"cmp"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// fileFlag names the file.
const fileFlag = "config"

// Flags adds a flag for each setting that has one, and --config, to flags; Load reads them.
func Flags(flags *pflag.FlagSet) { addFlags(flags, settings, (*Setting).Flag) }

// GateFlags adds the flags of a process that is a gate: what it has of the settings,
// with those of the gate under shorter names: --room for gate.room, and --listen
// for gate.http.
func GateFlags(flags *pflag.FlagSet) {
	gateFirst := slices.Clone(settings)
	slices.SortStableFunc(gateFirst, func(a, b Setting) int {
		return cmp.Compare(strings.Index(b.Key, "gate."), strings.Index(a.Key, "gate."))
	})
	addFlags(flags, gateFirst, func(s *Setting) string {
		section, _, nested := strings.Cut(s.Key, ".")
		switch {
		case s.Key == "gate.http":
			return "listen"
		case s.Key == "kafka" || s.Key == "room.outbox" || nested && !slices.Contains([]string{"log", "room", "gate"}, section):
			return ""
		}
		return strings.TrimPrefix(s.Flag(), "gate-")
	})
	flags.Lookup("listen").DefValue = DefaultGate
}

// MoveFlags adds the flags of a process that moves the state of bulk from a data directory
// to one that is shared: --from is data, --to is state, --shards is bulk.shards; the other
// settings that what is moved keeps have their own names.
func MoveFlags(flags *pflag.FlagSet) {
	names := map[string]string{"data": "from", "state": "to", "bulk.shards": "shards"}
	addFlags(flags, settings, func(s *Setting) string {
		if slices.Contains([]string{"bulk.window", "bulk.max_attempts", "bulk.max_crashes", "bulk.requests_per_second"}, s.Key) {
			return s.Flag()
		}
		return names[s.Key]
	})
}

// addFlags adds a flag for each setting that has a name, the first of each name.
func addFlags(flags *pflag.FlagSet, table []Setting, name func(*Setting) string) {
	flags.String(fileFlag, "", "YAML `file` of settings (environment: "+fileVariable+")")
	for i := range table {
		s := &table[i]
		if name(s) == "" || flags.Lookup(name(s)) != nil {
			continue
		}
		flag := flags.VarPF(&flagValue{setting: s, text: s.Default}, name(s), "", s.help())
		if s.Unit == unitBool {
			flag.NoOptDefVal = "true"
		}
	}
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

// flagValue is a setting as a flag. It keeps the text, once it has been found
// readable.
type flagValue struct {
	setting *Setting
	text    string
}

// String implements pflag.Value.
func (f *flagValue) String() string { return f.text }

// Set implements pflag.Value.
func (f *flagValue) Set(text string) error {
	if _, state := f.setting.field(Default()).(*State); state {
		// The error would show the text, and a password in it: it is checked with all else.
		f.text = text
		return nil
	}
	if err := f.setting.parse(f.setting.field(Default()), text); err != nil {
		return err
	}
	f.text = text
	return nil
}

// Type implements pflag.Value: the placeholder in the help.
func (f *flagValue) Type() string {
	switch f.setting.Unit {
	case unitWhole, unitNumber:
		return "number"
	case unitBool:
		return "bool"
	case "":
		return "text"
	default:
		return f.setting.Unit
	}
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
	var err error
	flags.Visit(func(flag *pflag.Flag) { // Those that were set, by name.
		if value, ours := flag.Value.(*flagValue); ours && err == nil {
			err = c.set(value.setting, value.text, "flag --"+flag.Name)
		}
	})
	return err
}
