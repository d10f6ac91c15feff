package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/topic/api"
)

func newClusterShowCommand() *cobra.Command {
	var f remoteFlags
	command := &cobra.Command{
		Use:   "show",
		Short: "Show the nodes: where they are, what each leads and keeps",
		Long: `Show the nodes: where they are, how many partitions each leads and keeps a replica of,
and how many of its replicas are behind: they lack records, or cannot be reached. Then
the partitions whose replicas are being moved.`,
		Example: `  sluice cluster show
  sluice cluster show --server http://node2.example.com:8080 --json | jq '.nodes[] | select(.alive | not)'`,
		Args: cobra.NoArgs,
		RunE: f.withTopicHTTP(func(ctx context.Context, c *topicHTTP, _ []string) error { return c.showCluster(ctx) }),
	}
	f.add(command)
	return command
}

// shownCluster is what "show" prints with --json.
type shownCluster struct {
	api.Cluster
	Reassignments []api.Reassignment `json:"reassignments"`
}

func (c *topicHTTP) showCluster(ctx context.Context) error {
	var shown shownCluster
	var moves api.ReassignmentList
	if err := c.do(ctx, http.MethodGet, "/v1/cluster", nil, &shown.Cluster); err != nil {
		return err
	}
	if err := c.do(ctx, http.MethodGet, "/v1/cluster/reassignments", nil, &moves); err != nil {
		return err
	}
	shown.Reassignments = moves.Reassignments
	if c.json {
		return json.NewEncoder(c.out).Encode(shown)
	}
	g := grid{
		Header: []string{"node", "state", "rack", "kafka", "leads", "replicas", "behind"},
		Left:   map[int]bool{1: true, 2: true, 3: true},
	}
	for i := range shown.Nodes {
		n := &shown.Nodes[i]
		g.Rows = append(g.Rows, []string{
			strconv.Itoa(int(n.ID)), nodeState(n), printable(n.Rack), printable(n.Kafka),
			humanize.Comma(int64(n.Leads)), humanize.Comma(int64(n.Replicas)), humanize.Comma(int64(n.Behind)),
		})
	}
	g.Write(c.out, c.out.Columns())
	fmt.Fprintf(c.out, "\n%s", counted(int64(shown.Partitions), "partition"))
	if shown.Leaderless > 0 {
		fmt.Fprintf(c.out, ", %d without a leader", shown.Leaderless)
	}
	if shown.Moving > 0 {
		fmt.Fprintf(c.out, ", %d moving", shown.Moving)
	}
	fmt.Fprintln(c.out)
	if len(shown.Reassignments) > 0 {
		fmt.Fprintln(c.out)
		moveGrid(shown.Reassignments).Write(c.out, c.out.Columns())
	}
	return nil
}

// nodeState is a node's state in a word or two.
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

// mostMoves is how many moves are shown to people.
const mostMoves = 50

func moveGrid(moves []api.Reassignment) *grid {
	g := &grid{Header: []string{"moving", "partition", "now on", "to be on"}, Left: map[int]bool{0: true, 2: true, 3: true}}
	for _, m := range moves[:min(mostMoves, len(moves))] {
		g.Rows = append(g.Rows, []string{printable(m.Topic), strconv.Itoa(int(m.Partition)), numbers(m.Replicas), numbers(m.Target)})
	}
	if more := len(moves) - mostMoves; more > 0 {
		g.Rows = append(g.Rows, []string{fmt.Sprintf("and %d more", more), "", "", ""})
	}
	return g
}

// drainLook is how often the progress of a drain is asked for.
const drainLook = time.Second

func newClusterDrainCommand() *cobra.Command {
	var f remoteFlags
	var once bool
	var timeout time.Duration
	command := &cobra.Command{
		Use:   "drain NODE",
		Short: "Move all replicas of a node to others",
		Long: `Move all replicas of a node to others, and give it no new ones, until it is resumed
or removed. The command waits until nothing is left, and says how far it is; the moves
go on without it. It is refused if the other nodes are too few for the replicas that
topics have.`,
		Example: `  sluice cluster drain 4
  sluice cluster drain 4 --no-wait`,
		Args: oneNode,
		RunE: f.withTopicHTTP(func(ctx context.Context, c *topicHTTP, args []string) error {
			if timeout <= 0 {
				return wrongUsage("--timeout: %v: want more than 0s", timeout)
			}
			if err := c.do(ctx, http.MethodPost, nodePath(args[0])+"/drain", nil, nil); err != nil {
				return err
			}
			if once {
				return c.tell(nodeResult{args[0], "draining"}, `node %s is being drained; "sluice cluster show" shows how far it is`, args[0])
			}
			ctx, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			return c.awaitDrained(ctx, args[0])
		}),
	}
	command.Flags().BoolVar(&once, "no-wait", false, "do not wait until nothing is left")
	command.Flags().DurationVar(&timeout, "timeout", 24*time.Hour, "wait at most so long")
	f.add(command)
	return command
}

// awaitDrained waits until a node keeps nothing, and tells when what is left
// changes.
func (c *topicHTTP) awaitDrained(ctx context.Context, node string) error {
	look := time.NewTicker(drainLook)
	defer look.Stop()
	for told, empty := -1, 0; ; {
		var cluster api.Cluster
		if err := c.do(ctx, http.MethodGet, "/v1/cluster", nil, &cluster); err != nil {
			return err
		}
		at := slices.IndexFunc(cluster.Nodes, func(n api.Node) bool { return strconv.Itoa(int(n.ID)) == node })
		if at < 0 || !cluster.Nodes[at].Draining {
			return fmt.Errorf("node %s is not drained any more: it was resumed or removed", node)
		}
		switch left := cluster.Nodes[at].Replicas; {
		case left == 0 && empty > 0: // twice, as what is known may be a second old
			return c.tell(nodeResult{node, "drained"}, `node %s keeps nothing: stop it, then "sluice cluster remove %s"`, node, node)
		case left == 0:
			empty++
		case left != told && !c.json:
			fmt.Fprintf(c.err, "node %s: %s left\n", node, counted(int64(left), "replica"))
			told = left
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return fmt.Errorf("node %s still keeps %s: it goes on without this command", node, counted(int64(cluster.Nodes[at].Replicas), "replica"))
			}
			return ctx.Err()
		}
	}
}
