package main

import (
	"cmp"
	"context"
	"errors"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/sluice-project/sluice/topic"
)

func newTopicListCommand() *cobra.Command {
	var f brokerFlags
	command := &cobra.Command{
		Use:   "list",
		Short: "List the topics, with how much is in them",
		Example: `  sluice topic list
  sluice topic list --brokers kafka-1:9092,kafka-2:9092 --json`,
		Args: cobra.NoArgs,
		RunE: f.with(func(ctx context.Context, c *cluster, _ []string) error { return c.listTopics(ctx) }),
	}
	f.add(command, "print a JSON object per line")
	return command
}

// listedTopic is one topic, as "list" prints it with --json.
type listedTopic struct {
	Topic      string `json:"topic"`
	ViewOf     string `json:"view_of,omitempty"`
	Partitions int    `json:"partitions"`
	Replicas   int    `json:"replicas"`
	// Records and Bytes are those of all partitions; a view has none of its own.
	Records *int64 `json:"records,omitempty"`
	Bytes   *int64 `json:"bytes,omitempty"`
}

func (c *cluster) listTopics(ctx context.Context) error {
	details, err := c.admin.ListTopics(ctx)
	if err != nil {
		return err
	}
	names := details.Names()
	if len(names) == 0 {
		c.say("no topics")
		return nil
	}
	contents, err := c.contents(ctx, names...)
	if err != nil {
		return err
	}
	configs, err := c.configsOf(ctx, names...)
	if err != nil {
		return err
	}
	g := grid{Header: []string{"topic", "partitions", "replicas", "records", "size", "view of"}, Left: map[int]bool{0: true, 5: true}}
	for _, detail := range details.Sorted() {
		listed := listedTopic{
			Topic: detail.Topic, ViewOf: valueOfConfig(configs[detail.Topic], topic.SettingViewOf),
			Partitions: len(detail.Partitions), Replicas: detail.Partitions.NumReplicas(),
		}
		records, size := "–", "–"
		if listed.ViewOf == "" {
			all := contents.of(detail.Topic)
			listed.Records, listed.Bytes = &all.Records, &all.Bytes
			records, size = humanize.Comma(all.Records), humanize.IBytes(uint64(all.Bytes))
		}
		if c.json {
			if err := c.writeJSON(listed); err != nil {
				return err
			}
			continue
		}
		g.Rows = append(g.Rows, []string{
			printable(listed.Topic), humanize.Comma(int64(listed.Partitions)), humanize.Comma(int64(listed.Replicas)), records, size, printable(listed.ViewOf),
		})
	}
	if !c.json {
		g.Write(c.out, c.out.Columns())
	}
	return nil
}

// contents is how much partitions hold.
type contents struct {
	starts, ends kadm.ListedOffsets
	sizes        map[string]map[int32]int64
}

// contents asks how much topics hold.
func (c *cluster) contents(ctx context.Context, names ...string) (contents, error) {
	var all contents
	err := c.ofAll(ctx, func() (err error) {
		if all.starts, err = c.admin.ListStartOffsets(ctx, names...); err == nil {
			all.ends, err = c.admin.ListEndOffsets(ctx, names...)
		}
		return err
	})
	var partly *kadm.ShardErrors
	if err != nil && (!errors.As(err, &partly) || all.ends == nil) {
		return all, err
	}
	all.sizes, err = c.sizes(ctx, names...)
	return all, err
}

// sizes returns the bytes of each partition: of replicas the largest. All brokers
// are asked that are to keep one; those that do not answer, or that are not there,
// are left out.
func (c *cluster) sizes(ctx context.Context, names ...string) (map[string]map[int32]int64, error) {
	details, err := c.admin.ListTopicsWithInternal(ctx, names...)
	if err != nil {
		return nil, err
	}
	asked := kadm.TopicsSet{}
	details.EachPartition(func(p kadm.PartitionDetail) { asked.Add(p.Topic, p.Partition) })
	dirs, err := c.admin.DescribeAllLogDirs(ctx, asked)
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

// content is what one partition, or several, hold.
type content struct{ Start, End, Records, Bytes int64 }

// in returns what a partition holds.
func (c *contents) in(name string, partition int32) (content, error) {
	start, end := c.starts[name][partition], c.ends[name][partition]
	held := content{Start: start.Offset, End: end.Offset, Records: max(end.Offset-start.Offset, 0), Bytes: c.sizes[name][partition]}
	return held, errors.Join(start.Err, end.Err)
}

// of returns what all partitions of a topic hold. A partition that does not
// answer counts nothing.
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
