package topic

import (
	"context"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/internal/cli/brokers"
	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/cli/term"
	"github.com/sluice-project/sluice/topic"
)

const topicCreateLong = `Create a topic. Settings that are not given have the defaults of the server.

A view is a topic that shows the records of another that match a filter, a CEL
expression over key, value, headers and timestamp; it has the partitions and the
offsets of the other topic, and no records of its own.

A topic with --delay-enable holds records back that have the header sluice-delay
or sluice-deliver-at; --delay holds back those that have neither, too.`

// topicCreateFlags are those of "topic create".
type topicCreateFlags struct {
	brokers.Flags
	partitions, replicas int
	set                  []string
	viewOf, where        string
	delays               bool
	delay, retention     time.Duration
}

func newCreateCommand() *cobra.Command {
	var f topicCreateFlags
	command := &cobra.Command{
		Use:   "create NAME",
		Short: "Create a topic, or a view of one",
		Long:  topicCreateLong,
		Example: `  sluice topic create orders --partitions 6 --retention 24h
  sluice topic create orders --set max.message.bytes=100000 --set retention.bytes=1000000000
  sluice topic create paid-orders --view-of orders --where 'headers.tag=="paid"'
  sluice topic create reminders --delay-enable --delay 30m`,
		Args: oneTopic,
	}
	command.RunE = func(command *cobra.Command, args []string) error {
		settings, err := f.settings(command)
		if err != nil {
			return err
		}
		partitions, replicas, err := f.sizes(command)
		if err != nil {
			return err
		}
		return f.With(func(ctx context.Context, c *brokers.Client, args []string) error {
			return createTopic(ctx, c, args[0], partitions, replicas, settings)
		})(command, args)
	}
	flags := command.Flags()
	flags.IntVar(&f.partitions, "partitions", 0, "`number` of partitions (default that of the server)")
	flags.IntVar(&f.replicas, "replicas", 0, "`number` of brokers that keep each partition (default that of the server)")
	flags.StringArrayVar(&f.set, "set", nil, "a setting, as `name=value`; may be repeated")
	flags.DurationVar(&f.retention, "retention", 0, "how long records are kept, a `duration` such as 24h (retention.ms)")
	flags.StringVar(&f.viewOf, "view-of", "", "make a view of this `topic`")
	flags.StringVar(&f.where, "where", "", "the `filter` of the view, such as 'headers.tag == \"paid\"'")
	flags.BoolVar(&f.delays, "delay-enable", false, "let records be delayed (sluice.delay.enable)")
	flags.DurationVar(&f.delay, "delay", 0, "how long records wait that do not say, a `duration` such as 30m (sluice.delay)")
	f.Flags.Add(command, "print JSON")
	return command
}

// sizes returns the partitions and replicas to request; -1 is the default.
func (f *topicCreateFlags) sizes(command *cobra.Command) (int32, int16, error) {
	partitions, replicas := int32(-1), int16(-1)
	if command.Flags().Changed("partitions") {
		if f.partitions < 1 || f.partitions > 1<<30 {
			return 0, 0, exit.Usage("--partitions: %d: want 1 or more", f.partitions)
		}
		if f.viewOf != "" {
			return 0, 0, exit.Usage("--partitions: a view has the partitions of the topic that it shows: leave it out")
		}
		partitions = int32(f.partitions)
	}
	if command.Flags().Changed("replicas") {
		if f.replicas < 1 || f.replicas > 1<<10 {
			return 0, 0, exit.Usage("--replicas: %d: want 1 or more", f.replicas)
		}
		replicas = int16(f.replicas)
	}
	return partitions, replicas, nil
}

// settings returns the settings that the flags give.
func (f *topicCreateFlags) settings(command *cobra.Command) (map[string]*string, error) {
	settings, err := brokers.ParseSettings(f.set, "retention.ms=86400000")
	if err != nil {
		return nil, err
	}
	for _, flag := range []struct{ name, setting, value string }{
		{"retention", "retention.ms", strconv.FormatInt(f.retention.Milliseconds(), 10)},
		{"view-of", topic.SettingViewOf, f.viewOf},
		{"where", topic.SettingViewWhere, f.where},
		{"delay-enable", topic.SettingDelays, strconv.FormatBool(f.delays)},
		{"delay", topic.SettingDelay, f.delay.String()},
	} {
		if !command.Flags().Changed(flag.name) {
			continue
		}
		if settings[flag.setting] != nil {
			return nil, exit.Usage("--%s and --set %s: give one of them", flag.name, flag.setting)
		}
		settings[flag.setting] = &flag.value
	}
	if command.Flags().Changed("retention") && f.retention < time.Millisecond {
		return nil, exit.Usage("--retention: %v: want a duration such as 24h; for ever is --set retention.ms=-1", f.retention)
	}
	return settings, nil
}

// createdTopic is what "create" prints with --json.
type createdTopic struct {
	Topic      string            `json:"topic"`
	ID         string            `json:"id,omitempty"`
	Partitions int32             `json:"partitions"`
	Replicas   int16             `json:"replicas"`
	Settings   map[string]string `json:"settings"`
}

func createTopic(ctx context.Context, c *brokers.Client, name string, partitions int32, replicas int16, settings map[string]*string) error {
	made, err := c.Admin.CreateTopic(ctx, partitions, replicas, settings, name)
	if err != nil {
		return brokers.Answered(err, made.ErrMessage)
	}
	created := createdTopic{
		Topic: name, ID: hex.EncodeToString(made.ID[:]), Partitions: made.NumPartitions, Replicas: made.ReplicationFactor,
		Settings: map[string]string{},
	}
	var list []string
	for _, setting := range slices.Sorted(maps.Keys(settings)) {
		created.Settings[setting] = *settings[setting]
		list = append(list, setting+"="+term.Printable(*settings[setting]))
	}
	sizes := []string{term.Counted(int64(made.NumPartitions), "partition"), term.Counted(int64(made.ReplicationFactor), "replica")}
	return c.Tell(created, "%s created: %s", name, strings.Join(append(sizes, list...), ", "))
}

func newDeleteCommand() *cobra.Command {
	return brokers.DeleteCommand(&cobra.Command{
		Use:   "delete NAME...",
		Short: "Delete topics with all their records, or views",
		Example: `  sluice topic delete orders
  sluice topic delete orders payments --json`,
	}, "topic", func(ctx context.Context, c *brokers.Client, name string) error {
		if _, err := c.Topic(ctx, name); err != nil {
			return err
		}
		deleted, err := c.Admin.DeleteTopic(ctx, name)
		return brokers.Answered(err, deleted.ErrMessage)
	})
}
