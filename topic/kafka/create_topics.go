package kafka

import (
	"cmp"
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/kafka/auth"
)

// CreateTopics: versions 0 to 7.
//
//   - Each topic has its own outcome. A topic that occurs twice is refused.
//   - -1 partitions or replicas are the broker's default, in every version.
//   - A replica assignment has the brokers of each partition, the preferred leader first.
//   - With validate_only the request is checked only.
//   - From version 5 on the answer has the settings of the topic, unless it would be too large.
func (s *Server) createTopics(c *call, r *kmsg.CreateTopicsRequest) answer {
	return func(ctx context.Context) kmsg.Response {
		ctx, cancel := adminContext(ctx)
		defer cancel()
		again := twice(r.Topics, func(t *kmsg.CreateTopicsRequestTopic) string { return t.Topic })
		response := r.ResponseKind().(*kmsg.CreateTopicsResponse)
		response.Topics = make([]kmsg.CreateTopicsResponseTopic, len(r.Topics))
		specs := make([]topic.Spec, len(r.Topics))
		for i := range r.Topics {
			wanted, made := &r.Topics[i], &response.Topics[i]
			*made = kmsg.NewCreateTopicsResponseTopic()
			made.Topic = wanted.Topic
			err := refuse(kerr.InvalidRequest, "the request names the topic more than once")
			if !again[wanted.Topic] {
				specs[i], err = s.createTopic(ctx, c, wanted, r.ValidateOnly, made)
			}
			made.ErrorCode, made.ErrorMessage = s.outcome("create topic", err)
		}
		if r.Version < configsSince {
			return response
		}
		for i := range specs { // when all are made: a large answer must not wait for the disk
			if made := &response.Topics[i]; made.ErrorCode == 0 {
				s.describeMade(c, specs[i], made)
			}
		}
		return response
	}
}

// configsSince is the version from which on an answer has the settings of topics.
const configsSince = 5

// createTopic creates a topic. It returns the spec that the client has asked for.
func (s *Server) createTopic(ctx context.Context, c *call, wanted *kmsg.CreateTopicsRequestTopic, dryRun bool, made *kmsg.CreateTopicsResponseTopic) (topic.Spec, error) {
	if err := c.authorize(auth.Topic, wanted.Topic); err != nil {
		return topic.Spec{}, err
	}
	spec, err := s.specOf(wanted)
	if err != nil {
		return spec, err
	}
	spec.Owner = c.owner()
	spec.Lends = c.may(keyFetch, auth.Topic, spec.Settings[topic.SettingViewOf])
	t, err := s.broker.Create(ctx, spec, dryRun)
	if err != nil {
		return spec, err
	}
	if !dryRun {
		made.TopicID = t.ID()
	}
	return spec, nil
}

// describeMade describes a topic by its spec: after a check only, the topic does not exist.
func (s *Server) describeMade(c *call, spec topic.Spec, made *kmsg.CreateTopicsResponseTopic) {
	configs, err := s.configsMade(spec, made)
	if err == nil {
		err = c.memory.add(sizeOfConfigs(configs, false))
	}
	if err != nil {
		made.ConfigErrorCode = code(err)
		return
	}
	made.Configs = make([]kmsg.CreateTopicsResponseTopicConfig, len(configs))
	for i, described := range configs {
		config := &made.Configs[i]
		*config = kmsg.NewCreateTopicsResponseTopicConfig()
		config.Name, config.Value = described.name, described.value
		config.ReadOnly, config.Source = described.readOnly, int8(described.source)
	}
}

// configsMade returns the settings of a topic by its spec, and sets the number of its partitions and
// replicas.
func (s *Server) configsMade(spec topic.Spec, made *kmsg.CreateTopicsResponseTopic) ([]configEntry, error) {
	settings, err := topic.ParseSettings(spec.Settings, s.broker.Config())
	if err != nil {
		return nil, err
	}
	made.NumPartitions = cmp.Or(spec.Partitions, s.broker.Config().Partitions)
	made.ReplicationFactor = cmp.Or(spec.Replicas, s.broker.DefaultReplicas())
	if len(spec.Assignment) > 0 {
		made.ReplicationFactor = int16(len(spec.Assignment[0]))
	}
	if settings.ViewOf != "" {
		source, err := s.broker.Topic(settings.ViewOf)
		if err != nil {
			return nil, err
		}
		made.NumPartitions = int32(len(source.Partitions()))
		made.ReplicationFactor = int16(len(source.Partitions()[0].Replicas()))
	}
	return s.topicConfigs(spec.Settings, settings), nil
}

// specOf returns the spec that a request asks for.
func (s *Server) specOf(wanted *kmsg.CreateTopicsRequestTopic) (topic.Spec, error) {
	spec := topic.Spec{Name: wanted.Topic, Partitions: wanted.NumPartitions, Replicas: wanted.ReplicationFactor}
	switch {
	case len(wanted.ReplicaAssignment) > 0:
		if spec.Partitions != -1 || spec.Replicas != -1 {
			return spec, refuse(kerr.InvalidRequest, "partitions %d and replicas %d beside an assignment: want -1 for both", spec.Partitions, spec.Replicas)
		}
		var err error
		if spec.Assignment, err = assignmentOf(wanted.ReplicaAssignment); err != nil {
			return spec, err
		}
		spec.Partitions = int32(len(spec.Assignment))
	case spec.Partitions < -1 || spec.Partitions == 0:
		return spec, refuse(kerr.InvalidPartitions, "partitions %d: want 1 or more, or -1 for the default", spec.Partitions)
	case spec.Replicas < -1 || spec.Replicas == 0:
		return spec, refuse(kerr.InvalidReplicationFactor, "replicas %d: want 1 to 5, or -1 for the default", spec.Replicas)
	}
	spec.Partitions, spec.Replicas = max(spec.Partitions, 0), max(spec.Replicas, 0)
	spec.Settings = make(map[string]string, len(wanted.Configs))
	for i := range wanted.Configs {
		config := &wanted.Configs[i]
		if _, again := spec.Settings[config.Name]; again {
			return spec, refuse(kerr.InvalidConfig, "setting %s is given more than once", config.Name)
		}
		if config.Value == nil {
			return spec, refuse(kerr.InvalidConfig, "setting %s has no value", config.Name)
		}
		spec.Settings[config.Name] = *config.Value
	}
	return spec, nil
}

// assignmentOf returns the brokers of partitions 0 to n-1, which may come in any order.
func assignmentOf(assignment []kmsg.CreateTopicsRequestTopicReplicaAssignment) ([][]int32, error) {
	sorted := slices.SortedFunc(slices.Values(assignment), func(x, y kmsg.CreateTopicsRequestTopicReplicaAssignment) int {
		return cmp.Compare(x.Partition, y.Partition)
	})
	sets := make([][]int32, len(sorted))
	for i := range sorted {
		if sorted[i].Partition != int32(i) {
			return nil, refuse(kerr.InvalidReplicaAssignment, "the assignment has no partition %d, or one twice: want each from 0 on, once", i)
		}
		sets[i] = sorted[i].Replicas
	}
	return sets, nil
}
