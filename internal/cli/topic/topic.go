package topic

import (
	"cmp"
	"context"
	"errors"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/sluice-project/sluice/internal/cli/brokers"
	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/cli/term"
	"github.com/sluice-project/sluice/topic"
)

// oneTopic is for commands that take the name of a topic.
var oneTopic = exit.One(`give the name of one topic; "sluice topic list" shows them`)

// Command returns "sluice topic" with its commands.
func Command() *cobra.Command {
	command := &cobra.Command{
		Use:   "topic",
		Short: "Create topics, write records to them and read them",
		Long: `Create topics, write records to them and read them, on a server ("sluice serve")
or on any other broker that speaks the Kafka protocol.`,
		Example: `  sluice topic create orders --partitions 6 --retention 24h
  echo 'a7:{"total":12}' | sluice topic produce orders --key-separator :
  sluice topic consume orders --until-end`,
	}
	command.AddCommand(
		newCreateCommand(), newListCommand(), newDescribeCommand(), newAlterCommand(), newDeleteCommand(),
		newProduceCommand(), newConsumeCommand(), newDelayedCommand(), newCancelCommand(), newMigrateCommand(), newConvertCommand(),
	)
	return command
}

func newListCommand() *cobra.Command {
	return brokers.Command(&cobra.Command{
		Use:   "list",
		Short: "List the topics, with how much is in them",
		Example: `  sluice topic list
  sluice topic list --brokers kafka-1:9092,kafka-2:9092 --json`,
		Args: cobra.NoArgs,
	}, "print a JSON object per line", func(ctx context.Context, c *brokers.Client, _ []string) error { return listTopics(ctx, c) })
}

// listedTopic is one topic, as "list" prints it with --json.
type listedTopic struct {
	Topic      string `json:"topic"`
	ViewOf     string `json:"view_of,omitempty"`
	Partitions int    `json:"partitions"`
	Replicas   int    `json:"replicas"`
	// Records and Bytes are the sums of all partitions; a view has none of its own.
	Records *int64 `json:"records,omitempty"`
	Bytes   *int64 `json:"bytes,omitempty"`
}

func listTopics(ctx context.Context, c *brokers.Client) error {
	details, err := c.Admin.ListTopics(ctx)
	if err != nil {
		return err
	}
	names := details.Names()
	if len(names) == 0 {
		c.Say("no topics")
		return nil
	}
	contents, err := contentsOf(ctx, c, names...)
	if err != nil {
		return err
	}
	configs, err := c.ConfigsOf(ctx, names...)
	if err != nil {
		return err
	}
	var topics []listedTopic
	for _, detail := range details.Sorted() {
		listed := listedTopic{
			Topic: detail.Topic, ViewOf: brokers.ValueOfConfig(configs[detail.Topic], topic.SettingViewOf),
			Partitions: len(detail.Partitions), Replicas: detail.Partitions.NumReplicas(),
		}
		if listed.ViewOf == "" {
			all := contents.of(detail.Topic)
			listed.Records, listed.Bytes = &all.Records, &all.Bytes
		}
		topics = append(topics, listed)
	}
	type column = term.Column[listedTopic]
	return term.List(&c.Output, topics, "no topics",
		column{Header: "topic", Words: true, Cell: func(l *listedTopic) string { return term.Printable(l.Topic) }},
		column{Header: "partitions", Cell: func(l *listedTopic) string { return humanize.Comma(int64(l.Partitions)) }},
		column{Header: "replicas", Cell: func(l *listedTopic) string { return humanize.Comma(int64(l.Replicas)) }},
		column{Header: "records", Cell: func(l *listedTopic) string { return term.Or(l.Records, "–", humanize.Comma) }},
		column{Header: "size", Cell: func(l *listedTopic) string { return term.Or(l.Bytes, "–", size) }},
		column{Header: "view of", Words: true, Cell: func(l *listedTopic) string { return term.Printable(l.ViewOf) }})
}

func size(bytes int64) string { return humanize.IBytes(uint64(bytes)) }

// contents is the amount of data in partitions.
type contents struct {
	starts, ends kadm.ListedOffsets
	sizes        map[string]map[int32]int64
}

// contentsOf asks for the amount of data in topics.
func contentsOf(ctx context.Context, c *brokers.Client, names ...string) (contents, error) {
	var all contents
	err := c.OfAll(ctx, func() (err error) {
		if all.starts, err = c.Admin.ListStartOffsets(ctx, names...); err == nil {
			all.ends, err = c.Admin.ListEndOffsets(ctx, names...)
		}
		return err
	})
	var partly *kadm.ShardErrors
	if err != nil && (!errors.As(err, &partly) || all.ends == nil) {
		return all, err
	}
	all.sizes, err = sizes(ctx, c, names...)
	return all, err
}

// sizes returns the bytes of each partition, those of its largest replica. It asks all brokers with
// replicas and leaves out those that do not answer.
func sizes(ctx context.Context, c *brokers.Client, names ...string) (map[string]map[int32]int64, error) {
	details, err := c.Admin.ListTopicsWithInternal(ctx, names...)
	if err != nil {
		return nil, err
	}
	asked := kadm.TopicsSet{}
	details.EachPartition(func(p kadm.PartitionDetail) { asked.Add(p.Topic, p.Partition) })
	dirs, err := c.Admin.DescribeAllLogDirs(ctx, asked)
	var partly *kadm.ShardErrors
	if err != nil && (!errors.As(err, &partly) || partly.AllFailed) {
		return nil, err
	}
	sizes := map[string]map[int32]int64{}
	var failed error
	dirs.Each(func(dir kadm.DescribedLogDir) {
		failed = cmp.Or(failed, dir.Err)
		dir.Topics.Each(func(p kadm.DescribedLogDirPartition) {
			if sizes[p.Topic] == nil {
				sizes[p.Topic] = map[int32]int64{}
			}
			sizes[p.Topic][p.Partition] = max(sizes[p.Topic][p.Partition], p.Size)
		})
	})
	return sizes, failed
}

// content is the amount of data in one partition or in several.
type content struct{ Start, End, Records, Bytes int64 }

// in returns the content of a partition.
func (c *contents) in(name string, partition int32) (content, error) {
	start, end := c.starts[name][partition], c.ends[name][partition]
	held := content{Start: start.Offset, End: end.Offset, Records: max(end.Offset-start.Offset, 0), Bytes: c.sizes[name][partition]}
	return held, errors.Join(start.Err, end.Err)
}

// of returns the content of all partitions of a topic. A partition that does not answer counts as
// empty.
func (c *contents) of(name string) content {
	var all content
	for partition := range c.ends[name] {
		if held, err := c.in(name, partition); err == nil {
			all.Records += held.Records
			all.Bytes += held.Bytes
		}
	}
	return all
}
