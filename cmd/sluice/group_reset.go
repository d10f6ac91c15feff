package main

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
)

// groupResetFlags are those of "group reset".
type groupResetFlags struct {
	brokerFlags
	topic, to string
	by        int64
	dryRun    bool
}

func newGroupResetCommand() *cobra.Command {
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
		return f.with(func(ctx context.Context, c *cluster, args []string) error {
			return c.resetGroup(ctx, args[0], f.topic, move, f.dryRun)
		})(command, args)
	}
	flags := command.Flags()
	flags.StringVar(&f.topic, "topic", "", "the `topic` (required)")
	flags.StringVar(&f.to, "to", "", "the `place`: start, end, an offset, a time or how long ago")
	flags.Int64Var(&f.by, "by", 0, "the `number` of offsets to go on, or back")
	flags.BoolVar(&f.dryRun, "dry-run", false, "show what would be done")
	f.brokerFlags.add(command, "print a JSON object per line")
	return command
}

// groupMove says where a group goes.
type groupMove struct {
	to place
	// by is how far, if it is relative.
	by       int64
	relative bool
}

func (f *groupResetFlags) move(command *cobra.Command) (groupMove, error) {
	to, by := command.Flags().Changed("to"), command.Flags().Changed("by")
	switch {
	case f.topic == "":
		return groupMove{}, wrongUsage("say in which topic: --topic TOPIC")
	case to == by:
		return groupMove{}, wrongUsage("say where to: either --to PLACE or --by NUMBER")
	case by && f.by == 0:
		return groupMove{}, wrongUsage("--by: 0: want how many offsets to go on, or back where it is below 0")
	case by:
		return groupMove{by: f.by, relative: true}, nil
	}
	at, err := parsePlace(f.to, time.Now())
	if err != nil {
		return groupMove{}, wrongUsage("--to: %w", err)
	}
	return groupMove{to: at}, nil
}

// movedPartition is one partition, as "reset" prints it with --json.
type movedPartition struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	// Old is missing where the group had committed nothing.
	Old    *int64 `json:"old,omitempty"`
	New    int64  `json:"new"`
	DryRun bool   `json:"dry_run,omitempty"`
}

func (c *cluster) resetGroup(ctx context.Context, group, name string, move groupMove, dryRun bool) error {
	if _, err := c.topic(ctx, name); err != nil {
		return err
	}
	if err := c.checkInactive(ctx, group); err != nil {
		return err
	}
	moved, err := c.planReset(ctx, group, name, move, dryRun)
	if err != nil {
		return err
	}
	if !dryRun {
		offsets := kadm.Offsets{}
		for _, p := range moved {
			offsets.AddOffset(name, p.Partition, p.New, -1)
		}
		if err := c.admin.CommitAllOffsets(ctx, group, offsets); err != nil {
			if errors.Is(err, kerr.UnknownMemberID) || errors.Is(err, kerr.RebalanceInProgress) {
				return fmt.Errorf("group %q has a member now: stop it first", group)
			}
			return err
		}
	}
	return c.reportReset(group, moved, dryRun)
}

// activeGroup says that a group's members would not take notice.
func activeGroup(group, state string, members int) error {
	return fmt.Errorf("group %q is %s, with %s: stop them first, since they would go on where they are", group, state, counted(int64(members), "member"))
}

// checkInactive refuses a group that has members. One that does not exist may be
// given a place to begin at.
func (c *cluster) checkInactive(ctx context.Context, group string) error {
	described, err := c.admin.DescribeGroups(ctx, group)
	if err != nil {
		return err
	}
	found, err := described.On(group, nil)
	switch {
	case err != nil:
		return err
	case errors.Is(found.Err, kerr.GroupIDNotFound):
		return nil
	case found.Err != nil:
		return answered(found.Err, found.ErrMessage)
	case found.State != groupEmpty && found.State != groupDead:
		return activeGroup(group, found.State, len(found.Members))
	}
	return nil
}

// planReset returns where the group is, and where it goes.
func (c *cluster) planReset(ctx context.Context, group, name string, move groupMove, dryRun bool) ([]movedPartition, error) {
	extents, err := c.extents(ctx, name)
	if err != nil {
		return nil, err
	}
	offsets, err := c.offsetsOf(ctx, name, move.to, extents)
	if err != nil {
		return nil, err
	}
	committed := map[int32]int64{}
	for partition := range extents {
		committed[partition] = -1
	}
	if err := c.addCommitted(ctx, group, name, committed); err != nil {
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
				continue // it goes on from nowhere
			}
			p.New = extents[partition].shift(old, move.by)
		}
		moved = append(moved, p)
	}
	if len(moved) == 0 {
		return nil, wrongUsage("--by: group %q has committed nothing in %s: say where it begins with --to", group, name)
	}
	return moved, nil
}

// shift goes on from an offset, or back, but not out of the extent.
func (s extent) shift(offset, by int64) int64 {
	offset = s.clamp(offset)
	return offset + min(max(by, s.Start-offset), s.End-offset)
}

func (c *cluster) reportReset(group string, moved []movedPartition, dryRun bool) error {
	g := grid{Header: []string{"topic", "partition", "old", "new"}, Left: map[int]bool{0: true}}
	for _, p := range moved {
		if c.json {
			if err := c.writeJSON(p); err != nil {
				return err
			}
			continue
		}
		old := "–"
		if p.Old != nil {
			old = humanize.Comma(*p.Old)
		}
		g.Rows = append(g.Rows, []string{printable(p.Topic), strconv.Itoa(int(p.Partition)), old, humanize.Comma(p.New)})
	}
	if c.json {
		return nil
	}
	g.Write(c.out, c.out.Columns())
	if dryRun {
		c.say("nothing was changed; without --dry-run group %s goes on there", printable(group))
	}
	return nil
}
