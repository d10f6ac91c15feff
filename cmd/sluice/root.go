package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// The groups of the help. Cobra's own commands join groupSetUp.
const (
	groupWork  = "work"
	groupSetUp = "set-up"
)

// newRoot returns the command sluice with all its commands.
func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "sluice",
		Short: "Keep a service standing when traffic surges",
		Long: `Sluice keeps a service standing when traffic surges. What cannot be served now
waits in a durable line, is let through at a controlled rate, is held under a
deadline while it is served, and is never lost.`,
		Example: `  sluice demo
  sluice bulk run examples/zipcodes.csv --tenant-column state --type echo
  sluice serve`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	addGroup(root, groupWork, "Run it:", newDemoCommand(), newBulkCommand(), newTopicCommand(), newGroupCommand(), newRoomCommand(), newClusterCommand(), newServeCommand(), newGateCommand())
	addGroup(root, groupSetUp, "Set it up:", newConfigCommand(), newVersionCommand())
	root.SetHelpCommandGroupID(groupSetUp)
	root.SetCompletionCommandGroupID(groupSetUp)
	markUsageErrors(root)
	return root
}

// addGroup adds commands under a title of the help.
func addGroup(root *cobra.Command, id, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: id, Title: title})
	for _, command := range commands {
		command.GroupID = id
		root.AddCommand(command)
	}
}

// markUsageErrors makes wrong flags and arguments of command, and of those
// below it, usage errors.
func markUsageErrors(command *cobra.Command) {
	command.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return &usageError{fmt.Errorf("%w; see %s --help", err, c.CommandPath())}
	})
	if command.HasSubCommands() && !command.Runnable() {
		command.Args = knownCommand
		command.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	}
	if check := command.Args; check != nil {
		command.Args = func(c *cobra.Command, args []string) error {
			if err := check(c, args); err != nil {
				return &usageError{fmt.Errorf("%w; see %s --help", err, c.CommandPath())}
			}
			return nil
		}
	}
	for _, sub := range command.Commands() {
		markUsageErrors(sub)
	}
}

// knownCommand refuses the name of a command that there is not.
func knownCommand(command *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	command.SuggestionsMinimumDistance = 2
	message := fmt.Sprintf("%s has no command %q", command.CommandPath(), args[0])
	if similar := command.SuggestionsFor(args[0]); len(similar) > 0 {
		message += "; did you mean " + strings.Join(similar, " or ") + "?"
	}
	return errors.New(message)
}
