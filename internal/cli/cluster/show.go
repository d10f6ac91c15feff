package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/cli/remote"
	"github.com/sluice-project/sluice/internal/cli/term"
	"github.com/sluice-project/sluice/topic/api"
)

func newShowCommand() *cobra.Command {
	return remote.Command(&cobra.Command{
		Use:   "show",
		Short: "Show the nodes: where they are, what each leads and keeps",
		Long: `Show the nodes: where they are, how many partitions each leads and keeps a replica of,
and how many of its replicas are behind: they lack records, or cannot be reached. Then
the partitions whose replicas are being moved.`,
		Example: `  sluice cluster show
  sluice cluster show --server http://node2.example.com:8080 --json | jq '.nodes[] | select(.alive | not)'`,
		Args: cobra.NoArgs,
	}, func(ctx context.Context, c *remote.Client, _ []string) error { return showCluster(ctx, c) })
}

// shownCluster is what "show" prints with --json.
type shownCluster struct {
	api.Cluster
	Reassignments []api.Reassignment `json:"reassignments"`
}

func showCluster(ctx context.Context, c *remote.Client) error {
	var shown shownCluster
	var moves api.ReassignmentList
	if err := c.Do(ctx, http.MethodGet, "/v1/cluster", nil, &shown.Cluster); err != nil {
		return err
	}
	if err := c.Do(ctx, http.MethodGet, "/v1/cluster/reassignments", nil, &moves); err != nil {
		return err
	}
	shown.Reassignments = moves.Reassignments
	if c.JSON {
		return c.WriteJSON(shown)
	}
	type column = term.Column[api.Node]
	term.TableOf(shown.Nodes,
		column{Header: "node", Cell: func(n *api.Node) string { return strconv.Itoa(int(n.ID)) }},
		column{Header: "state", Words: true, Cell: nodeState},
		column{Header: "rack", Words: true, Cell: func(n *api.Node) string { return term.Printable(n.Rack) }},
		column{Header: "kafka", Words: true, Cell: func(n *api.Node) string {
			return term.Printable(n.KafkaAddresses())
		}},
		column{Header: "leads", Cell: func(n *api.Node) string { return humanize.Comma(int64(n.Leads)) }},
		column{Header: "replicas", Cell: func(n *api.Node) string { return humanize.Comma(int64(n.Replicas)) }},
		column{Header: "behind", Cell: func(n *api.Node) string { return humanize.Comma(int64(n.Behind)) }},
	).Write(c.Out, c.Out.Columns())
	fmt.Fprintf(c.Out, "\n%s", term.Counted(int64(shown.Partitions), "partition"))
	if shown.Leaderless > 0 {
		fmt.Fprintf(c.Out, ", %d without a leader", shown.Leaderless)
	}
	if shown.Moving > 0 {
		fmt.Fprintf(c.Out, ", %d moving", shown.Moving)
	}
	fmt.Fprintln(c.Out)
	if len(shown.Reassignments) > 0 {
		fmt.Fprintln(c.Out)
		reassignmentGrid(shown.Reassignments).Write(c.Out, c.Out.Columns())
	}
	return nil
}

// nodeState describes a node's state in a word or two.
func nodeState(n *api.Node) string {
	switch {
	case n.Alive && n.Draining:
		return "draining"
	case n.Draining:
		return "dead, draining"
	case n.Alive:
		return "alive"
	}
	return "dead"
}

// mostReassignments is how many reassignments are shown to people.
const mostReassignments = 50

func reassignmentGrid(moves []api.Reassignment) *term.Grid {
	type column = term.Column[api.Reassignment]
	g := term.TableOf(moves[:min(mostReassignments, len(moves))],
		column{Header: "moving", Words: true, Cell: func(m *api.Reassignment) string { return term.Printable(m.Topic) }},
		column{Header: "partition", Cell: func(m *api.Reassignment) string { return strconv.Itoa(int(m.Partition)) }},
		column{Header: "now on", Words: true, Cell: func(m *api.Reassignment) string { return term.Numbers(m.Replicas) }},
		column{Header: "to be on", Words: true, Cell: func(m *api.Reassignment) string { return term.Numbers(m.Target) }})
	if more := len(moves) - mostReassignments; more > 0 {
		g.Rows = append(g.Rows, []string{fmt.Sprintf("and %d more", more), "", "", ""})
	}
	return g
}

// drainLook is the interval at which the progress of a drain is polled.
const drainLook = time.Second

func newDrainCommand() *cobra.Command {
	var once bool
	var timeout time.Duration
	command := remote.Command(&cobra.Command{
		Use:   "drain NODE",
		Short: "Move all replicas of a node to others",
		Long: `Move all replicas of a node to others, and give it no new ones, until it is resumed
or removed. The command waits until nothing is left, and says how far it is; the moves
go on without it. It is refused if the other nodes are too few for the replicas that
topics have.`,
		Example: `  sluice cluster drain 4
  sluice cluster drain 4 --no-wait`,
		Args: oneNode,
	}, func(ctx context.Context, c *remote.Client, args []string) error {
		if timeout <= 0 {
			return exit.Usage("--timeout: %v: want more than 0s", timeout)
		}
		if err := c.Do(ctx, http.MethodPost, nodePath(args[0])+"/drain", nil, nil); err != nil {
			return err
		}
		if once {
			return c.Tell(nodeResult{args[0], "draining"}, `node %s is being drained; "sluice cluster show" shows how far it is`, args[0])
		}
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return awaitDrained(ctx, c, args[0])
	})
	command.Flags().BoolVar(&once, "no-wait", false, "do not wait until nothing is left")
	command.Flags().DurationVar(&timeout, "timeout", 24*time.Hour, "wait at most so long")
	return command
}

// awaitDrained waits until a node has no replicas, and prints how many are left when that changes.
func awaitDrained(ctx context.Context, c *remote.Client, node string) error {
	look := time.NewTicker(drainLook)
	defer look.Stop()
	for told, empty := -1, 0; ; {
		var cluster api.Cluster
		if err := c.Do(ctx, http.MethodGet, "/v1/cluster", nil, &cluster); err != nil {
			return err
		}
		at := slices.IndexFunc(cluster.Nodes, func(n api.Node) bool { return strconv.Itoa(int(n.ID)) == node })
		if at < 0 || !cluster.Nodes[at].Draining {
			return fmt.Errorf("node %s is not drained any more: it was resumed or removed", node)
		}
		switch left := cluster.Nodes[at].Replicas; {
		case left == 0 && empty > 0: // twice, since an answer may be a second old
			return c.Tell(nodeResult{node, "drained"}, `node %s keeps nothing: stop it, then "sluice cluster remove %s"`, node, node)
		case left == 0:
			empty++
		case left != told:
			c.Say("node %s: %s left", node, term.Counted(int64(left), "replica"))
			told = left
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return fmt.Errorf("node %s still keeps %s: it goes on without this command", node, term.Counted(int64(cluster.Nodes[at].Replicas), "replica"))
			}
			return ctx.Err()
		}
	}
}
