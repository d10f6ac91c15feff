package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-project/sluice/topic"
)

const topicConsumeLong = `Read the records of a topic, and wait for more until Ctrl-C, which ends it with code
0; or end after --max records, or with --until-end where the topic ended at the
start.

Without --group it reads all partitions from --from on: start, end, an offset, a
time such as 2026-11-28T08:00:00Z, or a duration such as 10m for that long ago. With
--group it shares the partitions with the group's other members and goes on from
what the group has committed; --from is for partitions where it has committed
nothing. Offsets are committed after their records have been printed.

--format has the fields %t topic, %p partition, %o offset, %d timestamp, %k key, %v
value, %h{%k=%v } headers, and \n, \t: those of franz-go's record formatter.`

// topicConsumeFlags are those of "topic consume".
type topicConsumeFlags struct {
	brokerFlags
	group, from, format string
	partitions          []int32
	max                 int64
	untilEnd            bool
}

func newTopicConsumeCommand() *cobra.Command {
	var f topicConsumeFlags
	command := &cobra.Command{
		Use:   "consume TOPIC",
		Short: "Read the records of a topic",
		Long:  topicConsumeLong,
		Example: `  sluice topic consume orders --until-end
  sluice topic consume orders --from 10m --partition 0 --max 10 --json
  sluice topic consume orders --group billing
  sluice topic consume orders --from end --format '%p:%o:%k:%v\n'`,
		Args: oneTopic,
		RunE: func(command *cobra.Command, args []string) error { return f.run(command, args[0]) },
	}
	flags := command.Flags()
	flags.StringVar(&f.group, "group", "", "read as a member of this consumer `group`")
	flags.StringVar(&f.from, "from", "start", "where to begin: start, end, an `offset`, a time or how long ago")
	flags.Int32SliceVar(&f.partitions, "partition", nil, "only these `partitions`, with commas between them")
	flags.Int64Var(&f.max, "max", 0, "end after this `number` of records (0: no limit)")
	flags.BoolVar(&f.untilEnd, "until-end", false, "end where the topic ended at the start")
	flags.StringVar(&f.format, "format", "", "the `layout` of a record, such as '%o %k %v\\n'")
	f.brokerFlags.add(command, "print a JSON object per line")
	return command
}

// run checks the flags, and consumes.
func (f *topicConsumeFlags) run(command *cobra.Command, name string) error {
	from, err := parsePlace(f.from, time.Now())
	switch {
	case err != nil:
		return wrongUsage("--from: %w", err)
	case f.max < 0:
		return wrongUsage("--max: %d: want how many records to read, or 0 for no limit", f.max)
	case f.group != "" && len(f.partitions) > 0:
		return wrongUsage("--partition: the members of a group share all partitions; leave --group out to choose")
	case f.group != "" && from.kind == atOffset:
		return wrongUsage("--from: with --group want start, end or a time; \"sluice group reset\" moves a group to an offset")
	case f.format != "" && f.json:
		return wrongUsage("give either --format or --json, not both")
	}
	print, err := printerOf(f.format, f.json)
	if err != nil {
		return wrongUsage("--format: %w", err)
	}
	reading := &consumption{topic: name, group: f.group, left: f.max, limited: f.max > 0, print: print}
	options, err := f.prepare(command, reading, from)
	if err != nil {
		return explainKafka(err)
	}
	if reading.ends != nil && len(reading.ends) == 0 {
		return nil // there is nothing to read
	}
	if reading.cluster, err = f.brokerFlags.open(command, options...); err != nil {
		return err
	}
	defer reading.client.CloseAllowingRebalance()
	return explainKafka(reading.run(command.Context()))
}

// prepare looks at the topic, notes where it ends, and returns what the consumer
// is made with.
func (f *topicConsumeFlags) prepare(command *cobra.Command, reading *consumption, from place) ([]kgo.Opt, error) {
	ctx, name := command.Context(), reading.topic
	c, err := f.brokerFlags.open(command)
	if err != nil {
		return nil, err
	}
	defer c.client.Close()
	detail, err := c.topic(ctx, name)
	if err != nil {
		return nil, err
	}
	for _, partition := range f.partitions {
		if _, found := detail.Partitions[partition]; !found {
			return nil, wrongUsage("--partition: %s has no partition %d: it has 0 to %d", name, partition, len(detail.Partitions)-1)
		}
	}
	extents, err := c.extents(ctx, name)
	if err != nil {
		return nil, err
	}
	begins, err := c.offsetsOf(ctx, name, from, extents)
	if err != nil {
		return nil, err
	}
	options := []kgo.Opt{
		kgo.ConsumerGroup(f.group), kgo.ConsumeTopics(name), kgo.ConsumeResetOffset(from.reset()),
		kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
	}
	if f.group == "" {
		options = []kgo.Opt{kgo.ConsumePartitions(f.chosen(name, begins))}
	} else if err := c.addCommitted(ctx, f.group, name, begins); err != nil {
		return nil, err
	}
	if f.untilEnd {
		options = append(options, kgo.KeepControlRecords()) // the last of a partition may be one
		return options, reading.findEnd(ctx, c, extents, begins)
	}
	return options, nil
}

// chosen leaves only the partitions in begins that were asked for, and returns
// where to begin reading them.
func (f *topicConsumeFlags) chosen(name string, begins map[int32]int64) map[string]map[int32]kgo.Offset {
	offsets := map[int32]kgo.Offset{}
	for partition, offset := range begins {
		if len(f.partitions) > 0 && !slices.Contains(f.partitions, partition) {
			delete(begins, partition)
			continue
		}
		offsets[partition] = kgo.NewOffset().At(offset)
	}
	return map[string]map[int32]kgo.Offset{name: offsets}
}

// addCommitted puts in what a group has committed of a topic.
func (c *cluster) addCommitted(ctx context.Context, group, name string, begins map[int32]int64) error {
	committed, err := c.admin.FetchOffsets(ctx, group)
	if err != nil {
		return err
	}
	for partition := range begins {
		offset, found := committed.Lookup(name, partition)
		if found && offset.Err == nil && offset.At >= 0 {
			begins[partition] = offset.At
		}
	}
	return nil
}

// The bounds of consuming.
const (
	// pollRecords is the most records that are printed before they are committed.
	pollRecords = 500
	// quiet is how long nothing must come until the command looks whether it has
	// come to the end by other means: a view may hide the last records of its
	// source, and other members of a group may have read them.
	quiet = time.Second
	// commitPatience is how long a commit may take, after Ctrl-C too.
	commitPatience = 10 * time.Second
)

// consumption is one run of "topic consume".
type consumption struct {
	*cluster
	topic, group string
	// left is how many records are to be read, if that is limited.
	left    int64
	limited bool
	print   recordPrinter

	// ends has the partitions that have not been read to their end, with the
	// offset of that; nil to read on for ever.
	ends map[int32]int64
	// view says that the last records may be hidden.
	view bool
}

// findEnd notes where the partitions end that begin before it.
func (r *consumption) findEnd(ctx context.Context, c *cluster, extents map[int32]extent, begins map[int32]int64) error {
	configs, err := c.configsOf(ctx, r.topic)
	if err != nil {
		return err
	}
	r.view = valueOfConfig(configs[r.topic], topic.SettingViewOf) != ""
	r.ends = map[int32]int64{}
	for partition, begin := range begins {
		if end := extents[partition].End; begin < end {
			r.ends[partition] = end
		}
	}
	return nil
}

// done tells whether all has been read that was asked for.
func (r *consumption) done() bool {
	return r.limited && r.left == 0 || r.ends != nil && len(r.ends) == 0
}

// run prints records until all were read, or ctx ends.
func (r *consumption) run(ctx context.Context) error {
	for !r.done() && ctx.Err() == nil { // Ctrl-C is how this may end, too
		most := pollRecords
		if r.limited {
			most = int(min(r.left, pollRecords))
		}
		fetches := r.poll(ctx, most)
		if err := fetches.Err0(); errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			if err := r.lookForEnd(ctx); err != nil {
				return err
			}
		}
		for _, failed := range fetches.Errors() {
			if !errors.Is(failed.Err, context.DeadlineExceeded) && !errors.Is(failed.Err, context.Canceled) && !joinsAgain(failed.Err) {
				return fmt.Errorf("%s, partition %d: %w", failed.Topic, failed.Partition, failed.Err)
			}
		}
		if err := r.printAll(ctx, fetches.Records()); err != nil {
			return err
		}
		if r.group != "" {
			r.client.AllowRebalance()
		}
	}
	return nil
}

// joinsAgain tells whether the client joins its group again after an error, as when
// another broker coordinates the group now, which does not know the member.
func joinsAgain(err error) bool {
	var session *kgo.ErrGroupSession
	return errors.As(err, &session) && (errors.Is(err, kerr.UnknownMemberID) || errors.Is(err, kerr.IllegalGeneration))
}

// poll waits for records; where there is an end to look for, not for long.
func (r *consumption) poll(ctx context.Context, most int) kgo.Fetches {
	if r.ends != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, quiet)
		defer cancel()
	}
	return r.client.PollRecords(ctx, most)
}

// lookForEnd is asked when nothing came for a while.
func (r *consumption) lookForEnd(ctx context.Context) error {
	if r.view {
		clear(r.ends)
		return nil
	}
	extents, err := r.extents(ctx, r.topic)
	if err != nil {
		return err
	}
	for partition, end := range r.ends {
		if extents[partition].Start >= end { // retention was faster
			delete(r.ends, partition)
		}
	}
	if r.group == "" {
		return nil
	}
	committed := map[int32]int64{}
	for partition := range r.ends {
		committed[partition] = -1
	}
	if err := r.addCommitted(ctx, r.group, r.topic, committed); err != nil {
		return err
	}
	for partition, offset := range committed {
		if offset >= r.ends[partition] {
			delete(r.ends, partition)
		}
	}
	return nil
}

// printAll prints records, but none after the end, and then commits them.
func (r *consumption) printAll(ctx context.Context, records []*kgo.Record) error {
	var printed []*kgo.Record
	for _, record := range records {
		if record.Attrs.IsControl() { // markers of transactions; they have offsets, too
			if record.Offset >= r.ends[record.Partition]-1 {
				delete(r.ends, record.Partition)
			}
			continue
		}
		end, open := r.ends[record.Partition]
		if r.ends != nil && (!open || record.Offset >= end) {
			delete(r.ends, record.Partition)
			continue
		}
		if err := r.print(r.out, record); err != nil {
			return err
		}
		printed = append(printed, record)
		r.left--
		if record.Offset == end-1 {
			delete(r.ends, record.Partition)
		}
	}
	if r.group == "" || len(printed) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitPatience)
	defer cancel()
	if err := r.client.CommitRecords(ctx, printed...); err != nil {
		return fmt.Errorf("%s printed, but not committed: the group will get them again: %w", counted(int64(len(printed)), "record"), err)
	}
	return nil
}
