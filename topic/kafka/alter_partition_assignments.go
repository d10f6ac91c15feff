package kafka

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// AlterPartitionAssignments: versions 0 and 1.
//
//   - There is one broker, so the assignment that each partition has is taken,
//     and does nothing; any other is refused with what would be right.
//   - No replicas means to end a move that is under way: there is none.
func (s *Server) alterPartitionAssignments(_ *call, r *kmsg.AlterPartitionAssignmentsRequest) answer {
	response := r.ResponseKind().(*kmsg.AlterPartitionAssignmentsResponse)
	response.AllowReplicationFactorChange = r.AllowReplicationFactorChange
	for i := range r.Topics {
		altered := kmsg.NewAlterPartitionAssignmentsResponseTopic()
		altered.Topic = r.Topics[i].Topic
		for j := range r.Topics[i].Partitions {
			wanted := &r.Topics[i].Partitions[j]
			err := s.exists(altered.Topic, wanted.Partition)
			switch {
			case err != nil:
			case wanted.Replicas == nil:
				err = refuse(kerr.NoReassignmentInProgress, "partition %d is not being moved", wanted.Partition)
			default:
				err = s.checkReplicas(wanted.Partition, wanted.Replicas)
			}
			result := kmsg.NewAlterPartitionAssignmentsResponseTopicPartition()
			result.Partition = wanted.Partition
			result.ErrorCode, result.ErrorMessage = s.outcome("assign partitions", err)
			altered.Partitions = append(altered.Partitions, result)
		}
		response.Topics = append(response.Topics, altered)
	}
	return respond(response)
}
