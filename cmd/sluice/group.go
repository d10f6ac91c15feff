package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// newGroupCommand returns "sluice group" with its commands.
func newGroupCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "group",
		Short: "Look after consumer groups: how far they are, and where they go on",
		Long: `Look after consumer groups, on a server ("sluice serve") or on any other broker
that speaks the Kafka protocol. A group begins with its first member
("sluice topic consume --group"), and is forgotten some time after its last.`,
		Example: `  sluice group list
  sluice group describe billing
  sluice group reset billing --topic orders --to start --dry-run`,
	}
	command.AddCommand(newGroupListCommand(), newGroupDescribeCommand(), newGroupResetCommand(), newGroupDeleteCommand())
	return command
}

// oneGroup is for commands that take the name of a group.
func oneGroup(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return wrongUsage(`give the name of one group; "sluice group list" shows them`)
	}
	return nil
}

// noGroup says that a group does not exist.
func noGroup(name string) error {
	return fmt.Errorf(`there is no group %q; "sluice group list" shows those there are`, name)
}

// The states of groups that are told apart.
const (
	groupEmpty = "Empty"
	groupDead  = "Dead"
)

func newGroupListCommand() *cobra.Command {
	var f brokerFlags
	command := &cobra.Command{
		Use:   "list",
		Short: "List the consumer groups",
		Example: `  sluice group list
  sluice group list --json`,
		Args: cobra.NoArgs,
		RunE: f.with(func(ctx context.Context, c *cluster, _ []string) error { return c.listGroups(ctx) }),
	}
	f.add(command, "print a JSON object per line")
	return command
}

// listedGroup is one group, as "list" prints it with --json.
type listedGroup struct {
	Group    string `json:"group"`
	State    string `json:"state"`
	Protocol string `json:"protocol,omitempty"`
	Members  int    `json:"members"`
}

func (c *cluster) listGroups(ctx context.Context) error {
	var listed kadm.ListedGroups
	if err := c.ofAll(ctx, func() (err error) {
		listed, err = c.admin.ListGroups(ctx)
		return err
	}); err != nil {
		return err
	}
	if len(listed) == 0 {
		c.say("no groups")
		return nil
	}
	described, err := c.admin.DescribeGroups(ctx, listed.Groups()...)
	if err != nil {
		return err
	}
	g := grid{Header: []string{"group", "state", "protocol", "members"}, Left: map[int]bool{0: true, 1: true, 2: true}}
	for _, group := range described.Sorted() {
		if group.Err != nil {
			return fmt.Errorf("group %q: %w", group.Group, answered(group.Err, group.ErrMessage))
		}
		row := listedGroup{group.Group, group.State, group.Protocol, len(group.Members)}
		if c.json {
			if err := c.writeJSON(row); err != nil {
				return err
			}
			continue
		}
		g.Rows = append(g.Rows, []string{printable(row.Group), row.State, printable(row.Protocol), humanize.Comma(int64(row.Members))})
	}
	if !c.json {
		g.Write(c.out, c.out.Columns())
	}
	return nil
}

func newGroupDeleteCommand() *cobra.Command {
	var f brokerFlags
	command := &cobra.Command{
		Use:   "delete GROUP...",
		Short: "Delete consumer groups that have no members, with what they committed",
		Example: `  sluice group delete billing
  sluice group delete billing shipping --json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return wrongUsage(`give the names of groups; "sluice group list" shows them`)
			}
			return nil
		},
		RunE: f.with(func(ctx context.Context, c *cluster, args []string) error {
			for _, name := range args {
				if err := c.deleteGroup(ctx, name); err != nil {
					return err
				}
			}
			return nil
		}),
	}
	f.add(command, "print JSON")
	return command
}

func (c *cluster) deleteGroup(ctx context.Context, name string) error {
	deleted, err := c.admin.DeleteGroup(ctx, name)
	if err == nil {
		err = deleted.Err
	}
	switch {
	case errors.Is(err, kerr.GroupIDNotFound):
		return noGroup(name)
	case errors.Is(err, kerr.NonEmptyGroup):
		return fmt.Errorf("group %q has members: stop them first", name)
	case err != nil:
		return err
	}
	if c.json {
		return c.writeJSON(struct {
			Group   string `json:"group"`
			Deleted bool   `json:"deleted"`
		}{name, true})
	}
	fmt.Fprintf(c.out, "%s deleted\n", name)
	return nil
}

func newGroupDescribeCommand() *cobra.Command {
	var f brokerFlags
	command := &cobra.Command{
		Use:   "describe GROUP",
		Short: "Show a group: its members, and how far it is in each partition",
		Example: `  sluice group describe billing
  sluice group describe billing --json | jq .lag`,
		Args: oneGroup,
		RunE: f.with(func(ctx context.Context, c *cluster, args []string) error { return c.describeGroup(ctx, args[0]) }),
	}
	f.add(command, "print JSON")
	return command
}

// describedGroup is what "describe" prints with --json.
type describedGroup struct {
	Group    string `json:"group"`
	State    string `json:"state"`
	Protocol string `json:"protocol,omitempty"`
	// Lag is that of all partitions.
	Lag        int64            `json:"lag"`
	Members    []groupMember    `json:"members"`
	Partitions []groupPartition `json:"partitions"`
}

type groupMember struct {
	ID       string  `json:"id"`
	Instance *string `json:"instance,omitempty"`
	Client   string  `json:"client"`
	Host     string  `json:"host"`
}

type groupPartition struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	// Committed is missing where the group has committed nothing.
	Committed *int64 `json:"committed,omitempty"`
	End       int64  `json:"end"`
	Lag       int64  `json:"lag"`
	Member    string `json:"member,omitempty"`
	Error     string `json:"error,omitempty"`
	client    string
}

// inspectGroup asks for all that is known of a group.
func (c *cluster) inspectGroup(ctx context.Context, name string) (*describedGroup, error) {
	var lag kadm.DescribedGroupLag
	if err := c.ofAll(ctx, func() error {
		all, err := c.admin.Lag(ctx, name)
		lag = all[name]
		return err
	}); err != nil {
		return nil, err
	}
	if errors.Is(lag.DescribeErr, kerr.GroupIDNotFound) || lag.DescribeErr == nil && lag.State == groupDead {
		return nil, noGroup(name)
	}
	if err := lag.Error(); err != nil {
		return nil, err
	}
	group := &describedGroup{Group: name, State: lag.State, Protocol: lag.Protocol, Members: []groupMember{}, Partitions: []groupPartition{}}
	for i := range lag.Members {
		member := &lag.Members[i]
		group.Members = append(group.Members, groupMember{member.MemberID, member.InstanceID, member.ClientID, member.ClientHost})
	}
	for _, in := range lag.Lag.Sorted() {
		partition := partitionOf(in)
		group.Lag += max(partition.Lag, 0)
		group.Partitions = append(group.Partitions, partition)
	}
	return group, nil
}

func partitionOf(in kadm.GroupMemberLag) groupPartition {
	partition := groupPartition{Topic: in.Topic, Partition: in.Partition, End: in.End.Offset, Lag: in.Lag}
	if in.Commit.At >= 0 {
		partition.Committed = &in.Commit.At
	}
	if in.Member != nil {
		partition.Member, partition.client = in.Member.MemberID, in.Member.ClientID+" "+strings.TrimPrefix(in.Member.ClientHost, "/")
	}
	if in.Err != nil {
		partition.Error = oneLine(in.Err)
	}
	return partition
}

func (c *cluster) describeGroup(ctx context.Context, name string) error {
	group, err := c.inspectGroup(ctx, name)
	if err != nil {
		return err
	}
	if c.json {
		return c.writeJSON(group)
	}
	facts := [][2]string{{"group", printable(name)}, {"state", group.State}}
	if group.Protocol != "" {
		facts = append(facts, [2]string{"protocol", printable(group.Protocol)})
	}
	facts = append(facts, [2]string{"members", humanize.Comma(int64(len(group.Members)))}, [2]string{"lag", humanize.Comma(group.Lag)})
	writeFacts(c.out, facts)
	if len(group.Partitions) == 0 {
		return nil
	}
	g := grid{Header: []string{"topic", "partition", "committed", "end", "lag", "member", "error"}, Left: map[int]bool{0: true, 5: true, 6: true}}
	for _, p := range group.Partitions {
		committed, lag := "–", "–"
		if p.Committed != nil {
			committed = humanize.Comma(*p.Committed)
		}
		if p.Lag >= 0 {
			lag = humanize.Comma(p.Lag)
		}
		g.Rows = append(g.Rows, []string{
			printable(p.Topic), strconv.Itoa(int(p.Partition)), committed, humanize.Comma(p.End), lag, printable(p.client), printable(p.Error),
		})
	}
	fmt.Fprintln(c.out)
	g.Write(c.out, c.out.Columns())
	return nil
}
