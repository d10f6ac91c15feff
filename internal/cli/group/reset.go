package group

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/sluice-project/sluice/internal/cli/brokers"
	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/cli/term"
)

// groupResetFlags are those of "group reset".
type groupResetFlags struct {
	brokers.Flags
	topic, to string
	by        int64
	dryRun    bool
}

func newResetCommand() *cobra.Command {
	var f groupResetFlags
	command := &cobra.Command{
		Use:   "reset GROUP --topic TOPIC (--to PLACE | --by NUMBER)",
		Short: "Move a group without members to another place in a topic",
		Long: `Move a group to another place in a topic: --to start, end, an offset, a time such
as 2026-11-28T08:00:00Z, or a duration such as 10m for that long ago; or --by a number
of offsets, back where it is below 0. No place is outside of what the topic has.

A group that has members would not take notice: stop them first.`,
		Example: `  sluice group reset billing --topic orders --to start --dry-run
  sluice group reset billing --topic orders --to 2026-11-28T08:00:00Z
  sluice group reset billing --topic orders --by -100`,
		Args: oneGroup,
	}
	command.RunE = func(command *cobra.Command, args []string) error {
		move, err := f.move(command)
		if err != nil {
			return err
		}
		return f.With(func(ctx context.Context, c *brokers.Client, args []string) error {
			return resetGroup(ctx, c, args[0], f.topic, move, f.dryRun)
		})(command, args)
	}
	flags := command.Flags()
	flags.StringVar(&f.topic, "topic", "", "the `topic` (required)")
	flags.StringVar(&f.to, "to", "", "the `place`: start, end, an offset, a time or how long ago")
	flags.Int64Var(&f.by, "by", 0, "the `number` of offsets to go on, or back")
	flags.BoolVar(&f.dryRun, "dry-run", false, "show what would be done")
	f.Flags.Add(command, "print a JSON object per line")
	return command
}

// groupMove is the wanted position of a group.
type groupMove struct {
	to brokers.Place
	// by is the distance of a relative position.
	by       int64
	relative bool
}

func (f *groupResetFlags) move(command *cobra.Command) (groupMove, error) {
	to, by := command.Flags().Changed("to"), command.Flags().Changed("by")
	switch {
	case f.topic == "":
		return groupMove{}, exit.Usage("say in which topic: --topic TOPIC")
	case to == by:
		return groupMove{}, exit.Usage("say where to: either --to PLACE or --by NUMBER")
	case by && f.by == 0:
		return groupMove{}, exit.Usage("--by: 0: want how many offsets to go on, or back where it is below 0")
	case by:
		return groupMove{by: f.by, relative: true}, nil
	}
	at, err := brokers.ParsePlace(f.to, time.Now())
	if err != nil {
		return groupMove{}, exit.Usage("--to: %w", err)
	}
	return groupMove{to: at}, nil
}

// movedPartition is one partition, as "reset" prints it with --json.
type movedPartition struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	// Old is absent where the group had committed nothing.
	Old    *int64 `json:"old,omitempty"`
	New    int64  `json:"new"`
	DryRun bool   `json:"dry_run,omitempty"`
}

func resetGroup(ctx context.Context, c *brokers.Client, group, name string, move groupMove, dryRun bool) error {
	if _, err := c.Topic(ctx, name); err != nil {
		return err
	}
	shared, err := checkInactive(ctx, c, group)
	if err != nil {
		return err
	}
	moved, err := planReset(ctx, c, group, name, move, shared, dryRun)
	if err != nil {
		return err
	}
	if !dryRun {
		offsets := kadm.Offsets{}
		for _, p := range moved {
			offsets.AddOffset(name, p.Partition, p.New, -1)
		}
		if shared {
			if err := resetShares(ctx, c, group, offsets); err != nil {
				return err
			}
			return reportReset(c, group, moved, dryRun)
		}
		if err := c.Admin.CommitAllOffsets(ctx, group, offsets); err != nil {
			if errors.Is(err, kerr.UnknownMemberID) || errors.Is(err, kerr.RebalanceInProgress) {
				return fmt.Errorf("group %q has a member now: stop it first", group)
			}
			return err
		}
	}
	return reportReset(c, group, moved, dryRun)
}

// checkInactive returns an error if the group has members, and reports whether it is a share group. For a group
// that does not exist, reset sets the offset to begin at.
func checkInactive(ctx context.Context, c *brokers.Client, group string) (shared bool, err error) {
	described, err := describeAll(ctx, c, group)
	if err != nil {
		return false, err
	}
	found, err := described.On(group, nil)
	switch {
	case err != nil:
		return false, err
	case errors.Is(found.Err, kerr.GroupIDNotFound):
		return false, nil
	case found.Err != nil:
		return false, brokers.Answered(found.Err, found.ErrMessage)
	case found.State != brokers.GroupEmpty && found.State != brokers.GroupDead:
		// They would not notice the reset.
		return false, fmt.Errorf("group %q is %s, with %s: stop them first, since they would go on where they are",
			group, found.State, term.Counted(int64(len(found.Members)), "member"))
	}
	return found.ProtocolType == typeShare, nil
}

// planReset returns the group's present offsets and the new ones.
func planReset(ctx context.Context, c *brokers.Client, group, name string, move groupMove, shared, dryRun bool) ([]movedPartition, error) {
	extents, err := c.Extents(ctx, name)
	if err != nil {
		return nil, err
	}
	offsets, err := c.OffsetsOf(ctx, name, move.to, extents)
	if err != nil {
		return nil, err
	}
	committed, err := brokers.Committed(ctx, c, group, name, extents)
	if err == nil && shared {
		var starts kadm.OffsetResponses
		if starts, err = startsOf(ctx, c, group); err == nil {
			for partition := range starts[name] {
				committed[partition] = starts[name][partition].At
			}
		}
	}
	if err != nil {
		return nil, err
	}
	var moved []movedPartition
	for _, partition := range slices.Sorted(maps.Keys(extents)) {
		p := movedPartition{Topic: name, Partition: partition, New: offsets[partition], DryRun: dryRun}
		old := committed[partition]
		if old >= 0 {
			p.Old = &old
		}
		if move.relative {
			if p.Old == nil {
				continue // there is no offset to start from
			}
			p.New = extents[partition].Shift(old, move.by)
		}
		moved = append(moved, p)
	}
	if len(moved) == 0 {
		return nil, exit.Usage("--by: group %q has committed nothing in %s: say where it begins with --to", group, name)
	}
	return moved, nil
}

func reportReset(c *brokers.Client, group string, moved []movedPartition, dryRun bool) error {
	type column = term.Column[movedPartition]
	if err := term.List(&c.Output, moved, "",
		column{Header: "topic", Words: true, Cell: func(p *movedPartition) string { return term.Printable(p.Topic) }},
		column{Header: "partition", Cell: func(p *movedPartition) string { return strconv.Itoa(int(p.Partition)) }},
		column{Header: "old", Cell: func(p *movedPartition) string { return term.Or(p.Old, "–", humanize.Comma) }},
		column{Header: "new", Cell: func(p *movedPartition) string { return humanize.Comma(p.New) }}); err != nil {
		return err
	}
	if dryRun {
		c.Say("nothing was changed; without --dry-run group %s goes on there", term.Printable(group))
	}
	return nil
}
