package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

// topicAlterFlags are those of "topic alter".
type topicAlterFlags struct {
	brokerFlags
	set, unset []string
	partitions int
}

func newTopicAlterCommand() *cobra.Command {
	var f topicAlterFlags
	command := &cobra.Command{
		Use:   "alter NAME",
		Short: "Change the settings of a topic, or add partitions",
		Long: `Change the settings of a topic, or add partitions. All that was asked for is
checked before anything is changed.

Partitions can be added, not removed. Records stay where they are, but from then on
a key may go to another partition.`,
		Example: `  sluice topic alter orders --set retention.ms=3600000 --unset retention.bytes
  sluice topic alter orders --partitions 12`,
		Args: oneTopic,
	}
	command.RunE = func(command *cobra.Command, args []string) error {
		changes, err := f.changes()
		switch {
		case err != nil:
			return err
		case len(changes) == 0 && !command.Flags().Changed("partitions"):
			return wrongUsage("say what to change: --set NAME=VALUE, --unset NAME or --partitions NUMBER")
		case command.Flags().Changed("partitions") && (f.partitions < 1 || f.partitions > 1<<30):
			return wrongUsage("--partitions: %d: want how many there are to be, more than there are", f.partitions)
		}
		return f.with(func(ctx context.Context, c *cluster, args []string) error {
			return c.alterTopic(ctx, args[0], changes, f.partitions)
		})(command, args)
	}
	command.Flags().StringArrayVar(&f.set, "set", nil, "a setting, as `name=value`; may be repeated")
	command.Flags().StringArrayVar(&f.unset, "unset", nil, "the `name` of a setting that falls back to its default; may be repeated")
	command.Flags().IntVar(&f.partitions, "partitions", 0, "the `number` of partitions that there are to be")
	f.brokerFlags.add(command, "print JSON")
	return command
}

// changes returns what to do with each setting.
func (f *topicAlterFlags) changes() ([]kadm.AlterConfig, error) {
	settings, err := parseSettings(f.set)
	if err != nil {
		return nil, err
	}
	var changes []kadm.AlterConfig
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: settings[name]})
	}
	for _, name := range f.unset {
		if name == "" || slices.ContainsFunc(changes, func(c kadm.AlterConfig) bool { return c.Name == name }) {
			return nil, wrongUsage("--unset: %q: want the name of a setting, once, that --set does not set", name)
		}
		changes = append(changes, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: name})
	}
	return changes, nil
}

// alteredTopic is what "alter" prints with --json.
type alteredTopic struct {
	Topic      string            `json:"topic"`
	Partitions int               `json:"partitions,omitempty"`
	Set        map[string]string `json:"set,omitempty"`
	Unset      []string          `json:"unset,omitempty"`
}

// alterTopic changes settings, and the number of partitions unless it is 0.
func (c *cluster) alterTopic(ctx context.Context, name string, changes []kadm.AlterConfig, partitions int) error {
	if _, err := c.topic(ctx, name); err != nil {
		return err
	}
	for _, dryRun := range []bool{true, false} {
		if err := c.changeSettings(ctx, name, changes, dryRun); err != nil {
			return err
		}
		if err := c.setPartitions(ctx, name, partitions, dryRun); err != nil {
			return err
		}
	}
	altered := alteredTopic{Topic: name, Partitions: partitions, Set: map[string]string{}}
	var told []string
	if partitions > 0 {
		told = append(told, counted(int64(partitions), "partition"))
	}
	for _, change := range changes {
		if change.Op == kadm.DeleteConfig {
			altered.Unset = append(altered.Unset, change.Name)
			told = append(told, change.Name+" has its default")
			continue
		}
		altered.Set[change.Name] = *change.Value
		told = append(told, change.Name+"="+printable(*change.Value))
	}
	if c.json {
		return c.writeJSON(altered)
	}
	fmt.Fprintf(c.out, "%s altered: %s\n", name, strings.Join(told, ", "))
	return nil
}

func (c *cluster) changeSettings(ctx context.Context, name string, changes []kadm.AlterConfig, dryRun bool) error {
	if len(changes) == 0 {
		return nil
	}
	alter := c.admin.AlterTopicConfigs
	if dryRun {
		alter = c.admin.ValidateAlterTopicConfigs
	}
	responses, err := alter(ctx, changes, name)
	if err != nil {
		return err
	}
	altered, err := responses.On(name, nil)
	if err != nil {
		return err
	}
	return answered(altered.Err, altered.ErrMessage)
}

func (c *cluster) setPartitions(ctx context.Context, name string, count int, dryRun bool) error {
	if count == 0 {
		return nil
	}
	update := c.admin.UpdatePartitions
	if dryRun {
		update = c.admin.ValidateUpdatePartitions
	}
	responses, err := update(ctx, count, name)
	if err != nil {
		return err
	}
	grown, err := responses.On(name, nil)
	if err != nil {
		return err
	}
	return answered(grown.Err, grown.ErrMessage)
}
