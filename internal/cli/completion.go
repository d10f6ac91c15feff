package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/internal/cli/brokers"
	"github.com/sluice-project/sluice/internal/cli/profile"
	"github.com/sluice-project/sluice/internal/cli/remote"
)

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

// names lists what there is of a kind.
type names func(ctx context.Context, command *cobra.Command) ([]string, error)

// completeWithin bounds the wait for a server while somebody types.
const completeWithin = 2 * time.Second

// arguments are kinds of things by the command that has them and the word for them in usages. Completion
// offers those that the server has, but for commands that create them.
var arguments = map[string]names{
	"bulk ID":       served("/v1/actions", "actions", "id"),
	"cluster NODE":  served("/v1/cluster", "nodes", "id"),
	"group GROUP":   groups,
	"room NAME":     served("/v1/rooms", "rooms", "room"),
	"schedule NAME": served("/v1/schedules", "schedules", "name"),
	"token NAME":    served("/v1/tokens", "tokens", "name"),
	"topic NAME":    topics,
	"topic TOPIC":   topics,
	"profile NAME":  profiles,
}

// flagNames are the same for flags, of commands that connect.
var flagNames = map[string]names{"group": groups, "profile": profiles, "topic": topics}

// makers are the commands whose argument is not there yet.
var makers = []string{"create", "set"}

// completeNames makes completion offer names, for a command and all below it.
func completeNames(command *cobra.Command) {
	kind, several := kindOf(command)
	if list := arguments[kind]; list != nil {
		command.ValidArgsFunction = func(command *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 && !several {
				return nil, cobra.ShellCompDirectiveDefault
			}
			return list.complete(command, args)
		}
	}
	for flag, list := range flagNames {
		if command.Flags().Lookup(flag) != nil && command.Flags().Lookup("profile") != nil {
			_ = command.RegisterFlagCompletionFunc(flag, func(command *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
				return list.complete(command, nil)
			})
		}
	}
	for _, sub := range command.Commands() {
		completeNames(sub)
	}
}

// kindOf returns the kind of a command's first argument, a key of arguments, and whether it takes several; "" if there
// is none, or it is not there yet.
func kindOf(command *cobra.Command) (kind string, several bool) {
	words := strings.Fields(command.Use)
	if len(words) < 2 || slices.Contains(makers, words[0]) {
		return "", false
	}
	word, several := strings.CutSuffix(words[1], "...")
	word, _, _ = strings.Cut(word, "[")
	return command.Parent().Name() + " " + word, several
}

// complete returns the names without those that were given. Without a server there is nothing to offer.
func (list names) complete(command *cobra.Command, given []string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(command.Context(), completeWithin)
	defer cancel()
	command.SetContext(ctx)
	all, err := list(ctx, command)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return slices.DeleteFunc(all, func(name string) bool { return slices.Contains(given, name) }), cobra.ShellCompDirectiveNoFileComp
}

// served lists a member of the objects of a list that a server has.
func served(path, list, member string) names {
	return func(ctx context.Context, command *cobra.Command) ([]string, error) {
		client, err := new(remote.Flags).Open(command)
		if err != nil {
			return nil, err
		}
		var answer map[string]json.RawMessage
		if err := client.Do(ctx, http.MethodGet, path, nil, &answer); err != nil {
			return nil, err
		}
		var objects []map[string]any
		if err := json.Unmarshal(answer[list], &objects); err != nil {
			return nil, err
		}
		var all []string
		for _, object := range objects {
			if name, has := object[member]; has {
				all = append(all, fmt.Sprint(name))
			}
		}
		return all, nil
	}
}

// brokered lists what brokers have.
func brokered(list func(ctx context.Context, c *brokers.Client) ([]string, error)) names {
	return func(ctx context.Context, command *cobra.Command) ([]string, error) {
		client, err := new(brokers.Flags).Open(command)
		if err != nil {
			return nil, err
		}
		defer client.Kafka.Close()
		return list(ctx, client)
	}
}

var topics = brokered(func(ctx context.Context, c *brokers.Client) ([]string, error) {
	all, err := c.Admin.ListTopics(ctx)
	return all.Names(), err
})

var groups = brokered(func(ctx context.Context, c *brokers.Client) ([]string, error) {
	all, err := c.Admin.ListGroups(ctx)
	return all.Groups(), err
})

func profiles(context.Context, *cobra.Command) ([]string, error) {
	all, err := profile.Load()
	return slices.Sorted(maps.Keys(all)), err
}
