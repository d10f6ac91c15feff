package kafka

import (
	"context"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
)

// IncrementalAlterConfigs: versions 0 and 1.
//
//   - SET and DELETE change single settings of a topic; APPEND and SUBTRACT are
//     for settings that are lists.
//   - The settings of a broker cannot be changed: the server's configuration has them.
//   - With validate_only the request is checked only.
func (s *Server) incrementalAlterConfigs(_ *call, r *kmsg.IncrementalAlterConfigsRequest) answer {
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
			err := checkAlterable(of, again[of])
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
