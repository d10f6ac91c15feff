package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/topic/api"
)

// newClusterCommand returns "sluice cluster" with its commands.
func newClusterCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "cluster",
		Short: "Look at the nodes of a cluster, and take nodes in and out",
		Long: `Look at the nodes of a cluster ("sluice serve --cluster"), and take nodes in and
out. Any node answers.

A node that is new has nothing: "balance" moves replicas to it. Before a node goes for
good, "drain" moves what it has to others; then it is stopped, and removed. A node that
comes back, as after a restart or an upgrade, needs nothing of this.`,
		Example: `  sluice cluster show
  sluice cluster balance
  sluice cluster drain 4
  sluice cluster remove 4`,
	}
	command.AddCommand(newClusterShowCommand(), newClusterDrainCommand(), newClusterResumeCommand(),
		newClusterRemoveCommand(), newClusterBalanceCommand(), newClusterLeadersCommand())
	return command
}

func newClusterResumeCommand() *cobra.Command {
	var f remoteFlags
	command := &cobra.Command{
		Use:     "resume NODE",
		Short:   "Let a node that was drained have replicas again",
		Long:    `Let a node that was drained have replicas again. It gets those of new topics; "sluice cluster balance" moves others to it.`,
		Example: `  sluice cluster resume 4`,
		Args:    oneNode,
		RunE: f.withTopicHTTP(func(ctx context.Context, c *topicHTTP, args []string) error {
			if err := c.do(ctx, http.MethodPost, nodePath(args[0])+"/resume", nil, nil); err != nil {
				return err
			}
			return c.tell(nodeResult{args[0], "resumed"}, "node %s may have replicas again", args[0])
		}),
	}
	f.add(command)
	return command
}

func newClusterRemoveCommand() *cobra.Command {
	var f remoteFlags
	command := &cobra.Command{
		Use:   "remove NODE",
		Short: "Take a node that has stopped out of the cluster, for good",
		Long: `Take a node that has stopped out of the cluster, for good. It is refused while the
node is alive, and while it keeps replicas: drain it first. Its number is free after
that, for a node with an empty data directory.`,
		Example: `  sluice cluster drain 4
  sluice cluster remove 4`,
		Args: oneNode,
		RunE: f.withTopicHTTP(func(ctx context.Context, c *topicHTTP, args []string) error {
			if err := c.do(ctx, http.MethodDelete, nodePath(args[0]), nil, nil); err != nil {
				return err
			}
			return c.tell(nodeResult{args[0], "removed"}, "node %s does not belong to the cluster any more", args[0])
		}),
	}
	f.add(command)
	return command
}

func newClusterBalanceCommand() *cobra.Command {
	var f remoteFlags
	command := &cobra.Command{
		Use:   "balance",
		Short: "Spread replicas evenly over the nodes, as after one was added",
		Long: `Spread replicas evenly over the nodes, as after one was added. They are moved in the
background: a new replica has all records before an old one is given up. Run it again
when the moves have ended, until nothing moves any more.`,
		Example: `  sluice cluster balance
  sluice cluster show`,
		Args: cobra.NoArgs,
		RunE: f.withTopicHTTP(func(ctx context.Context, c *topicHTTP, _ []string) error {
			var balanced api.Moved
			if err := c.do(ctx, http.MethodPost, "/v1/cluster/balance", nil, &balanced); err != nil {
				return err
			}
			if balanced.Moves == 0 {
				return c.tell(balanced, "the replicas are spread evenly")
			}
			return c.tell(balanced, `%s to be moved; "sluice cluster show" shows how far they are`, counted(int64(balanced.Moves), "partition"))
		}),
	}
	f.add(command)
	return command
}

func newClusterLeadersCommand() *cobra.Command {
	var f remoteFlags
	var topic string
	command := &cobra.Command{
		Use:   "leaders",
		Short: "Let the preferred replicas lead their partitions, where they are current",
		Long: `Let the preferred replicas lead their partitions, where they are current. The server does
so by itself too, every topic.leader_balance_interval.`,
		Example: `  sluice cluster leaders
  sluice cluster leaders --topic orders`,
		Args: cobra.NoArgs,
		RunE: f.withTopicHTTP(func(ctx context.Context, c *topicHTTP, _ []string) error {
			path := "/v1/cluster/leaders"
			if topic != "" {
				path += "?topic=" + url.QueryEscape(topic)
			}
			var elected api.Elected
			if err := c.do(ctx, http.MethodPost, path, nil, &elected); err != nil {
				return err
			}
			for _, refused := range elected.Refused {
				if !c.json {
					fmt.Fprintf(c.err, "%s, partition %d: %s\n", printable(refused.Topic), refused.Partition, refused.Detail)
				}
			}
			return c.tell(elected, "%s got their preferred leader", counted(int64(elected.Elected), "partition"))
		}),
	}
	command.Flags().StringVar(&topic, "topic", "", "only those of this topic")
	f.add(command)
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
	if len(args) != 1 {
		return wrongUsage(`give the number of one node; "sluice cluster show" shows them`)
	}
	if n, err := strconv.ParseInt(args[0], 10, 32); err != nil || n < 1 || strconv.FormatInt(n, 10) != args[0] {
		return wrongUsage(`%q: want the number of a node, from 1; "sluice cluster show" shows them`, args[0])
	}
	return nil
}
