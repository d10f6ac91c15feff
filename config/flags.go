package config

import (
	"github.com/spf13/pflag"
)

// fileFlag names the file.
const fileFlag = "config"

// Flags adds a flag for each setting that has one, and --config, to flags; Load reads them.
func Flags(flags *pflag.FlagSet) {
	flags.String(fileFlag, "", "YAML `file` of settings (environment: "+fileVariable+")")
	for i := range settings {
		s := &settings[i]
		if s.Flag() == "" {
			continue
		}
		flag := flags.VarPF(&flagValue{setting: s, text: s.Default}, s.Flag(), "", s.help())
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
	for i := range settings {
		s := &settings[i]
		if s.Flag() == "" || !flags.Changed(s.Flag()) {
			continue
		}
		if err := c.set(s, flags.Lookup(s.Flag()).Value.String(), "flag --"+s.Flag()); err != nil {
			return err
		}
	}
	return nil
}
