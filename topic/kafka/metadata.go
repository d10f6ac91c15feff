package kafka

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
)

// The operations that a client may do, as bits by the protocol's numbers: all, since there are no
// access lists.
const (
	topicOperations = 1<<3 | 1<<4 | 1<<5 | 1<<6 | 1<<7 | 1<<8 | 1<<10 | 1<<11
	// ClusterOperations are create, alter, describe, cluster action, describe
	// and alter configs, and idempotent write.
	clusterOperations = 1<<5 | 1<<7 | 1<<8 | 1<<9 | 1<<10 | 1<<11 | 1<<12
)

// Metadata: versions 0 to 12.
//
// Answers the brokers, and the topics that are requested by name or, from version 10 on, by id: all
// if the list is null (empty in version 0). A view appears as a topic with the partitions of its
// source. A topic that does not exist is created if the broker's settings and the client (from
// version 4 on) allow it.
//
// In a cluster the brokers are the live nodes, or all nodes if this one is isolated. A partition
// without a leader, as during an election, has LEADER_NOT_AVAILABLE. Replicas and in-sync replicas
// may be a second old.
//
//   - 1: the controller, which is the first broker, and racks. 2: the cluster's
//     id. 5: replicas that are not alive. 7: leader epochs. 10: topic ids.
//   - 8: the allowed operations, if the client asks.
//   - 13: would tell clients to start again elsewhere.
func (s *Server) metadata(c *call, r *kmsg.MetadataRequest) answer {
	return func(ctx context.Context) kmsg.Response {
		response := r.ResponseKind().(*kmsg.MetadataResponse)
		nodes := s.nodes(c)
		for _, n := range nodes {
			node := kmsg.NewMetadataResponseBroker()
			node.NodeID, node.Host, node.Port, node.Rack = n.ID, n.Host, n.Port, rackOf(n)
			response.Brokers = append(response.Brokers, node)
		}
		cluster := s.broker.ClusterID()
		response.ClusterID, response.ControllerID = &cluster, controller(nodes)
		if r.IncludeClusterAuthorizedOperations {
			response.AuthorizedOperations = clusterOperations
		}
		if r.Topics == nil || r.Version == 0 && len(r.Topics) == 0 {
			topics := s.broker.Topics()
			s.awaitReplicas(ctx, topics)
			for _, t := range topics {
				response.Topics = append(response.Topics, describe(t, nodes, r))
			}
			return response
		}
		s.awaitReplicas(ctx, s.known(r.Topics))
		seen := once[string]{}
		for _, asked := range r.Topics {
			found := s.describeAsked(ctx, asked, nodes, r)
			if found.Topic != nil && *found.Topic != "" && !seen.first(*found.Topic) {
				continue // identified both by name and by id, or named twice
			}
			response.Topics = append(response.Topics, found)
		}
		return response
	}
}

// known returns the requested topics that exist.
func (s *Server) known(asked []kmsg.MetadataRequestTopic) []*broker.Topic {
	var topics []*broker.Topic
	seen := once[topic.ID]{}
	for i := range asked {
		t, err := s.broker.TopicByID(asked[i].TopicID)
		if err != nil && asked[i].Topic != nil {
			t, err = s.broker.Topic(*asked[i].Topic)
		}
		if err == nil && seen.first(t.ID()) {
			topics = append(topics, t)
		}
	}
	return topics
}

// awaitReplicas waits briefly until the replicas of topics are known, once for an answer.
func (s *Server) awaitReplicas(ctx context.Context, topics []*broker.Topic) {
	var partitions []*broker.Partition
	for _, t := range topics {
		partitions = append(partitions, t.Partitions()...)
	}
	s.broker.AwaitReplicas(ctx, partitions)
}

// describeAsked describes a requested topic.
func (s *Server) describeAsked(ctx context.Context, asked kmsg.MetadataRequestTopic, nodes []topic.Node, r *kmsg.MetadataRequest) kmsg.MetadataResponseTopic {
	t, err := s.askedTopic(ctx, asked, r.AllowAutoTopicCreation || r.Version < 4)
	if err == nil {
		return describe(t, nodes, r)
	}
	s.unexpected("describe a topic", err)
	unknown := kmsg.NewMetadataResponseTopic()
	unknown.Topic, unknown.TopicID, unknown.ErrorCode = asked.Topic, asked.TopicID, code(err)
	if unknown.Topic == nil && r.Version < 12 { // in these versions it may not be null
		unknown.Topic = new(string)
	}
	return unknown
}

func (s *Server) askedTopic(ctx context.Context, asked kmsg.MetadataRequestTopic, create bool) (*broker.Topic, error) {
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
func (s *Server) topicByID(id topic.ID) (*broker.Topic, error) {
	t, err := s.broker.TopicByID(id)
	if errors.Is(err, topic.ErrNoTopic) {
		return nil, fail(kerr.UnknownTopicID, "no topic has that id")
	}
	return t, err
}

// describe describes a topic's partitions and their leaders.
func describe(t *broker.Topic, nodes []topic.Node, r *kmsg.MetadataRequest) kmsg.MetadataResponseTopic {
	described := kmsg.NewMetadataResponseTopic()
	described.Topic, described.TopicID = kmsg.StringPtr(t.Name()), t.ID()
	if r.IncludeTopicAuthorizedOperations {
		described.AuthorizedOperations = topicOperations
	}
	for _, p := range t.Partitions() {
		partition := kmsg.NewMetadataResponseTopicPartition()
		partition.Partition, partition.Leader = p.Number(), p.Leader()
		partition.LeaderEpoch = p.Epoch()
		partition.Replicas, partition.ISR = p.Replicas(), p.InSync()
		partition.OfflineReplicas = offline(nodes, partition.Replicas)
		if partition.Leader < 0 {
			partition.ErrorCode = kerr.LeaderNotAvailable.Code
		}
		described.Partitions = append(described.Partitions, partition)
	}
	return described
}
