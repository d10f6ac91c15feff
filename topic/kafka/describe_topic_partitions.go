package kafka

import (
	"context"
	"math"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
)

// maxDescribedPartitions is the maximum of partitions in one answer, as in Kafka.
const maxDescribedPartitions = 2000

// DescribeTopicPartitions: version 0.
//
//   - The answer has the requested topics, or all, ordered by name, from the cursor on.
//   - At the limit of partitions the answer has a cursor for the next request. A cursor at a deleted
//     topic continues after it.
func (s *Server) describeTopicPartitions(c *call, r *kmsg.DescribeTopicPartitionsRequest) answer {
	return func(ctx context.Context) kmsg.Response { return s.describePage(ctx, c, r) }
}

func (s *Server) describePage(ctx context.Context, c *call, r *kmsg.DescribeTopicPartitionsRequest) kmsg.Response {
	response := r.ResponseKind().(*kmsg.DescribeTopicPartitionsResponse)
	nodes := s.nodes(c)
	left := min(int(r.ResponsePartitionLimit), maxDescribedPartitions)
	if left < 1 {
		left = maxDescribedPartitions
	}
	for _, name := range namesFrom(c, r) {
		if left == 0 {
			response.NextCursor = newCursor(name, 0)
			break
		}
		first := int32(0)
		if r.Cursor != nil && r.Cursor.Topic == name {
			first = max(r.Cursor.Partition, 0)
		}
		described, next := s.describePartitions(ctx, c, nodes, name, first, left)
		response.Topics = append(response.Topics, described)
		left -= len(described.Partitions)
		if next >= 0 {
			response.NextCursor = newCursor(name, next)
			break
		}
	}
	return response
}

func newCursor(name string, partition int32) *kmsg.DescribeTopicPartitionsResponseNextCursor {
	cursor := kmsg.NewDescribeTopicPartitionsResponseNextCursor()
	cursor.Topic, cursor.Partition = name, partition
	return &cursor
}

// namesFrom returns the requested names, from the cursor on.
func namesFrom(c *call, r *kmsg.DescribeTopicPartitionsRequest) []string {
	names := make([]string, 0, len(r.Topics))
	for i := range r.Topics {
		names = append(names, r.Topics[i].Topic)
	}
	if len(r.Topics) == 0 {
		for _, t := range c.topics() {
			names = append(names, t.Name())
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if r.Cursor != nil {
		at, _ := slices.BinarySearch(names, r.Cursor.Topic)
		names = names[at:]
	}
	return names
}

// describePartitions describes at most limit partitions of a topic, and returns
// the number of the next, or -1.
func (s *Server) describePartitions(ctx context.Context, c *call, nodes []topic.Node, name string, first int32, limit int) (kmsg.DescribeTopicPartitionsResponseTopic, int32) {
	described := kmsg.NewDescribeTopicPartitionsResponseTopic()
	described.Topic = kmsg.StringPtr(name)
	described.AuthorizedOperations = math.MinInt32 // not reported
	t, err := c.topic(name)
	if err != nil {
		described.ErrorCode = code(err)
		return described, -1
	}
	described.TopicID = t.ID()
	partitions := t.Partitions()
	partitions = partitions[min(int(first), len(partitions)):]
	page := partitions[:min(limit, len(partitions))]
	if err := c.memory.add(topicCost + int64(len(page))*partitionCost); err != nil {
		described.ErrorCode = code(err)
		return described, -1
	}
	s.broker.AwaitReplicas(ctx, page)
	for _, p := range page {
		described.Partitions = append(described.Partitions, describePartition(p, nodes))
	}
	if len(partitions) > limit {
		return described, partitions[limit].Number()
	}
	return described, -1
}

func describePartition(p *broker.Partition, nodes []topic.Node) kmsg.DescribeTopicPartitionsResponseTopicPartition {
	described := kmsg.NewDescribeTopicPartitionsResponseTopicPartition()
	described.Partition = p.Number()
	described.LeaderID, described.LeaderEpoch = p.Leader(), p.Epoch()
	described.Replicas, described.ISR = p.Replicas(), p.InSync()
	described.OfflineReplicas = offline(nodes, described.Replicas)
	if described.LeaderID < 0 {
		described.ErrorCode = kerr.LeaderNotAvailable.Code
	}
	return described
}
