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
//   - The request replaces all settings of a topic: a setting that it does not name, or names
//     without a value, falls back to its default.
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
	return s.broker.Alter(ctx, wanted.ResourceName, settings, true, dryRun)
}

// checkAlterable refuses resources other than topics, and duplicates.
func checkAlterable(c *call, of resource, again bool) error {
	switch {
	case again:
		return refuse(kerr.InvalidRequest, "the request names %v %q more than once", of.kind, of.name)
	case of.kind == kmsg.ConfigResourceTypeBroker:
		return refuse(kerr.InvalidRequest, `the settings of a broker are set where it is started: "sluice config" shows how`)
	case of.kind != kmsg.ConfigResourceTypeTopic:
		return refuse(kerr.InvalidRequest, "settings of a %v: those of topics can be altered", of.kind)
	}
	return c.authorize(auth.Topic, of.name)
}

// IncrementalAlterConfigs: versions 0 and 1.
//
//   - SET and DELETE change single settings of a topic; APPEND and SUBTRACT are
//     for settings that are lists.
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
	t, err := s.broker.Topic(wanted.ResourceName)
	if err != nil {
		return err
	}
	settings := map[string]*string{}
	for i := range wanted.Configs {
		name := wanted.Configs[i].Name
		if _, again := settings[name]; again {
			return refuse(kerr.InvalidRequest, "setting %s is given more than once", name)
		}
		if settings[name], err = changedValue(t, &wanted.Configs[i]); err != nil {
			return err
		}
	}
	return s.broker.Alter(ctx, wanted.ResourceName, settings, false, dryRun)
}

// changedValue returns the new value of a setting, nil for the default.
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
