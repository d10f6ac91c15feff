package kafka

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/kafka/auth"
)

// Metadata: versions 0 to 12.
//
// Answers the brokers, and the topics that are requested by name or, from version 10 on, by id: all
// if the list is null (empty in version 0). A view appears as a topic with the partitions of its
// source. A topic that does not exist is created if the broker's settings and the client (from
// version 4 on) allow it, and the client may create it.
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
			response.AuthorizedOperations = c.operations(auth.Cluster, "")
		}
		if r.Topics == nil || r.Version == 0 && len(r.Topics) == 0 {
			topics := c.topics()
			s.awaitReplicas(ctx, topics)
			for _, t := range topics {
				response.Topics = append(response.Topics, describe(c, t, nodes, r))
			}
			return response
		}
		var found []*broker.Topic
		found, response.Topics = s.askedTopics(ctx, c, r)
		s.awaitReplicas(ctx, found)
		for _, t := range found {
			response.Topics = append(response.Topics, describe(c, t, nodes, r))
		}
		return response
	}
}

// askedTopics returns the requested topics, each once, though it may be named twice, or both by name
// and by id; and an answer for each of those that do not exist.
func (s *Server) askedTopics(ctx context.Context, c *call, r *kmsg.MetadataRequest) (found []*broker.Topic, refused []kmsg.MetadataResponseTopic) {
	order := func(x, y kmsg.MetadataRequestTopic) int {
		return cmp.Or(bytes.Compare(x.TopicID[:], y.TopicID[:]), cmp.Compare(orEmpty(x.Topic), orEmpty(y.Topic)))
	}
	slices.SortFunc(r.Topics, order)
	wanted := slices.CompactFunc(r.Topics, func(x, y kmsg.MetadataRequestTopic) bool { return order(x, y) == 0 })
	seen := once[topic.ID]{}
	refused = make([]kmsg.MetadataResponseTopic, 0, len(wanted))
	for _, asked := range wanted {
		t, err := s.askedTopic(ctx, c, asked, r.AllowAutoTopicCreation || r.Version < 4)
		switch {
		case err != nil:
			refused = append(refused, s.refusedTopic(asked, r.Version, err))
		case seen.first(t.ID()):
			found = append(found, t)
		}
	}
	return found, refused
}

// refusedTopic returns the answer for a topic that cannot be described.
func (s *Server) refusedTopic(asked kmsg.MetadataRequestTopic, version int16, err error) kmsg.MetadataResponseTopic {
	s.unexpected("describe a topic", "", err)
	refused := kmsg.NewMetadataResponseTopic()
	refused.Topic, refused.TopicID, refused.ErrorCode = asked.Topic, asked.TopicID, code(err)
	if refused.Topic == nil && version < 12 { // in these versions it may not be null
		refused.Topic = new(string)
	}
	return refused
}

// awaitReplicas waits briefly until the replicas of topics are known, once for an answer.
func (s *Server) awaitReplicas(ctx context.Context, topics []*broker.Topic) {
	var partitions []*broker.Partition
	for _, t := range topics {
		partitions = append(partitions, t.Partitions()...)
	}
	s.broker.AwaitReplicas(ctx, partitions)
}

func (s *Server) askedTopic(ctx context.Context, c *call, asked kmsg.MetadataRequestTopic, create bool) (*broker.Topic, error) {
	if asked.TopicID != (topic.ID{}) {
		return c.topicByID(asked.TopicID)
	}
	if asked.Topic == nil {
		return nil, errUnnamed
	}
	t, err := c.topic(*asked.Topic)
	if errors.Is(err, topic.ErrNoTopic) && create && !s.broker.Config().AutoCreateOff && c.may(keyCreateTopics, auth.Topic, *asked.Topic) {
		return s.broker.AutoCreate(ctx, *asked.Topic, c.owner())
	}
	return t, err
}

var errUnnamed = fail(kerr.InvalidRequest, "topic: want a name or an id")

// partitionCost is the memory of a partition with its replicas in an answer, topicCost that of a topic.
const (
	partitionCost = 256
	topicCost     = 512
)

// describe describes a topic's partitions and their leaders.
func describe(c *call, t *broker.Topic, nodes []topic.Node, r *kmsg.MetadataRequest) kmsg.MetadataResponseTopic {
	described := kmsg.NewMetadataResponseTopic()
	described.Topic, described.TopicID = kmsg.StringPtr(t.Name()), t.ID()
	if r.IncludeTopicAuthorizedOperations {
		described.AuthorizedOperations = c.operations(auth.Topic, t.Name())
	}
	partitions := t.Partitions()
	if err := c.memory.add(topicCost + int64(len(partitions))*partitionCost); err != nil {
		described.ErrorCode = code(err)
		return described
	}
	described.Partitions = make([]kmsg.MetadataResponseTopicPartition, 0, len(partitions))
	for _, p := range partitions {
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
