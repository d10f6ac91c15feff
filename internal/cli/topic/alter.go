package topic

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/sluice-project/sluice/internal/cli/brokers"
	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/cli/profile"
	"github.com/sluice-project/sluice/internal/cli/remote"
	"github.com/sluice-project/sluice/internal/cli/term"
	"github.com/sluice-project/sluice/topic/api"
)

// topicAlterFlags are those of "topic alter".
type topicAlterFlags struct {
	brokers.Flags
	brokers.Changes
	partitions, replicas int
	grace                time.Duration
}

func newAlterCommand() *cobra.Command {
	var f topicAlterFlags
	command := &cobra.Command{
		Use:   "alter NAME",
		Short: "Change the settings of a topic, its partitions or its replicas",
		Long: `Change the settings of a topic, how many partitions it has, or how many nodes keep
each. All that was asked for is checked before anything is changed.

When partitions are added, existing records stay where they are, but new records of a
key may go to another partition. When the number is reduced, the highest partitions are
removed: producers no longer find them, and their records can be read by partition
number until --grace is over; then they are deleted. Replicas move in the background:
"sluice topic describe" and "sluice cluster show" show the progress. Both changes use a
server's HTTP API (--server), as the Kafka protocol has no requests for them.`,
		Example: `  sluice topic alter orders --set retention.ms=3600000 --unset retention.bytes
  sluice topic alter orders --partitions 12
  sluice topic alter orders --partitions 6 --grace 48h
  sluice topic alter orders --replicas 3 --server http://node1.example.com:8080`,
		Args: oneTopic,
	}
	command.RunE = func(command *cobra.Command, args []string) error {
		changes, err := f.Changes.Parse("retention.ms=86400000")
		switch {
		case err != nil:
			return err
		case len(changes) == 0 && !command.Flags().Changed("partitions") && !command.Flags().Changed("replicas"):
			return exit.Usage("say what to change: --set NAME=VALUE, --unset NAME, --partitions NUMBER or --replicas NUMBER")
		case command.Flags().Changed("partitions") && (f.partitions < 1 || f.partitions > 1<<30):
			return exit.Usage("--partitions: %d: want how many there are to be", f.partitions)
		case command.Flags().Changed("replicas") && (f.replicas < 1 || f.replicas > 5):
			return exit.Usage("--replicas: %d: want 1 to 5", f.replicas)
		case f.grace < 0:
			return exit.Usage("--grace: %v: want 0s or more", f.grace)
		}
		patch := topicPatch{open: func() (*remote.Client, error) { return new(remote.Flags).Open(command) }}
		if f.replicas > 0 {
			patch.Replicas = &f.replicas
		}
		if command.Flags().Changed("grace") {
			patch.GraceMS = new(f.grace.Milliseconds())
		}
		return f.With(func(ctx context.Context, c *brokers.Client, args []string) error {
			return alterTopic(ctx, c, args[0], changes, f.partitions, patch)
		})(command, args)
	}
	f.Changes.Add(command)
	command.Flags().IntVar(&f.partitions, "partitions", 0, "the `number` of partitions that there are to be")
	command.Flags().IntVar(&f.replicas, "replicas", 0, "the `number` of nodes that are to keep each partition, 1 to 5")
	command.Flags().DurationVar(&f.grace, "grace", 0, "how long partitions that go can be read\n(default 168h, or the topic's retention if that is less)")
	command.Flags().Lookup("grace").DefValue = "0"
	f.Flags.Add(command, "print JSON")
	command.Flags().String(profile.Server, "", "`URL` of a server, for --replicas and for fewer partitions\n(default $"+profile.ServerVariable+", or "+profile.DefaultServer+")")
	return command
}

// alteredTopic is what "alter" prints with --json.
type alteredTopic struct {
	Topic      string            `json:"topic"`
	Partitions int               `json:"partitions,omitempty"`
	Replicas   int               `json:"replicas,omitempty"`
	Set        map[string]string `json:"set,omitempty"`
	Unset      []string          `json:"unset,omitempty"`
}

// topicPatch is a change that a server is asked for over HTTP.
type topicPatch struct {
	api.TopicChange
	open func() (*remote.Client, error)
}

// send sends the request, unless the patch is empty.
func (p *topicPatch) send(ctx context.Context, name string) error {
	if p.Replicas == nil && p.Partitions == nil {
		return nil
	}
	server, err := p.open()
	if err != nil {
		return err
	}
	return server.Do(ctx, http.MethodPatch, "/v1/topics/"+url.PathEscape(name), p.TopicChange, nil)
}

// alterTopic changes settings, the number of partitions unless it is 0, and the fields of the
// patch.
func alterTopic(ctx context.Context, c *brokers.Client, name string, changes []kadm.AlterConfig, partitions int, patch topicPatch) error {
	detail, err := c.Topic(ctx, name)
	if err != nil {
		return err
	}
	more := partitions
	if partitions > 0 && partitions < len(detail.Partitions) {
		more, patch.Partitions = 0, new(int32(partitions))
	} else if patch.GraceMS != nil {
		return exit.Usage("--grace: it is for fewer partitions than there are: %s has %d", name, len(detail.Partitions))
	}
	for _, dryRun := range []bool{true, false} {
		if !dryRun {
			if err := patch.send(ctx, name); err != nil {
				return err
			}
		}
		if err := changeSettings(ctx, c, name, changes, dryRun); err != nil {
			return err
		}
		if err := setPartitions(ctx, c, name, more, dryRun); err != nil {
			return err
		}
	}
	return tellAltered(c, name, changes, partitions, patch)
}

// tellAltered prints what was changed.
func tellAltered(c *brokers.Client, name string, changes []kadm.AlterConfig, partitions int, patch topicPatch) error {
	altered := alteredTopic{Topic: name, Partitions: partitions}
	var told []string
	if patch.Replicas != nil {
		altered.Replicas = *patch.Replicas
		told = append(told, term.Counted(int64(altered.Replicas), "replica"))
	}
	if partitions > 0 {
		told = append(told, term.Counted(int64(partitions), "partition"))
	}
	altered.Set, altered.Unset = brokers.Changed(changes)
	told = append(told, brokers.TellChanges(changes)...)
	return c.Tell(altered, "%s altered: %s", name, strings.Join(told, ", "))
}

func changeSettings(ctx context.Context, c *brokers.Client, name string, changes []kadm.AlterConfig, dryRun bool) error {
	if len(changes) == 0 {
		return nil
	}
	alter := c.Admin.AlterTopicConfigs
	if dryRun {
		alter = c.Admin.ValidateAlterTopicConfigs
	}
	responses, err := alter(ctx, changes, name)
	if err != nil {
		return err
	}
	_, err = responses.On(name, func(r *kadm.AlterConfigsResponse) error { return brokers.Answered(r.Err, r.ErrMessage) })
	return err
}

func setPartitions(ctx context.Context, c *brokers.Client, name string, count int, dryRun bool) error {
	if count == 0 {
		return nil
	}
	update := c.Admin.UpdatePartitions
	if dryRun {
		update = c.Admin.ValidateUpdatePartitions
	}
	responses, err := update(ctx, count, name)
	if err != nil {
		return err
	}
	_, err = responses.On(name, func(r *kadm.CreatePartitionsResponse) error { return brokers.Answered(r.Err, r.ErrMessage) })
	return err
}
