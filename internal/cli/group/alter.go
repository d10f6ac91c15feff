package group

import (
	"context"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/internal/cli/brokers"
	"github.com/sluice-project/sluice/internal/cli/exit"
)

// groupAlterFlags are those of "group alter".
type groupAlterFlags struct {
	brokers.Flags
	brokers.Changes
}

func newAlterCommand() *cobra.Command {
	var f groupAlterFlags
	command := &cobra.Command{
		Use:   "alter GROUP",
		Short: "Change the settings of a share group",
		Long: `Change the settings of a share group, which need not exist yet. They count from the
next fetch of a member on, and stay when the group is deleted.

Records that are rejected, or were delivered too often, go to the topic that
errors.deadletterqueue.topic.name names, if that has the setting
errors.deadletterqueue.group.enable=true.`,
		Example: `  sluice group alter billing --set share.auto.offset.reset=earliest
  sluice group alter billing --set errors.deadletterqueue.topic.name=dlq.billing \
    --set errors.deadletterqueue.copy.record.enable=true
  sluice group alter billing --set sluice.share.retry.backoff.ms=5000 --unset share.delivery.count.limit`,
		Args: oneGroup,
	}
	command.RunE = func(command *cobra.Command, args []string) error {
		changes, err := f.Changes.Parse("share.auto.offset.reset=earliest")
		if err != nil {
			return err
		}
		if len(changes) == 0 {
			return exit.Usage("say what to change: --set NAME=VALUE or --unset NAME")
		}
		return f.With(func(ctx context.Context, c *brokers.Client, args []string) error {
			return alterGroup(ctx, c, args[0], changes)
		})(command, args)
	}
	f.Changes.Add(command)
	f.Flags.Add(command, "print JSON")
	return command
}

// alteredGroup is what "alter" prints with --json.
type alteredGroup struct {
	Group string            `json:"group"`
	Set   map[string]string `json:"set,omitempty"`
	Unset []string          `json:"unset,omitempty"`
}

func alterGroup(ctx context.Context, c *brokers.Client, name string, changes []kadm.AlterConfig) error {
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeGroupConfig, name
	for _, change := range changes {
		config := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		config.Name, config.Value, config.Op = change.Name, change.Value, kmsg.IncrementalAlterConfigOp(change.Op)
		resource.Configs = append(resource.Configs, config)
	}
	request := kmsg.NewPtrIncrementalAlterConfigsRequest()
	request.Resources = append(request.Resources, resource)
	response, err := request.RequestWith(ctx, c.Kafka)
	if err != nil {
		return err
	}
	for i := range response.Resources {
		if r := &response.Resources[i]; r.ErrorCode != 0 {
			return brokers.Answered(kerr.ErrorForCode(r.ErrorCode), text(r.ErrorMessage))
		}
	}
	altered := alteredGroup{Group: name}
	altered.Set, altered.Unset = brokers.Changed(changes)
	return c.Tell(altered, "%s altered: %s", name, strings.Join(brokers.TellChanges(changes), ", "))
}

// settingsOf returns what is set for a share group, by name; nothing where the broker has no settings of groups.
func settingsOf(ctx context.Context, c *brokers.Client, name string) (map[string]string, error) {
	request := kmsg.NewPtrDescribeConfigsRequest()
	resource := kmsg.NewDescribeConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeGroupConfig, name
	request.Resources = append(request.Resources, resource)
	response, err := request.RequestWith(ctx, c.Kafka)
	if err != nil {
		return nil, err
	}
	settings := map[string]string{}
	for i := range response.Resources {
		for _, config := range response.Resources[i].Configs {
			if config.Source == kmsg.ConfigSourceGroupConfig && config.Value != nil {
				settings[config.Name] = *config.Value
			}
		}
	}
	return settings, nil
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
