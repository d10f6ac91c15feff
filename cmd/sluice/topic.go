package main

import "github.com/spf13/cobra"

// newTopicCommand returns "sluice topic" with its commands.
func newTopicCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "topic",
		Short: "Create topics, write records to them and read them",
		Long: `Create topics, write records to them and read them, on a server ("sluice serve")
or on any other broker that speaks the Kafka protocol.`,
		Example: `  sluice topic create orders --partitions 6 --retention 24h
  echo 'a7:{"total":12}' | sluice topic produce orders --key-separator :
  sluice topic consume orders --until-end`,
	}
	command.AddCommand(
		newTopicCreateCommand(), newTopicListCommand(), newTopicDescribeCommand(), newTopicAlterCommand(), newTopicDeleteCommand(),
		newTopicProduceCommand(), newTopicConsumeCommand(), newTopicDelayedCommand(), newTopicCancelCommand(), newTopicMigrateCommand(),
	)
	return command
}
