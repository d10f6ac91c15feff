package kafka

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/kafka/auth"
)

// ListPartitionReassignments: version 0. Returns the requested partitions, or all, that are being
// reassigned: the brokers that are to have a replica and do not yet, and those that are to give
// theirs up. With one broker there are none.
func (s *Server) listPartitionReassignments(c *call, r *kmsg.ListPartitionReassignmentsRequest) answer {
	return func(ctx context.Context) kmsg.Response {
		response := r.ResponseKind().(*kmsg.ListPartitionReassignmentsResponse)
		var moving []broker.Reassignment
		err := c.authorize(auth.Cluster, "")
		if err == nil {
			moving, err = s.broker.Reassignments(ctx)
		}
		if err == nil {
			err = c.memory.add(int64(len(moving)) * partitionCost)
		}
		if err != nil {
			moving = nil
		}
		response.ErrorCode, response.ErrorMessage = s.outcome("list reassignments", err)
		for i := range moving {
			m := &moving[i]
			if !wantsMove(r.Topics, m) {
				continue
			}
			if n := len(response.Topics); n == 0 || response.Topics[n-1].Topic != m.Topic {
				t := kmsg.NewListPartitionReassignmentsResponseTopic()
				t.Topic = m.Topic
				response.Topics = append(response.Topics, t)
			}
			p := kmsg.NewListPartitionReassignmentsResponseTopicPartition()
			p.Partition, p.AddingReplicas, p.RemovingReplicas = m.Partition, m.Adding, m.Removing
			p.Replicas = slices.Concat(m.Target, m.Removing)
			t := &response.Topics[len(response.Topics)-1]
			t.Partitions = append(t.Partitions, p)
		}
		return response
	}
}

// wantsMove reports whether a client has requested a partition; nil requests all.
func wantsMove(topics []kmsg.ListPartitionReassignmentsRequestTopic, m *broker.Reassignment) bool {
	return topics == nil || slices.ContainsFunc(topics, func(t kmsg.ListPartitionReassignmentsRequestTopic) bool {
		return t.Topic == m.Topic && slices.Contains(t.Partitions, m.Partition)
	})
}
