package kafka

import (
	"cmp"
	"context"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic/group"
	"github.com/sluice-project/sluice/topic/kafka/auth"
)

// DescribeConfigs: versions 0 to 4.
//
//   - Resources are topics, share groups, which need not exist, and this broker. The broker's own name is its number; the empty name,
//     which stands for a cluster's changeable defaults, has no settings.
//   - Without names the answer has all settings. Unknown names are left out.
//   - The source of a value is the topic or group, the server's settings or the default. Synonyms have the
//     values of the other sources.
//   - Settings with a single possible value, and all of the broker, are read-only.
func (s *Server) describeConfigs(c *call, r *kmsg.DescribeConfigsRequest) answer {
	return func(ctx context.Context) kmsg.Response { return s.describedConfigs(ctx, c, r) }
}

func (s *Server) describedConfigs(ctx context.Context, c *call, r *kmsg.DescribeConfigsRequest) kmsg.Response {
	response := r.ResponseKind().(*kmsg.DescribeConfigsResponse)
	asked := once[resource]{}
	response.Resources = make([]kmsg.DescribeConfigsResponseResource, 0, len(r.Resources))
	for i := range r.Resources {
		wanted := &r.Resources[i]
		if !asked.first(resource{wanted.ResourceType, wanted.ResourceName}) {
			continue
		}
		described := kmsg.NewDescribeConfigsResponseResource()
		described.ResourceType, described.ResourceName = wanted.ResourceType, wanted.ResourceName
		entries, err := s.configsOf(ctx, c, wanted.ResourceType, wanted.ResourceName)
		if len(wanted.ConfigNames) > 0 {
			entries = slices.DeleteFunc(entries, func(e configEntry) bool { return !slices.Contains(wanted.ConfigNames, e.name) })
		}
		if err == nil {
			err = c.memory.add(sizeOfConfigs(entries, r.IncludeDocumentation))
		}
		if err != nil {
			entries = nil
		}
		described.ErrorCode, described.ErrorMessage = s.outcome("describe settings", err)
		for j := range entries {
			described.Configs = append(described.Configs, entries[j].describe(r.IncludeSynonyms, r.IncludeDocumentation))
		}
		response.Resources = append(response.Resources, described)
	}
	return response
}

// configCost is the memory of a setting in an answer, without its texts.
const configCost = 384

// sizeOfConfigs returns the memory of settings in an answer.
func sizeOfConfigs(entries []configEntry, doc bool) (size int64) {
	for i := range entries {
		size += configCost
		if entries[i].value != nil {
			size += int64(len(*entries[i].value))
		}
		if doc {
			size += int64(len(entries[i].doc))
		}
		for _, other := range entries[i].synonyms {
			size += int64(len(other.name) + len(other.value))
		}
	}
	return size
}

// configsOf returns the settings of a resource.
func (s *Server) configsOf(ctx context.Context, c *call, kind kmsg.ConfigResourceType, name string) ([]configEntry, error) {
	switch kind {
	case kmsg.ConfigResourceTypeTopic:
		t, err := c.topic(name)
		if err != nil {
			return nil, err
		}
		return s.topicConfigs(t.Own(), t.Settings()), nil
	case kmsg.ConfigResourceTypeGroupConfig:
		if err := cmp.Or(c.authorize(auth.Group, name), group.CheckName(name)); err != nil {
			return nil, err
		}
		settings, own, err := s.broker.GroupSettings(ctx, name)
		return s.groupConfigs(own, settings), err
	case kmsg.ConfigResourceTypeBroker:
		if err := c.authorize(auth.Cluster, ""); err != nil {
			return nil, err
		}
		node := strconv.Itoa(int(s.broker.Node()))
		if name != "" && name != node {
			return nil, refuse(kerr.InvalidRequest, "broker %q: this is broker %s", name, node)
		}
		if name == "" {
			return nil, nil
		}
		return s.brokerConfigs(), nil
	}
	return nil, refuse(kerr.InvalidRequest, "settings of a %v: there are those of topics, groups and brokers", kind)
}

func (e *configEntry) describe(synonyms, doc bool) kmsg.DescribeConfigsResponseResourceConfig {
	config := kmsg.NewDescribeConfigsResponseResourceConfig()
	config.Name, config.Value, config.ReadOnly = e.name, e.value, e.readOnly
	config.Source, config.ConfigType = e.source, e.kind
	config.IsDefault = e.source == kmsg.ConfigSourceDefaultConfig
	if doc {
		config.Documentation = &e.doc
	}
	if !synonyms {
		return config
	}
	for _, other := range e.synonyms {
		synonym := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
		synonym.Name, synonym.Value, synonym.Source = other.name, &other.value, other.source
		config.ConfigSynonyms = append(config.ConfigSynonyms, synonym)
	}
	return config
}
