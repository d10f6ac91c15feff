package kafka

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/kafka/auth"
)

// AlterPartitionAssignments: versions 0 and 1.
//
//   - The brokers of a partition, the preferred leader first, become its target; the answer
//     does not wait for the data. Each broker must belong to the cluster, and new ones must
//     be alive.
//   - Null replicas cancel a reassignment in progress: the partition stays where it is.
//   - 1: the client can forbid a change of the number of replicas.
func (s *Server) alterPartitionAssignments(c *call, r *kmsg.AlterPartitionAssignmentsRequest) answer {
	return func(ctx context.Context) kmsg.Response {
		ctx, cancel := adminContext(ctx)
		defer cancel()
		response := r.ResponseKind().(*kmsg.AlterPartitionAssignmentsResponse)
		if err := c.authorize(auth.Cluster, ""); err != nil {
			response.ErrorCode, response.ErrorMessage = code(err), message(err)
			return response
		}
		response.AllowReplicationFactorChange = r.AllowReplicationFactorChange
		for i := range r.Topics {
			response.Topics = append(response.Topics, s.reassign(ctx, &r.Topics[i], r.Version < 1 || r.AllowReplicationFactorChange))
		}
		return response
	}
}

// reassign changes the brokers of a topic's partitions.
func (s *Server) reassign(ctx context.Context, wanted *kmsg.AlterPartitionAssignmentsRequestTopic, resize bool) kmsg.AlterPartitionAssignmentsResponseTopic {
	altered := kmsg.NewAlterPartitionAssignmentsResponseTopic()
	altered.Topic = wanted.Topic
	again := twice(wanted.Partitions, func(p *kmsg.AlterPartitionAssignmentsRequestTopicPartition) int32 { return p.Partition })
	errs := make([]error, len(wanted.Partitions))
	moves := map[int32][]int32{}
	for i := range wanted.Partitions {
		p := &wanted.Partitions[i]
		if again[p.Partition] {
			errs[i] = refuse(kerr.InvalidRequest, "the request names partition %d more than once", p.Partition)
		} else if errs[i] = s.checkMove(wanted.Topic, p, resize); errs[i] == nil {
			moves[p.Partition] = p.Replicas
		}
	}
	refused, err := s.broker.Reassign(ctx, wanted.Topic, moves)
	for i := range wanted.Partitions {
		result := kmsg.NewAlterPartitionAssignmentsResponseTopicPartition()
		result.Partition = wanted.Partitions[i].Partition
		outcome := errs[i]
		if outcome == nil {
			if outcome = err; outcome == nil {
				outcome = refused[result.Partition]
			}
		}
		result.ErrorCode, result.ErrorMessage = s.outcome("assign partitions", outcome)
		altered.Partitions = append(altered.Partitions, result)
	}
	return altered
}

// checkMove refuses a change of the number of replicas if the client forbids it.
func (s *Server) checkMove(name string, wanted *kmsg.AlterPartitionAssignmentsRequestTopicPartition, resize bool) error {
	t, err := s.broker.Topic(name)
	if err != nil {
		return err
	}
	p, err := t.Find(wanted.Partition)
	if err != nil {
		return err
	}
	if have := len(p.Target()); !resize && wanted.Replicas != nil && len(wanted.Replicas) != have {
		return refuse(kerr.InvalidReplicationFactor, "partition %d has %d replicas, and the request does not allow to make them %d", wanted.Partition, have, len(wanted.Replicas))
	}
	return nil
}

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
