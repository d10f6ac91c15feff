package topic

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/internal/cli/brokers"
	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/cli/term"
	"github.com/sluice-project/sluice/topic"
)

func newDescribeCommand() *cobra.Command {
	return brokers.Command(&cobra.Command{
		Use:   "describe NAME",
		Short: "Show a topic: its partitions, its settings, its views",
		Long: `Show a topic: its partitions, the settings that differ from the defaults, and the
views of it. The records of a partition are counted by offsets. In a cluster: the leader
of each partition, its replicas, those in sync, their racks, and where replicas move.`,
		Example: `  sluice topic describe orders
  sluice topic describe orders --json | jq .partitions[].end`,
		Args: oneTopic,
	}, "print JSON", func(ctx context.Context, c *brokers.Client, args []string) error {
		return describeTopic(ctx, c, args[0])
	})
}

// describedTopic is what "describe" prints with --json.
type describedTopic struct {
	Topic      string               `json:"topic"`
	ID         string               `json:"id"`
	ViewOf     string               `json:"view_of,omitempty"`
	Where      string               `json:"where,omitempty"`
	Views      []string             `json:"views,omitempty"`
	Partitions []describedPartition `json:"partitions"`
	// Settings are those that differ from the defaults.
	Settings []describedSetting `json:"settings"`
}

type describedPartition struct {
	Partition int32   `json:"partition"`
	Leader    int32   `json:"leader"`
	Replicas  []int32 `json:"replicas"`
	InSync    []int32 `json:"in_sync"`
	// Racks are the racks of the replicas, if nodes have racks. Adding and Removing are the nodes
	// that are to gain and to lose a replica.
	Racks    []string `json:"racks,omitempty"`
	Adding   []int32  `json:"adding,omitempty"`
	Removing []int32  `json:"removing,omitempty"`
	Start    int64    `json:"start"`
	End      int64    `json:"end"`
	Records  int64    `json:"records"`
	Bytes    int64    `json:"bytes"`
	Error    string   `json:"error,omitempty"`
}

type describedSetting struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Source string `json:"source"`
}

func describeTopic(ctx context.Context, c *brokers.Client, name string) error {
	described, err := inspect(ctx, c, name)
	if err != nil {
		return err
	}
	if c.JSON {
		return c.WriteJSON(described)
	}
	c.Facts([]term.Fact{
		{"topic", name},
		{"id", described.ID},
		{"view of", term.Printable(described.ViewOf)},
		{"where", term.Printable(described.Where)},
		{"views", term.Printable(strings.Join(described.Views, ", "))},
	}, false)
	fmt.Fprintln(c.Out)
	partitionGrid(described).Write(c.Out, c.Out.Columns())
	fmt.Fprintln(c.Out)
	if len(described.Settings) == 0 {
		fmt.Fprintln(c.Out, "all settings have their defaults")
		return nil
	}
	type column = term.Column[describedSetting]
	term.TableOf(described.Settings,
		column{Header: "setting", Words: true, Cell: func(s *describedSetting) string { return term.Printable(s.Name) }},
		column{Header: "value", Words: true, Cell: func(s *describedSetting) string { return term.Printable(s.Value) }},
		column{Header: "set by", Words: true, Cell: func(s *describedSetting) string { return s.Source }},
	).Write(c.Out, c.Out.Columns())
	return nil
}

func partitionGrid(described *describedTopic) *term.Grid {
	// A view shows records of its source and stores none.
	own := func(text string) string { return cmp.Or(term.If(described.ViewOf == "", text), "–") }
	type column = term.Column[describedPartition]
	return term.TableOf(described.Partitions,
		column{Header: "partition", Cell: func(p *describedPartition) string { return strconv.Itoa(int(p.Partition)) }},
		column{Header: "leader", Cell: func(p *describedPartition) string { return strconv.Itoa(int(p.Leader)) }},
		column{Header: "replicas", Cell: func(p *describedPartition) string { return term.Numbers(p.Replicas) }},
		column{Header: "in sync", Cell: func(p *describedPartition) string { return term.Numbers(p.InSync) }},
		column{Header: "start", Cell: func(p *describedPartition) string { return humanize.Comma(p.Start) }},
		column{Header: "end", Cell: func(p *describedPartition) string { return humanize.Comma(p.End) }},
		column{Header: "records", Cell: func(p *describedPartition) string { return own(humanize.Comma(p.Records)) }},
		column{Header: "size", Cell: func(p *describedPartition) string { return own(size(p.Bytes)) }},
		column{Header: "racks", Words: true, Rare: true, Cell: func(p *describedPartition) string { return term.Printable(strings.Join(p.Racks, ",")) }},
		column{Header: "moving", Words: true, Rare: true, Cell: func(p *describedPartition) string {
			to := term.If(len(p.Adding) > 0, "to "+term.Numbers(p.Adding))
			off := term.If(len(p.Removing) > 0, "off "+term.Numbers(p.Removing))
			return to + term.If(to != "" && off != "", ", ") + off
		}},
		column{Header: "error", Words: true, Rare: true, Cell: func(p *describedPartition) string { return term.Printable(p.Error) }})
}

// inspect asks for everything about a topic.
func inspect(ctx context.Context, c *brokers.Client, name string) (*describedTopic, error) {
	detail, err := c.Topic(ctx, name)
	if err != nil {
		return nil, err
	}
	contents, err := contentsOf(ctx, c, name)
	if err != nil {
		return nil, err
	}
	if detail, err = c.Topic(ctx, name); err != nil { // leaders may be known by now
		return nil, err
	}
	configs, err := c.ConfigsOf(ctx, name)
	if err != nil {
		return nil, err
	}
	described := &describedTopic{
		Topic: name, ID: hex.EncodeToString(detail.ID[:]), Settings: changedSettings(configs[name]),
		ViewOf: brokers.ValueOfConfig(configs[name], topic.SettingViewOf), Where: brokers.ValueOfConfig(configs[name], topic.SettingViewWhere),
	}
	for _, p := range detail.Partitions.Sorted() {
		partition := describedPartition{Partition: p.Partition, Leader: p.Leader, Replicas: p.Replicas, InSync: p.ISR}
		held, err := contents.in(name, p.Partition)
		partition.Start, partition.End, partition.Records, partition.Bytes = held.Start, held.End, held.Records, held.Bytes
		if err != nil {
			partition.Error = exit.OneLine(err)
		}
		described.Partitions = append(described.Partitions, partition)
	}
	if err := addPlaces(ctx, c, described); err != nil {
		return nil, err
	}
	described.Views, err = viewsOf(ctx, c, name)
	return described, err
}

// addPlaces adds the racks of the replicas and their reassignments.
func addPlaces(ctx context.Context, c *brokers.Client, described *describedTopic) error {
	brokers, err := c.Admin.ListBrokers(ctx)
	if err != nil {
		return err
	}
	racks := map[int32]string{}
	for _, broker := range brokers {
		if broker.Rack != nil && *broker.Rack != "" {
			racks[broker.NodeID] = *broker.Rack
		}
	}
	var all kadm.TopicsSet
	for i := range described.Partitions {
		p := &described.Partitions[i]
		all.Add(described.Topic, p.Partition)
		if len(racks) == 0 {
			continue
		}
		for _, node := range p.Replicas {
			p.Racks = append(p.Racks, cmp.Or(racks[node], "–"))
		}
	}
	if described.ViewOf != "" || len(brokers) < 2 {
		return nil // a view moves with its source, and with one broker nothing moves
	}
	moves, err := c.Admin.ListPartitionReassignments(ctx, all)
	if err != nil {
		return err
	}
	for i := range described.Partitions {
		p := &described.Partitions[i]
		if move, moving := moves[described.Topic][p.Partition]; moving {
			p.Adding, p.Removing = move.AddingReplicas, move.RemovingReplicas
		}
	}
	return nil
}

// viewsOf returns the names of the views of a topic.
func viewsOf(ctx context.Context, c *brokers.Client, name string) ([]string, error) {
	details, err := c.Admin.ListTopics(ctx)
	if err != nil {
		return nil, err
	}
	configs, err := c.ConfigsOf(ctx, details.Names()...)
	if err != nil {
		return nil, err
	}
	var views []string
	for _, other := range details.Names() {
		if brokers.ValueOfConfig(configs[other], topic.SettingViewOf) == name {
			views = append(views, other)
		}
	}
	slices.Sort(views)
	return views, nil
}

// changedSettings returns the settings that differ from the defaults.
func changedSettings(configs []kadm.Config) []describedSetting {
	changed := []describedSetting{}
	for i := range configs {
		config := &configs[i]
		switch config.Source {
		case kmsg.ConfigSourceDynamicTopicConfig:
			changed = append(changed, describedSetting{config.Key, config.MaybeValue(), "topic"})
		case kmsg.ConfigSourceStaticBrokerConfig, kmsg.ConfigSourceDynamicBrokerConfig, kmsg.ConfigSourceDynamicDefaultBrokerConfig:
			changed = append(changed, describedSetting{config.Key, config.MaybeValue(), "server"})
		}
	}
	return changed
}
