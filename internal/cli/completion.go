package cli

import "github.com/spf13/cobra"

// choices are the words that flags take, by the names of the flags. Completion offers them.
var choices = map[string][]string{
	"acks":       {"all", "1", "0"},
	"class":      {"high", "normal", "low"},
	"log-format": {"text", "json"},
	"log-level":  {"debug", "info", "warn", "error"},
	"overlap":    {"skip", "allow"},
	"sort":       {"rate", "size", "name"},
	"status":     {"CREATED", "DISPATCHED", "RUNNING", "AGGREGATING", "COMPLETED", "FAILED", "CANCELED"},
}

// completeChoices makes completion offer the choices, for a command and all below it. A flag that
// two commands share is registered once.
func completeChoices(command *cobra.Command) {
	for name, words := range choices {
		if command.Flags().Lookup(name) != nil {
			_ = command.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
		}
	}
	for _, sub := range command.Commands() {
		completeChoices(sub)
	}
}
