package group

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/sluice-project/sluice/internal/cli/brokers"
	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/cli/term"
)

// Command returns "sluice group" with its commands.
func Command() *cobra.Command {
	command := &cobra.Command{
		Use:   "group",
		Short: "Show consumer and share groups, reset their offsets, and delete them",
		Long: `Show consumer groups and share groups, reset their offsets and delete them, on a server
("sluice serve") or on any other broker that speaks the Kafka protocol. A group exists from its
first member ("sluice topic consume --group") until some time after its last.`,
		Example: `  sluice group list
  sluice group describe billing
  sluice group reset billing --topic orders --to start --dry-run`,
	}
	command.AddCommand(newListCommand(), newDescribeCommand(), newResetCommand(), newAlterCommand(), newDeleteCommand())
	return command
}

// oneGroup is for commands that take the name of a group.
var oneGroup = exit.One(`give the name of one group; "sluice group list" shows them`)

// noGroup returns the error that a group does not exist.
func noGroup(name string) error {
	return fmt.Errorf(`there is no group %q; "sluice group list" shows those there are`, name)
}

func newListCommand() *cobra.Command {
	return brokers.Command(&cobra.Command{
		Use:   "list",
		Short: "List the consumer groups",
		Example: `  sluice group list
  sluice group list --json`,
		Args: cobra.NoArgs,
	}, "print a JSON object per line", func(ctx context.Context, c *brokers.Client, _ []string) error { return listGroups(ctx, c) })
}

// listedGroup is one group, as "list" prints it with --json.
type listedGroup struct {
	Group    string `json:"group"`
	State    string `json:"state"`
	Protocol string `json:"protocol,omitempty"`
	Members  int    `json:"members"`
}

func listGroups(ctx context.Context, c *brokers.Client) error {
	var listed kadm.ListedGroups
	if err := c.OfAll(ctx, func() (err error) {
		listed, err = c.Admin.ListGroups(ctx)
		return err
	}); err != nil {
		return err
	}
	if len(listed) == 0 {
		c.Say("no groups")
		return nil
	}
	described, err := describeAll(ctx, c, listed.Groups()...)
	if err != nil {
		return err
	}
	var groups []listedGroup
	for _, group := range described.Sorted() {
		if group.Err != nil {
			return fmt.Errorf("group %q: %w", group.Group, brokers.Answered(group.Err, group.ErrMessage))
		}
		groups = append(groups, listedGroup{group.Group, group.State, group.Protocol, len(group.Members)})
	}
	type column = term.Column[listedGroup]
	return term.List(&c.Output, groups, "no groups",
		column{Header: "group", Words: true, Cell: func(g *listedGroup) string { return term.Printable(g.Group) }},
		column{Header: "state", Words: true, Cell: func(g *listedGroup) string { return g.State }},
		column{Header: "protocol", Words: true, Cell: func(g *listedGroup) string { return term.Printable(g.Protocol) }},
		column{Header: "members", Cell: func(g *listedGroup) string { return humanize.Comma(int64(g.Members)) }})
}

func newDeleteCommand() *cobra.Command {
	var topic string
	command := brokers.DeleteCommand(&cobra.Command{
		Use:   "delete GROUP...",
		Short: "Delete groups that have no members, or what a share group knows of a topic",
		Long: `Delete groups that have no members, with what they committed. With --topic, share groups
forget only what they know of the records of that topic, and begin there again.`,
		Example: `  sluice group delete billing
  sluice group delete billing shipping --json
  sluice group delete workers --topic orders`,
	}, "group", func(ctx context.Context, c *brokers.Client, name string) error {
		if topic != "" {
			return forgetShares(ctx, c, name, topic)
		}
		return deleteGroup(ctx, c, name)
	})
	command.Flags().StringVar(&topic, "topic", "", "the `topic` that share groups are to forget")
	return command
}

func deleteGroup(ctx context.Context, c *brokers.Client, name string) error {
	deleted, err := c.Admin.DeleteGroup(ctx, name)
	if err == nil {
		err = deleted.Err
	}
	switch {
	case errors.Is(err, kerr.GroupIDNotFound):
		return noGroup(name)
	case errors.Is(err, kerr.NonEmptyGroup):
		return fmt.Errorf("group %q has members: stop them first", name)
	}
	return err
}

func newDescribeCommand() *cobra.Command {
	return brokers.Command(&cobra.Command{
		Use:   "describe GROUP",
		Short: "Show a group: its members, and how far it is in each partition",
		Example: `  sluice group describe billing
  sluice group describe billing --json | jq .lag`,
		Args: oneGroup,
	}, "print JSON", func(ctx context.Context, c *brokers.Client, args []string) error {
		return describeGroup(ctx, c, args[0])
	})
}

// describedGroup is what "describe" prints with --json.
type describedGroup struct {
	Group    string `json:"group"`
	State    string `json:"state"`
	Protocol string `json:"protocol,omitempty"`
	// Lag is the sum over all partitions.
	Lag int64 `json:"lag"`
	// Settings are those that are set for a share group.
	Settings   map[string]string `json:"settings,omitempty"`
	Members    []groupMember     `json:"members"`
	Partitions []groupPartition  `json:"partitions"`
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
	// Committed is absent where the group has committed nothing.
	Committed *int64 `json:"committed,omitempty"`
	End       int64  `json:"end"`
	Lag       int64  `json:"lag"`
	Member    string `json:"member,omitempty"`
	Error     string `json:"error,omitempty"`
	client    string
}

// inspectGroup asks for everything about a group.
func inspectGroup(ctx context.Context, c *brokers.Client, name string) (*describedGroup, error) {
	var lag kadm.DescribedGroupLag
	if err := c.OfAll(ctx, func() (err error) {
		lag, err = lagOf(ctx, c, name)
		return err
	}); err != nil {
		return nil, err
	}
	if isMissing(lag.State, lag.DescribeErr) {
		return nil, noGroup(name)
	}
	if err := lag.Error(); err != nil {
		return nil, err
	}
	group := &describedGroup{Group: name, State: lag.State, Protocol: lag.Protocol, Members: []groupMember{}, Partitions: []groupPartition{}}
	if lag.ProtocolType == typeShare {
		var err error
		if group.Settings, err = settingsOf(ctx, c, name); err != nil {
			return nil, err
		}
	}
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
		partition.Error = exit.OneLine(in.Err)
	}
	return partition
}

func describeGroup(ctx context.Context, c *brokers.Client, name string) error {
	group, err := inspectGroup(ctx, c, name)
	if err != nil {
		return err
	}
	if c.JSON {
		return c.WriteJSON(group)
	}
	facts := []term.Fact{
		{"group", term.Printable(name)},
		{"state", group.State},
		{"protocol", term.Printable(group.Protocol)},
		{"members", humanize.Comma(int64(len(group.Members)))},
		{"lag", humanize.Comma(group.Lag)},
	}
	for _, setting := range slices.Sorted(maps.Keys(group.Settings)) {
		facts = append(facts, term.Fact{setting, term.Printable(group.Settings[setting])})
	}
	c.Facts(facts, false)
	if len(group.Partitions) == 0 {
		return nil
	}
	type column = term.Column[groupPartition]
	fmt.Fprintln(c.Out)
	term.TableOf(group.Partitions,
		column{Header: "topic", Words: true, Cell: func(p *groupPartition) string { return term.Printable(p.Topic) }},
		column{Header: "partition", Cell: func(p *groupPartition) string { return strconv.Itoa(int(p.Partition)) }},
		column{Header: "committed", Cell: func(p *groupPartition) string { return term.Or(p.Committed, "–", humanize.Comma) }},
		column{Header: "end", Cell: func(p *groupPartition) string { return humanize.Comma(p.End) }},
		column{Header: "lag", Cell: func(p *groupPartition) string {
			if p.Lag < 0 {
				return "–"
			}
			return humanize.Comma(p.Lag)
		}},
		column{Header: "member", Words: true, Cell: func(p *groupPartition) string { return term.Printable(p.client) }},
		column{Header: "error", Words: true, Cell: func(p *groupPartition) string { return term.Printable(p.Error) }},
	).Write(c.Out, c.Out.Columns())
	return nil
}
