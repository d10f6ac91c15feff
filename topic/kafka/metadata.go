package kafka

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic"
)

// What a client may do, as bits by the protocol's numbers of operations:
// everything, as long as there are no access lists.
const (
	topicOperations = 1<<3 | 1<<4 | 1<<5 | 1<<6 | 1<<7 | 1<<8 | 1<<10 | 1<<11
	// ClusterOperations are create, alter, describe, cluster action, describe
	// and alter configs, and idempotent write.
	clusterOperations = 1<<5 | 1<<7 | 1<<8 | 1<<9 | 1<<10 | 1<<11 | 1<<12
)

// Metadata: versions 0 to 12.
//
// Answers the brokers, and the topics that are asked for by name or, from
// version 10 on, by id: all if the list is null (empty in version 0). A view
// appears as a topic with the partitions of its source. A topic that does not
// exist is made, if the broker's settings and the client (from version 4 on)
// allow it.
//
//   - 1: the controller, which is this broker, and racks, of which there are
//     none. 2: the cluster's id. 7: leader epochs. 10: topic ids.
//   - 8: the operations that the client may do, if it asks.
//   - 13: would tell clients to start again elsewhere.
func (s *Server) metadata(c *call, r *kmsg.MetadataRequest) answer {
	return func(ctx context.Context) kmsg.Response {
		response := r.ResponseKind().(*kmsg.MetadataResponse)
		node := kmsg.NewMetadataResponseBroker()
		node.NodeID = s.broker.Node()
		node.Host, node.Port = s.advertised(c)
		response.Brokers = append(response.Brokers, node)
		cluster := s.broker.ClusterID()
		response.ClusterID, response.ControllerID = &cluster, node.NodeID
		if r.IncludeClusterAuthorizedOperations {
			response.AuthorizedOperations = clusterOperations
		}
		if r.Topics == nil || r.Version == 0 && len(r.Topics) == 0 {
			for _, t := range s.broker.Topics() {
				response.Topics = append(response.Topics, describe(t, r))
			}
			return response
		}
		seen := map[string]bool{}
		for _, asked := range r.Topics {
			found := s.describeAsked(ctx, asked, r)
			if found.Topic != nil && *found.Topic != "" && seen[*found.Topic] {
				continue // asked for by name and by id
			}
			if found.Topic != nil {
				seen[*found.Topic] = true
			}
			response.Topics = append(response.Topics, found)
		}
		return response
	}
}

// describeAsked describes a topic that is asked for.
func (s *Server) describeAsked(ctx context.Context, asked kmsg.MetadataRequestTopic, r *kmsg.MetadataRequest) kmsg.MetadataResponseTopic {
	t, err := s.askedTopic(ctx, asked, r.AllowAutoTopicCreation || r.Version < 4)
	if err == nil {
		return describe(t, r)
	}
	s.unexpected("describe a topic", err)
	unknown := kmsg.NewMetadataResponseTopic()
	unknown.Topic, unknown.TopicID, unknown.ErrorCode = asked.Topic, asked.TopicID, code(err)
	if unknown.Topic == nil && r.Version < 12 { // where it may not be null
		unknown.Topic = new(string)
	}
	return unknown
}

func (s *Server) askedTopic(ctx context.Context, asked kmsg.MetadataRequestTopic, create bool) (*topic.Topic, error) {
	if asked.TopicID != (topic.ID{}) {
		return s.topicByID(asked.TopicID)
	}
	if asked.Topic == nil {
		return nil, fail(kerr.InvalidRequest, "topic: want a name or an id")
	}
	t, err := s.broker.Topic(*asked.Topic)
	if errors.Is(err, topic.ErrNoTopic) && create && !s.broker.Config().AutoCreateOff {
		return s.broker.AutoCreate(ctx, *asked.Topic)
	}
	return t, err
}

// topicByID returns the topic of an id, or UNKNOWN_TOPIC_ID.
func (s *Server) topicByID(id topic.ID) (*topic.Topic, error) {
	t, err := s.broker.TopicByID(id)
	if errors.Is(err, topic.ErrNoTopic) {
		return nil, fail(kerr.UnknownTopicID, "no topic has that id")
	}
	return t, err
}

// describe tells a topic's partitions, and who leads them.
func describe(t *topic.Topic, r *kmsg.MetadataRequest) kmsg.MetadataResponseTopic {
	described := kmsg.NewMetadataResponseTopic()
	described.Topic, described.TopicID = kmsg.StringPtr(t.Name()), t.ID()
	if r.IncludeTopicAuthorizedOperations {
		described.AuthorizedOperations = topicOperations
	}
	for _, p := range t.Partitions() {
		partition := kmsg.NewMetadataResponseTopicPartition()
		partition.Partition, partition.Leader = p.Number(), p.Leader()
		partition.LeaderEpoch = p.Ends().Epoch
		partition.Replicas, partition.ISR = p.Replicas(), p.InSync()
		if partition.Leader < 0 {
			partition.ErrorCode = kerr.LeaderNotAvailable.Code
		}
		described.Partitions = append(described.Partitions, partition)
	}
	return described
}
