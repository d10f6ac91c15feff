package main

import "github.com/spf13/cobra"

// newBulkCommand returns "sluice bulk" with its commands.
func newBulkCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "bulk",
		Short: "Run bulk actions: here, or on a server",
		Long: `Run bulk actions: large sets of jobs of many tenants, scheduled so that no
tenant can starve another, at rates that their targets can bear, and counted
exactly.

"sluice bulk run" needs no server: it runs a file in this process and ends with
the result. "sluice bulk migrate" moves what a stopped server has into Redis. The
other commands speak with a server ("sluice serve").`,
		Example: `  sluice bulk run examples/zipcodes.csv --tenant-column state --type echo
  sluice bulk submit examples/zipcodes.csv --tenant acme --type echo --watch`,
	}
	command.AddCommand(newBulkRunCommand(openRunner, bulkInput))
	command.AddCommand(newServerCommands(connectServer)...)
	command.AddCommand(newMigrateCommand())
	return command
}
