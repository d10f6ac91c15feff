package cli

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Completion offers the words of a flag.
func TestCompletionOffersChoices(t *testing.T) {
	for line, want := range map[string]string{
		"bulk list --status ":          "CREATED DISPATCHED RUNNING AGGREGATING COMPLETED FAILED CANCELED",
		"bulk submit --class ":         "high normal low",
		"serve --log-level ":           "debug info warn error",
		"gate --log-format ":           "text json",
		"topic produce orders --acks ": "all 1 0",
	} {
		code, stdout, _ := sluice(t, append([]string{cobra.ShellCompNoDescRequestCmd}, strings.Split(line, " ")...)...)
		got, _, _ := strings.Cut(stdout, ":4\n") // the directive: no files
		if code != 0 || strings.Join(strings.Fields(got), " ") != want {
			t.Errorf("completion of %q: code %d, %q; want %q", line, code, got, want)
		}
	}
}

// Each choice is one that the help of its flag names, of a command that has it.
func TestChoicesAreThoseOfTheHelp(t *testing.T) {
	help := map[string]string{}
	var collect func(command *cobra.Command)
	collect = func(command *cobra.Command) {
		command.Flags().VisitAll(func(flag *pflag.Flag) { help[flag.Name] += flag.Usage + "\n" })
		for _, sub := range command.Commands() {
			collect(sub)
		}
	}
	collect(Root())
	for name, words := range choices {
		for _, word := range words {
			if !strings.Contains(help[name], word) {
				t.Errorf("completion offers --%s %s, which no help names: %q", name, word, help[name])
			}
		}
	}
}

func TestCompletionScripts(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if code, stdout, stderr := sluice(t, "completion", shell); code != 0 || !strings.Contains(stdout, "__complete") {
			t.Errorf("sluice completion %s: code %d, %s", shell, code, stderr)
		}
	}
}
