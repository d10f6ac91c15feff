package kafka

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ElectLeaders: versions 0 to 2.
//
//   - Each partition that was asked for is led by its one replica: it answers
//     ELECTION_NOT_NEEDED.
//   - When all partitions are asked for, those that need no election are left
//     out, so the answer is empty.
func (s *Server) electLeaders(_ *call, r *kmsg.ElectLeadersRequest) answer {
	response := r.ResponseKind().(*kmsg.ElectLeadersResponse)
	if r.ElectionType < 0 || r.ElectionType > 1 {
		response.ErrorCode = kerr.InvalidRequest.Code
		return respond(response)
	}
	for i := range r.Topics {
		elected := kmsg.NewElectLeadersResponseTopic()
		elected.Topic = r.Topics[i].Topic
		for _, number := range r.Topics[i].Partitions {
			p, err := s.partition(elected.Topic, number)
			if err == nil {
				err = refuse(kerr.ElectionNotNeeded, "broker %d leads it, the only one that has it", p.Leader())
			}
			result := kmsg.NewElectLeadersResponseTopicPartition()
			result.Partition = number
			result.ErrorCode, result.ErrorMessage = s.outcome("elect leaders", err)
			elected.Partitions = append(elected.Partitions, result)
		}
		response.Topics = append(response.Topics, elected)
	}
	return respond(response)
}
