package topic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-project/sluice/internal/cli/brokers"
	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/cli/term"
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
	brokers.Flags
	group, from, format string
	partitions          []int32
	max                 int64
	untilEnd            bool
}

func newConsumeCommand() *cobra.Command {
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
	f.Flags.Add(command, "print a JSON object per line")
	return command
}

// run checks the flags, and consumes.
func (f *topicConsumeFlags) run(command *cobra.Command, name string) error {
	from, err := brokers.ParsePlace(f.from, time.Now())
	switch {
	case err != nil:
		return exit.Usage("--from: %w", err)
	case f.max < 0:
		return exit.Usage("--max: %d: want how many records to read, or 0 for no limit", f.max)
	case f.group != "" && len(f.partitions) > 0:
		return exit.Usage("--partition: the members of a group share all partitions; leave --group out to choose")
	case f.group != "" && from.Kind == brokers.AtOffset:
		return exit.Usage("--from: with --group want start, end or a time; \"sluice group reset\" moves a group to an offset")
	case f.format != "" && f.JSON:
		return exit.Usage("give either --format or --json, not both")
	}
	print, err := printerOf(f.format, f.JSON)
	if err != nil {
		return exit.Usage("--format: %w", err)
	}
	reading := &consumption{topic: name, group: f.group, left: f.max, limited: f.max > 0, print: print}
	options, err := f.prepare(command, reading, from)
	if err != nil {
		return brokers.Explain(err)
	}
	if reading.ends != nil && len(reading.ends) == 0 {
		return nil // there is nothing to read
	}
	if reading.Client, err = f.Flags.Open(command, options...); err != nil {
		return err
	}
	defer reading.Kafka.CloseAllowingRebalance()
	return brokers.Explain(reading.run(command.Context()))
}

// prepare inspects the topic, notes where it ends, and returns the consumer's options.
func (f *topicConsumeFlags) prepare(command *cobra.Command, reading *consumption, from brokers.Place) ([]kgo.Opt, error) {
	ctx, name := command.Context(), reading.topic
	c, err := f.Flags.Open(command)
	if err != nil {
		return nil, err
	}
	defer c.Kafka.Close()
	detail, err := c.Topic(ctx, name)
	if err != nil {
		return nil, err
	}
	for _, partition := range f.partitions {
		if _, found := detail.Partitions[partition]; !found {
			return nil, exit.Usage("--partition: %s has no partition %d: it has 0 to %d", name, partition, len(detail.Partitions)-1)
		}
	}
	extents, err := c.Extents(ctx, name)
	if err != nil {
		return nil, err
	}
	begins, err := c.OffsetsOf(ctx, name, from, extents)
	if err != nil {
		return nil, err
	}
	options := []kgo.Opt{
		kgo.ConsumerGroup(f.group), kgo.ConsumeTopics(name), kgo.ConsumeResetOffset(from.Reset()),
		kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
	}
	if f.group == "" {
		options = []kgo.Opt{kgo.ConsumePartitions(f.chosen(name, begins))}
	} else if err := c.AddCommitted(ctx, f.group, name, begins); err != nil {
		return nil, err
	}
	if f.untilEnd {
		options = append(options, kgo.KeepControlRecords()) // markers may be last
		return options, reading.findEnd(ctx, c, extents, begins)
	}
	return options, nil
}

// chosen keeps only the wanted partitions in begins, and returns the offset to begin at for each.
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

// The bounds of consuming.
const (
	// pollRecords is the most records that are printed before they are committed.
	pollRecords = 500
	// quiet is how long no record must arrive before the command checks for the end by other means:
	// a view may hide the last records of its source, and other members of a group may have read
	// them.
	quiet = time.Second
)

// consumption is one run of "topic consume".
type consumption struct {
	*brokers.Client
	topic, group string
	// left is how many records are still to be read, if their number is limited.
	left    int64
	limited bool
	print   recordPrinter

	// ends has the partitions that have not been read to their end, with the end offset; nil means
	// to read on without end.
	ends map[int32]int64
	// view means that the last records may be hidden.
	view bool
}

// findEnd notes the end offset of each partition that begins before it.
func (r *consumption) findEnd(ctx context.Context, c *brokers.Client, extents map[int32]brokers.Extent, begins map[int32]int64) error {
	configs, err := c.ConfigsOf(ctx, r.topic)
	if err != nil {
		return err
	}
	r.view = brokers.ValueOfConfig(configs[r.topic], topic.SettingViewOf) != ""
	r.ends = map[int32]int64{}
	for partition, begin := range begins {
		if end := extents[partition].End; begin < end {
			r.ends[partition] = end
		}
	}
	return nil
}

// done reports whether all wanted records have been read.
func (r *consumption) done() bool {
	return r.limited && r.left == 0 || r.ends != nil && len(r.ends) == 0
}

// run prints records until all were read, or ctx ends.
func (r *consumption) run(ctx context.Context) error {
	for !r.done() && ctx.Err() == nil { // Ctrl-C is a normal end as well
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
			r.Kafka.AllowRebalance()
		}
	}
	return nil
}

// joinsAgain reports whether the client joins its group again after an error, for example because a
// new coordinator does not know the member.
func joinsAgain(err error) bool {
	var session *kgo.ErrGroupSession
	return errors.As(err, &session) && (errors.Is(err, kerr.UnknownMemberID) || errors.Is(err, kerr.IllegalGeneration))
}

// poll waits for records, only briefly if there is an end to check for.
func (r *consumption) poll(ctx context.Context, most int) kgo.Fetches {
	if r.ends != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, quiet)
		defer cancel()
	}
	return r.Kafka.PollRecords(ctx, most)
}

// lookForEnd checks for the end of the partitions when no record has arrived for a while.
func (r *consumption) lookForEnd(ctx context.Context) error {
	if r.view {
		clear(r.ends)
		return nil
	}
	extents, err := r.Extents(ctx, r.topic)
	if err != nil {
		return err
	}
	for partition, end := range r.ends {
		if extents[partition].Start >= end { // retention removed the rest
			delete(r.ends, partition)
		}
	}
	if r.group == "" {
		return nil
	}
	committed, err := brokers.Committed(ctx, r.Client, r.group, r.topic, r.ends)
	if err != nil {
		return err
	}
	for partition, offset := range committed {
		if offset >= r.ends[partition] {
			delete(r.ends, partition)
		}
	}
	return nil
}

// printAll prints records up to the end, and then commits them.
func (r *consumption) printAll(ctx context.Context, records []*kgo.Record) error {
	var printed []*kgo.Record
	for _, record := range records {
		if record.Attrs.IsControl() { // transaction markers have offsets, too
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
		if err := r.print(r.Out, record); err != nil {
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
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), brokers.CommitPatience)
	defer cancel()
	if err := r.Kafka.CommitRecords(ctx, printed...); err != nil {
		return fmt.Errorf("%s printed, but not committed: the group will get them again: %w", term.Counted(int64(len(printed)), "record"), err)
	}
	return nil
}
