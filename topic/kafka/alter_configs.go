package kafka

import (
	"context"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/kafka/auth"
)

// resource names a topic or broker.
type resource struct {
	kind kmsg.ConfigResourceType
	name string
}

// AlterConfigs: versions 0 to 2.
//
//   - The request replaces all settings of a topic, or of a share group: a setting that it does not
//     name, or names without a value, falls back to its default. The group need not exist.
//   - The settings of a broker cannot be changed: the server's configuration has them.
//   - With validate_only the request is checked only.
func (s *Server) alterConfigs(c *call, r *kmsg.AlterConfigsRequest) answer {
	return func(ctx context.Context) kmsg.Response {
		ctx, cancel := adminContext(ctx)
		defer cancel()
		response := r.ResponseKind().(*kmsg.AlterConfigsResponse)
		again := twice(r.Resources, func(r *kmsg.AlterConfigsRequestResource) resource { return resource{r.ResourceType, r.ResourceName} })
		for i := range r.Resources {
			wanted := &r.Resources[i]
			altered := kmsg.NewAlterConfigsResponseResource()
			altered.ResourceType, altered.ResourceName = wanted.ResourceType, wanted.ResourceName
			of := resource{wanted.ResourceType, wanted.ResourceName}
			err := checkAlterable(c, of, again[of])
			if err == nil {
				err = s.replaceConfigs(ctx, wanted, r.ValidateOnly)
			}
			altered.ErrorCode, altered.ErrorMessage = s.outcome("alter settings", err)
			response.Resources = append(response.Resources, altered)
		}
		return response
	}
}

func (s *Server) replaceConfigs(ctx context.Context, wanted *kmsg.AlterConfigsRequestResource, dryRun bool) error {
	settings := map[string]*string{}
	for i := range wanted.Configs {
		name := wanted.Configs[i].Name
		if _, again := settings[name]; again {
			return refuse(kerr.InvalidRequest, "setting %s is given more than once", name)
		}
		settings[name] = wanted.Configs[i].Value
	}
	return s.alter(ctx, resource{wanted.ResourceType, wanted.ResourceName}, settings, true, dryRun)
}

// alter changes the settings of a topic or a group.
func (s *Server) alter(ctx context.Context, of resource, settings map[string]*string, replace, dryRun bool) error {
	if of.kind == kmsg.ConfigResourceTypeGroupConfig {
		return s.broker.AlterGroup(ctx, of.name, settings, replace, dryRun)
	}
	return s.broker.Alter(ctx, of.name, settings, replace, dryRun)
}

// checkAlterable refuses resources other than topics and groups, and duplicates.
func checkAlterable(c *call, of resource, again bool) error {
	switch {
	case again:
		return refuse(kerr.InvalidRequest, "the request names %v %q more than once", of.kind, of.name)
	case of.kind == kmsg.ConfigResourceTypeBroker:
		return refuse(kerr.InvalidRequest, `the settings of a broker are set where it is started: "sluice config" shows how`)
	case of.kind == kmsg.ConfigResourceTypeGroupConfig:
		return c.authorize(auth.Group, of.name)
	case of.kind != kmsg.ConfigResourceTypeTopic:
		return refuse(kerr.InvalidRequest, "settings of a %v: those of topics and groups can be altered", of.kind)
	}
	if err := c.authorize(auth.Topic, of.name); err != nil {
		return err
	}
	return c.mayLend(of.name)
}

// IncrementalAlterConfigs: versions 0 and 1.
//
//   - SET and DELETE change single settings of a topic, or of a share group, which need not exist;
//     APPEND and SUBTRACT are for settings that are lists.
//   - The settings of a broker cannot be changed: the server's configuration has them.
//   - With validate_only the request is checked only.
func (s *Server) incrementalAlterConfigs(c *call, r *kmsg.IncrementalAlterConfigsRequest) answer {
	return func(ctx context.Context) kmsg.Response {
		ctx, cancel := adminContext(ctx)
		defer cancel()
		response := r.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
		again := twice(r.Resources, func(r *kmsg.IncrementalAlterConfigsRequestResource) resource {
			return resource{r.ResourceType, r.ResourceName}
		})
		for i := range r.Resources {
			wanted := &r.Resources[i]
			altered := kmsg.NewIncrementalAlterConfigsResponseResource()
			altered.ResourceType, altered.ResourceName = wanted.ResourceType, wanted.ResourceName
			of := resource{wanted.ResourceType, wanted.ResourceName}
			err := checkAlterable(c, of, again[of])
			if err == nil {
				err = s.changeConfigs(ctx, wanted, r.ValidateOnly)
			}
			altered.ErrorCode, altered.ErrorMessage = s.outcome("alter settings", err)
			response.Resources = append(response.Resources, altered)
		}
		return response
	}
}

func (s *Server) changeConfigs(ctx context.Context, wanted *kmsg.IncrementalAlterConfigsRequestResource, dryRun bool) error {
	change := changedGroupValue
	if wanted.ResourceType == kmsg.ConfigResourceTypeTopic {
		t, err := s.broker.Topic(wanted.ResourceName)
		if err != nil {
			return err
		}
		change = func(c *kmsg.IncrementalAlterConfigsRequestResourceConfig) (*string, error) { return changedValue(t, c) }
	}
	settings := map[string]*string{}
	for i := range wanted.Configs {
		name := wanted.Configs[i].Name
		if _, again := settings[name]; again {
			return refuse(kerr.InvalidRequest, "setting %s is given more than once", name)
		}
		value, err := change(&wanted.Configs[i])
		if err != nil {
			return err
		}
		settings[name] = value
	}
	return s.alter(ctx, resource{wanted.ResourceType, wanted.ResourceName}, settings, false, dryRun)
}

// changedGroupValue returns the new value of a setting of a group, nil for the default.
func changedGroupValue(change *kmsg.IncrementalAlterConfigsRequestResourceConfig) (*string, error) {
	switch {
	case change.Op == kmsg.IncrementalAlterConfigOpDelete:
		_, err := topic.FindGroupSetting(change.Name)
		return nil, err
	case change.Op != kmsg.IncrementalAlterConfigOpSet:
		return nil, refuse(kerr.InvalidConfig, "setting %s is no list: set it, or delete it", change.Name)
	case change.Value == nil:
		return nil, refuse(kerr.InvalidConfig, "setting %s has no value", change.Name)
	}
	return change.Value, nil
}

// changedValue returns the new value of a setting of a topic, nil for the default.
func changedValue(t *broker.Topic, change *kmsg.IncrementalAlterConfigsRequestResourceConfig) (*string, error) {
	setting, err := topic.FindSetting(change.Name)
	if err != nil || change.Op == kmsg.IncrementalAlterConfigOpDelete {
		return nil, err
	}
	if change.Value == nil {
		return nil, refuse(kerr.InvalidConfig, "setting %s has no value", change.Name)
	}
	if change.Op == kmsg.IncrementalAlterConfigOpSet {
		return change.Value, nil
	}
	if setting.Kind != topic.KindList {
		return nil, refuse(kerr.InvalidConfig, "setting %s is no list: set it, or delete it", change.Name)
	}
	list := strings.Split(valueOf(setting, t.Own(), t.Settings()), ",")
	for part := range strings.SplitSeq(*change.Value, ",") {
		list = slices.DeleteFunc(list, func(s string) bool { return s == part })
		switch change.Op {
		case kmsg.IncrementalAlterConfigOpAppend:
			list = append(list, part)
		case kmsg.IncrementalAlterConfigOpSubtract:
		default:
			return nil, refuse(kerr.InvalidRequest, "operation %d on setting %s: want 0 to 3", change.Op, change.Name)
		}
	}
	value := strings.Join(list, ",")
	return &value, nil
}
