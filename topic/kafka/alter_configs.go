package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
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
func (s *Server) alterConfigs(_ *call, r *kmsg.AlterConfigsRequest) answer {
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
			err := checkAlterable(of, again[of])
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
func checkAlterable(of resource, again bool) error {
	switch {
	case again:
		return refuse(kerr.InvalidRequest, "the request names %v %q more than once", of.kind, of.name)
	case of.kind == kmsg.ConfigResourceTypeBroker:
		return refuse(kerr.InvalidRequest, `the settings of a broker are set where it is started: "sluice config" shows how`)
	case of.kind != kmsg.ConfigResourceTypeTopic:
		return refuse(kerr.InvalidRequest, "settings of a %v: those of topics can be altered", of.kind)
	}
	return nil
}
