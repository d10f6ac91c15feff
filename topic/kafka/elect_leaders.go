package kafka

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/kafka/auth"
)

// ElectLeaders: versions 0 to 2.
//
//   - Transfers the leadership of partitions to their preferred leaders, if those are current.
//     ELECTION_NOT_NEEDED if they lead already, or there is one broker.
//   - If all partitions are requested, those that need no election are left out.
//   - 1: unclean elections, which are not supported: a partition without a leader gets
//     ELIGIBLE_LEADERS_NOT_AVAILABLE, and waits for the majority of its replicas.
func (s *Server) electLeaders(c *call, r *kmsg.ElectLeadersRequest) answer {
	return func(ctx context.Context) kmsg.Response {
		response := r.ResponseKind().(*kmsg.ElectLeadersResponse)
		if r.ElectionType < 0 || r.ElectionType > 1 {
			response.ErrorCode = kerr.InvalidRequest.Code
			return response
		}
		wanted, all := r.Topics, r.Topics == nil
		refused := c.authorize(auth.Cluster, "")
		response.ErrorCode = code(refused)
		if all && refused == nil {
			wanted = s.allToElect()
		}
		for i := range wanted {
			if all {
				if err := c.memory.add(topicCost + int64(len(wanted[i].Partitions))*partitionCost); err != nil {
					response.ErrorCode = code(err)
					return response
				}
			}
			elected := kmsg.NewElectLeadersResponseTopic()
			elected.Topic = wanted[i].Topic
			outcomes := s.elect(ctx, elected.Topic, wanted[i].Partitions, r.ElectionType == 1, refused)
			for j, number := range wanted[i].Partitions {
				if all && errors.Is(outcomes[j], topic.ErrElectionNotNeeded) {
					continue
				}
				result := kmsg.NewElectLeadersResponseTopicPartition()
				result.Partition = number
				result.ErrorCode, result.ErrorMessage = s.outcome("elect leaders", outcomes[j])
				elected.Partitions = append(elected.Partitions, result)
			}
			if len(elected.Partitions) > 0 {
				response.Topics = append(response.Topics, elected)
			}
		}
		return response
	}
}

// allToElect returns all partitions except those of views.
func (s *Server) allToElect() []kmsg.ElectLeadersRequestTopic {
	var all []kmsg.ElectLeadersRequestTopic
	for _, t := range s.broker.Topics() {
		if t.Source() != nil {
			continue
		}
		named := kmsg.NewElectLeadersRequestTopic()
		named.Topic = t.Name()
		for _, p := range t.Partitions() {
			named.Partitions = append(named.Partitions, p.Number())
		}
		all = append(all, named)
	}
	return all
}

// elect returns the outcome for each partition: err, unless that is nil.
func (s *Server) elect(ctx context.Context, name string, partitions []int32, unclean bool, err error) []error {
	outcomes := make([]error, len(partitions))
	var each map[int32]error
	if !unclean && err == nil {
		each, err = s.broker.ElectLeaders(ctx, name, partitions)
	}
	for i, number := range partitions {
		switch {
		case err != nil:
			outcomes[i] = err
		case unclean:
			outcomes[i] = s.unclean(name, number)
		default:
			outcomes[i] = each[number]
		}
	}
	return outcomes
}

// unclean returns the error for an unclean election.
func (s *Server) unclean(name string, number int32) error {
	t, err := s.broker.Topic(name)
	if err != nil {
		return err
	}
	p, err := t.Find(number)
	if err != nil {
		return err
	}
	if leader := p.Leader(); leader >= 0 {
		return refuseAs(topic.ErrElectionNotNeeded, "broker %d leads it", leader)
	}
	return refuse(kerr.EligibleLeadersNotAvailable, "a replica that may lack acknowledged records never leads: the partition waits for the majority of its replicas")
}
