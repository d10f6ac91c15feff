package cli

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	accessapi "github.com/sluice-project/sluice/access/api"
	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/internal/cli/clitest"
	"github.com/sluice-project/sluice/internal/cli/topic"
	topicapi "github.com/sluice-project/sluice/topic/api"
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
		if got := completed(t, line); got != want {
			t.Errorf("completion of %q: %q; want %q", line, got, want)
		}
	}
}

// completed returns the words that complete a line, none of them files.
func completed(t *testing.T, line string) string {
	t.Helper()
	code, stdout, stderr := sluice(t, append([]string{cobra.ShellCompNoDescRequestCmd}, strings.Split(line, " ")...)...)
	got, _, found := strings.Cut(stdout, ":4\n") // the directive: no files
	if code != 0 || !found {
		t.Errorf("completion of %q: code %d, %s%s", line, code, stdout, stderr)
	}
	return strings.Join(strings.Fields(got), " ")
}

// Completion offers what the server has.
func TestCompletionOffersNames(t *testing.T) {
	answers := map[string]any{
		"/v1/actions":   wire.Actions{Actions: []wire.Action{{ID: "a1"}, {ID: "a2"}}},
		"/v1/cluster":   topicapi.Cluster{Node: 1, Nodes: []topicapi.Node{{ID: 1}, {ID: 2}}},
		"/v1/rooms":     json.RawMessage(`{"rooms":[{"room":"fair"},{"room":"shop"}]}`),
		"/v1/schedules": wire.Schedules{Schedules: []wire.Schedule{{Name: "nightly"}}},
		"/v1/tokens":    accessapi.Tokens{Tokens: []accessapi.Token{{Name: "ci"}}},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := json.NewEncoder(w).Encode(answers[r.URL.Path]); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	brokers := clitest.NewSession(t, topic.Command)
	brokers.Run("topic create orders")
	brokers.Run("topic create parcels")
	t.Setenv("SLUICE_SERVER", server.URL)
	t.Setenv("SLUICE_BROKERS", brokers.Brokers)
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", "")
	if code, _, stderr := sluice(t, "profile", "set", "home", "--server", server.URL); code != 0 {
		t.Fatal(stderr)
	}
	for line, want := range map[string]string{
		"bulk status ":                 "a1 a2",
		"bulk why ":                    "a1 a2",
		"bulk schedule run ":           "nightly",
		"cluster drain ":               "1 2",
		"profile remove ":              "home",
		"room show ":                   "fair shop",
		"room show --profile ":         "home",
		"room show --profile home ":    "fair shop",
		"token revoke ":                "ci",
		"topic consume ":               "orders parcels",
		"topic describe ":              "orders parcels",
		"topic delete orders ":         "parcels",
		"group reset billing --topic ": "orders parcels",
	} {
		if got := completed(t, line); got != want {
			t.Errorf("completion of %q: %q; want %q", line, got, want)
		}
	}
	server.Close()
	if got := completed(t, "room show "); got != "" {
		t.Errorf("without a server, completion offers %q", got)
	}
}

// Each kind of argument is one that a usage has.
func TestArgumentsAreThoseOfUsages(t *testing.T) {
	var count func(command *cobra.Command)
	seen := map[string]bool{}
	count = func(command *cobra.Command) {
		if kind, _ := kindOf(command); arguments[kind] != nil {
			seen[kind] = true
		}
		for _, sub := range command.Commands() {
			count(sub)
		}
	}
	count(Root())
	if len(seen) != len(arguments) {
		t.Errorf("of %d kinds, usages have %v", len(arguments), seen)
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
