package main

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

	"github.com/sluice-project/sluice/topic"
)

func newTopicDescribeCommand() *cobra.Command {
	var f brokerFlags
	command := &cobra.Command{
		Use:   "describe NAME",
		Short: "Show a topic: its partitions, its settings, its views",
		Long: `Show a topic: its partitions, the settings that differ from the defaults, and the
views of it. The records of a partition are counted by offsets. In a cluster: who leads
each partition, who keeps it and has all of it, in which racks, and where it moves.`,
		Example: `  sluice topic describe orders
  sluice topic describe orders --json | jq .partitions[].end`,
		Args: oneTopic,
		RunE: f.with(func(ctx context.Context, c *cluster, args []string) error { return c.describeTopic(ctx, args[0]) }),
	}
	f.add(command, "print JSON")
	return command
}

// describedTopic is what "describe" prints with --json.
type describedTopic struct {
	Topic      string               `json:"topic"`
	ID         string               `json:"id"`
	ViewOf     string               `json:"view_of,omitempty"`
	Where      string               `json:"where,omitempty"`
	Views      []string             `json:"views,omitempty"`
	Partitions []describedPartition `json:"partitions"`
	// Settings are those that are not the defaults.
	Settings []describedSetting `json:"settings"`
}

type describedPartition struct {
	Partition int32   `json:"partition"`
	Leader    int32   `json:"leader"`
	Replicas  []int32 `json:"replicas"`
	InSync    []int32 `json:"in_sync"`
	// Racks are those of the replicas, where nodes have some; Adding and Removing
	// the nodes that are getting it and that give it up then.
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

func (c *cluster) describeTopic(ctx context.Context, name string) error {
	described, err := c.inspect(ctx, name)
	if err != nil {
		return err
	}
	if c.json {
		return c.writeJSON(described)
	}
	facts := [][2]string{{"topic", name}, {"id", described.ID}}
	if described.ViewOf != "" {
		facts = append(facts, [2]string{"view of", printable(described.ViewOf)}, [2]string{"where", printable(described.Where)})
	}
	if len(described.Views) > 0 {
		facts = append(facts, [2]string{"views", printable(strings.Join(described.Views, ", "))})
	}
	writeFacts(c.out, facts)
	fmt.Fprintln(c.out)
	partitionGrid(described).Write(c.out, c.out.Columns())
	if len(described.Settings) == 0 {
		fmt.Fprintln(c.out, "\nall settings have their defaults")
		return nil
	}
	g := grid{Header: []string{"setting", "value", "set by"}, Left: map[int]bool{0: true, 1: true, 2: true}}
	for _, setting := range described.Settings {
		g.Rows = append(g.Rows, []string{printable(setting.Name), printable(setting.Value), setting.Source})
	}
	fmt.Fprintln(c.out)
	g.Write(c.out, c.out.Columns())
	return nil
}

// writeFacts writes names and values, one below the other.
func writeFacts(out screen, facts [][2]string) {
	width := 0
	for _, fact := range facts {
		width = max(width, len(fact[0]))
	}
	for _, fact := range facts {
		fmt.Fprintf(out, "%s  %s\n", left(fact[0], width), fact[1])
	}
}

func partitionGrid(described *describedTopic) *grid {
	g := &grid{Header: []string{"partition", "leader", "replicas", "in sync", "start", "end", "records", "size"}, Left: map[int]bool{}}
	for i := range described.Partitions {
		p := &described.Partitions[i]
		records, size := humanize.Comma(p.Records), humanize.IBytes(uint64(p.Bytes))
		if described.ViewOf != "" { // it shows a part of those, and keeps nothing
			records, size = "–", "–"
		}
		g.Rows = append(g.Rows, []string{
			strconv.Itoa(int(p.Partition)), strconv.Itoa(int(p.Leader)), numbers(p.Replicas), numbers(p.InSync),
			humanize.Comma(p.Start), humanize.Comma(p.End), records, size,
		})
	}
	described.addWords(g, "racks", func(p *describedPartition) string { return strings.Join(p.Racks, ",") })
	described.addWords(g, "moving", func(p *describedPartition) string {
		var moves []string
		if len(p.Adding) > 0 {
			moves = append(moves, "to "+numbers(p.Adding))
		}
		if len(p.Removing) > 0 {
			moves = append(moves, "off "+numbers(p.Removing))
		}
		return strings.Join(moves, ", ")
	})
	described.addWords(g, "error", func(p *describedPartition) string { return p.Error })
	return g
}

// addWords adds a column of words, if any partition has some.
func (d *describedTopic) addWords(g *grid, header string, words func(p *describedPartition) string) {
	var column []string
	for i := range d.Partitions {
		column = append(column, printable(words(&d.Partitions[i])))
	}
	if !slices.ContainsFunc(column, func(cell string) bool { return cell != "" }) {
		return
	}
	g.Left[len(g.Header)] = true
	g.Header = append(g.Header, header)
	for i := range g.Rows {
		g.Rows[i] = append(g.Rows[i], column[i])
	}
}

// numbers spells a list of brokers.
func numbers(list []int32) string {
	var texts []string
	for _, number := range list {
		texts = append(texts, strconv.Itoa(int(number)))
	}
	return strings.Join(texts, ",")
}

// inspect asks for all that is known of a topic.
func (c *cluster) inspect(ctx context.Context, name string) (*describedTopic, error) {
	detail, err := c.topic(ctx, name)
	if err != nil {
		return nil, err
	}
	contents, err := c.contents(ctx, name)
	if err != nil {
		return nil, err
	}
	if detail, err = c.topic(ctx, name); err != nil { // that may have waited for leaders
		return nil, err
	}
	configs, err := c.configsOf(ctx, name)
	if err != nil {
		return nil, err
	}
	described := &describedTopic{
		Topic: name, ID: hex.EncodeToString(detail.ID[:]), Settings: changedSettings(configs[name]),
		ViewOf: valueOfConfig(configs[name], topic.SettingViewOf), Where: valueOfConfig(configs[name], topic.SettingViewWhere),
	}
	for _, p := range detail.Partitions.Sorted() {
		partition := describedPartition{Partition: p.Partition, Leader: p.Leader, Replicas: p.Replicas, InSync: p.ISR}
		held, err := contents.in(name, p.Partition)
		partition.Start, partition.End, partition.Records, partition.Bytes = held.Start, held.End, held.Records, held.Bytes
		if err != nil {
			partition.Error = oneLine(err)
		}
		described.Partitions = append(described.Partitions, partition)
	}
	if err := c.addPlaces(ctx, described); err != nil {
		return nil, err
	}
	described.Views, err = c.viewsOf(ctx, name)
	return described, err
}

// addPlaces adds the racks of the replicas, and where they move.
func (c *cluster) addPlaces(ctx context.Context, described *describedTopic) error {
	brokers, err := c.admin.ListBrokers(ctx)
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
		return nil // a view moves with its source, and nothing on one broker
	}
	moves, err := c.admin.ListPartitionReassignments(ctx, all)
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
func (c *cluster) viewsOf(ctx context.Context, name string) ([]string, error) {
	details, err := c.admin.ListTopics(ctx)
	if err != nil {
		return nil, err
	}
	configs, err := c.configsOf(ctx, details.Names()...)
	if err != nil {
		return nil, err
	}
	var views []string
	for _, other := range details.Names() {
		if valueOfConfig(configs[other], topic.SettingViewOf) == name {
			views = append(views, other)
		}
	}
	slices.Sort(views)
	return views, nil
}

// changedSettings returns the settings that are not the defaults.
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
