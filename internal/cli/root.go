package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/internal/cli/bulk"
	"github.com/sluice-project/sluice/internal/cli/cluster"
	"github.com/sluice-project/sluice/internal/cli/data"
	"github.com/sluice-project/sluice/internal/cli/demo"
	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/cli/group"
	"github.com/sluice-project/sluice/internal/cli/profile"
	"github.com/sluice-project/sluice/internal/cli/quota"
	"github.com/sluice-project/sluice/internal/cli/room"
	"github.com/sluice-project/sluice/internal/cli/serve"
	"github.com/sluice-project/sluice/internal/cli/token"
	"github.com/sluice-project/sluice/internal/cli/top"
	"github.com/sluice-project/sluice/internal/cli/topic"
)

// The groups of the help. Cobra's own commands join groupSetUp.
const (
	groupWork  = "work"
	groupSetUp = "set-up"
)

// Run runs the command that args name until it ends or ctx does, and returns
// the exit code.
func Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := Root()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	command, err := root.ExecuteContextC(ctx)
	return exit.Explain(ctx, sayNeeds(command, err), stderr)
}

// Root returns the command sluice with all its commands.
func Root() *cobra.Command {
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
	addGroup(root, groupWork, "Run it:", demo.Command(), bulk.Command(), topic.Command(), group.Command(), room.Command(), cluster.Command(), top.Command(), token.Command(), quota.Command(), serve.Command(), serve.Gate())
	addGroup(root, groupSetUp, "Set it up:", serve.Settings(), data.Backup(), data.Restore(), data.Doctor(), data.Debug(), profile.Command(), newVersionCommand())
	root.SetHelpCommandGroupID(groupSetUp)
	root.SetCompletionCommandGroupID(groupSetUp)
	addVersion(root)
	completeChoices(root)
	completeNames(root)
	exit.MarkUsage(root)
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
