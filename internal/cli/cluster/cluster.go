package cluster

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/cli/remote"
	"github.com/sluice-project/sluice/internal/cli/term"
	"github.com/sluice-project/sluice/topic/api"
)

// Command returns "sluice cluster" with its commands.
func Command() *cobra.Command {
	command := &cobra.Command{
		Use:   "cluster",
		Short: "Show the nodes of a cluster, and add and remove nodes",
		Long: `Show the nodes of a cluster ("sluice serve --cluster"), and add and remove nodes. Any
node answers.

A new node has no replicas: "balance" moves some to it. Before a node is removed for
good, "drain" moves its replicas to others; then stop it and remove it. A node that
returns, as after a restart or an upgrade, needs none of this.`,
		Example: `  sluice cluster show
  sluice cluster balance
  sluice cluster drain 4
  sluice cluster remove 4`,
	}
	command.AddCommand(newShowCommand(), newDrainCommand(), newResumeCommand(),
		newRemoveCommand(), newBalanceCommand(), newLeadersCommand())
	return command
}

func newResumeCommand() *cobra.Command {
	return nodeCommand(&cobra.Command{
		Use:     "resume NODE",
		Short:   "Let a node that was drained have replicas again",
		Long:    `Let a node that was drained have replicas again. It gets those of new topics; "sluice cluster balance" moves others to it.`,
		Example: `  sluice cluster resume 4`,
	}, http.MethodPost, "/resume", "resumed", "node %s may have replicas again")
}

func newRemoveCommand() *cobra.Command {
	return nodeCommand(&cobra.Command{
		Use:   "remove NODE",
		Short: "Remove a stopped node from the cluster for good",
		Long: `Remove a stopped node from the cluster for good. This is refused while the node is
alive or keeps replicas: drain it first. Its number can then be used by a node with an
empty data directory.`,
		Example: `  sluice cluster drain 4
  sluice cluster remove 4`,
	}, http.MethodDelete, "", "removed", "node %s does not belong to the cluster any more")
}

// nodeCommand gives a command that makes one request about a node, and says the result.
func nodeCommand(command *cobra.Command, method, path, result, format string) *cobra.Command {
	command.Args = oneNode
	return remote.Command(command, func(ctx context.Context, c *remote.Client, args []string) error {
		if err := c.Do(ctx, method, nodePath(args[0])+path, nil, nil); err != nil {
			return err
		}
		return c.Tell(nodeResult{args[0], result}, format, args[0])
	})
}

func newBalanceCommand() *cobra.Command {
	return remote.Command(&cobra.Command{
		Use:   "balance",
		Short: "Spread replicas evenly over the nodes, as after one was added",
		Long: `Spread replicas evenly over the nodes, as after one was added. They are moved in the
background: a new replica has all records before an old one is given up. Run it again
when the moves have ended, until nothing moves any more.`,
		Example: `  sluice cluster balance
  sluice cluster show`,
		Args: cobra.NoArgs,
	}, func(ctx context.Context, c *remote.Client, _ []string) error {
		var balanced api.Moved
		if err := c.Do(ctx, http.MethodPost, "/v1/cluster/balance", nil, &balanced); err != nil {
			return err
		}
		if balanced.Moves == 0 {
			return c.Tell(balanced, "the replicas are spread evenly")
		}
		return c.Tell(balanced, `%s to be moved; "sluice cluster show" shows how far they are`, term.Counted(int64(balanced.Moves), "partition"))
	})
}

func newLeadersCommand() *cobra.Command {
	var topic string
	command := remote.Command(&cobra.Command{
		Use:   "leaders",
		Short: "Let the preferred replicas lead their partitions, where they are current",
		Long: `Let the preferred replicas lead their partitions, where they are current. The server does
so by itself too, every topic.leader_balance_interval.`,
		Example: `  sluice cluster leaders
  sluice cluster leaders --topic orders`,
		Args: cobra.NoArgs,
	}, func(ctx context.Context, c *remote.Client, _ []string) error {
		path := "/v1/cluster/leaders"
		if topic != "" {
			path += "?topic=" + url.QueryEscape(topic)
		}
		var elected api.Elected
		if err := c.Do(ctx, http.MethodPost, path, nil, &elected); err != nil {
			return err
		}
		for _, refused := range elected.Refused {
			c.Say("%s, partition %d: %s", term.Printable(refused.Topic), refused.Partition, refused.Detail)
		}
		return c.Tell(elected, "%s got their preferred leader", term.Counted(int64(elected.Elected), "partition"))
	})
	command.Flags().StringVar(&topic, "topic", "", "only those of this topic")
	return command
}

// nodeResult is what commands about one node print with --json.
type nodeResult struct {
	Node   string `json:"node"`
	Result string `json:"result"`
}

func nodePath(node string) string { return "/v1/cluster/nodes/" + node }

// oneNode is for commands that take the number of a node.
func oneNode(_ *cobra.Command, args []string) error {
	if err := exit.One(`give the number of one node; "sluice cluster show" shows them`)(nil, args); err != nil {
		return err
	}
	if n, err := strconv.ParseInt(args[0], 10, 32); err != nil || n < 1 || strconv.FormatInt(n, 10) != args[0] {
		return exit.Usage(`%q: want the number of a node, from 1; "sluice cluster show" shows them`, args[0])
	}
	return nil
}
