package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Each command is in the table of what commands need, or is local; and the table has no other. One that shows the token of an account
// asks something of a server.
func TestEveryCommandSaysWhatItNeeds(t *testing.T) {
	root := Root()
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	seen := map[string]*cobra.Command{}
	var visit func(*cobra.Command)
	visit = func(command *cobra.Command) {
		path := pathOf(command)
		seen[path] = command
		shows := command.Flags().Lookup("profile") != nil
		isLocal, asks := slices.Contains(local, path), formNamed(path)
		switch {
		case command.HasSubCommands() && !isLocal && !asks && !shows: // it prints its help
		case isLocal == asks:
			t.Errorf("sluice %s: want a row in internal/cli/needs.go, among the forms or the local commands", path)
		case isLocal && shows:
			t.Errorf("sluice %s is local, but has --profile: want what it asks of a server", path)
		case asks && !shows:
			t.Errorf("sluice %s asks a server, but has no --profile", path)
		}
		for _, sub := range command.Commands() {
			visit(sub)
		}
	}
	visit(root)
	for _, path := range local {
		if seen[path] == nil {
			t.Errorf("sluice %s is local, and does not exist", path)
		}
	}
	for _, form := range forms {
		command := seen[form.Command]
		if command == nil {
			t.Errorf("sluice %s has a form, and does not exist", form.Command)
			continue
		}
		for flag := range strings.FieldsSeq(form.Flags) {
			if command.Flags().Lookup(flag) == nil {
				t.Errorf("sluice %s: a form has --%s, which does not exist", form.Command, flag)
			}
		}
	}
}

// formNamed reports whether a command has a form without flags.
func formNamed(path string) bool {
	return slices.ContainsFunc(forms, func(f Form) bool { return f.Command == path && f.Flags == "" })
}

// The operations and requests of each form are in access/table.go, and a command line has the form of its flags.
func TestFormsOfCommandLines(t *testing.T) {
	for _, form := range Forms() {
		_ = form.Needs() // it panics for what the table lacks
	}
	for line, want := range map[string]string{
		"bulk target a":           "read-limits",
		"bulk target a --rps 5":   "read-limits, manage-bulk",
		"bulk pause a":            "submit",
		"room lottery a":          "",
		"topic list":              "known",
		"group reset g --dry-run": "read-topics",
		"group reset g":           "read-topics, consume",
		"topic produce a":         "read-topics, produce",
	} {
		command, args, err := Root().Find(strings.Fields(line))
		if err == nil {
			err = command.ParseFlags(args)
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := formOf(command).Needs().String(); got != want {
			t.Errorf("sluice %s needs %q, want %q", line, got, want)
		}
	}
}
