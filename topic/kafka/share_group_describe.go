package kafka

import (
	"context"
	"fmt"
	"iter"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/group"
	"github.com/sluice-project/sluice/topic/group/assign"
	"github.com/sluice-project/sluice/topic/kafka/auth"
)

// ShareGroupDescribe: version 1.
//
// Answers the state, epoch and members of share groups, with the partitions that members have. Other groups are
// GROUP_ID_NOT_FOUND. Topics that the client may not see are left out.
func (s *Server) shareGroupDescribe(c *call, r *kmsg.ShareGroupDescribeRequest) answer {
	return func(context.Context) kmsg.Response {
		response := r.ResponseKind().(*kmsg.ShareGroupDescribeResponse)
		names := distinct(r.GroupIDs)
		response.Groups = make([]kmsg.ShareGroupDescribeResponseGroup, 0, len(names))
		for _, name := range names {
			response.Groups = append(response.Groups, s.describedShare(c, name, r.IncludeAuthorizedOperations))
		}
		return response
	}
}

// shareGroup describes a share group that the client may see. Others are group.ErrOtherProtocol.
func (s *Server) shareGroup(c *call, name string) (group.Description, error) {
	if err := c.authorize(auth.Group, name); err != nil {
		return group.Description{}, err
	}
	d, err := s.broker.Groups().Describe(name)
	if err == nil && d.Type != group.TypeShare {
		err = fmt.Errorf("%w: it is no share group", group.ErrOtherProtocol)
	}
	return d, err
}

func (s *Server) describedShare(c *call, name string, operations bool) kmsg.ShareGroupDescribeResponseGroup {
	described := kmsg.NewShareGroupDescribeResponseGroup()
	described.GroupID, described.GroupState = name, group.Dead.String()
	d, err := s.shareGroup(c, name)
	if err == nil {
		err = c.memory.add(sizeOfConsumers(d))
	}
	if operations {
		described.AuthorizedOperations = c.operations(auth.Group, name)
	}
	if err != nil {
		described.ErrorCode, described.ErrorMessage = s.groupCode(name, err), message(err)
		return described
	}
	described.GroupState, described.GroupEpoch, described.AssignmentEpoch, described.Assignor = d.State.String(), d.Generation, d.Generation, d.Protocol
	for i := range d.Members {
		described.Members = append(described.Members, s.describedSharer(c, &d.Members[i]))
	}
	return described
}

func (s *Server) describedSharer(c *call, m *group.MemberDescription) kmsg.ShareGroupDescribeResponseGroupMember {
	member := kmsg.NewShareGroupDescribeResponseGroupMember()
	member.MemberID, member.RackID, member.MemberEpoch = m.Member, orNull(m.Consumer.Rack), m.Consumer.Epoch
	member.ClientID, member.ClientHost = m.Client, m.Host
	for _, name := range m.Consumer.Topics {
		if c.may(c.key, auth.Topic, name) {
			member.SubscribedTopicNames = append(member.SubscribedTopicNames, name)
		}
	}
	for of, t := range s.seen(c, m.Consumer.Assigned) {
		assigned := kmsg.NewShareGroupDescribeResponseGroupMemberAssignmentTopicPartition()
		assigned.TopicID, assigned.Topic, assigned.Partitions = of, t, m.Consumer.Assigned[of]
		member.Assignment.TopicPartitions = append(member.Assignment.TopicPartitions, assigned)
	}
	return member
}

// seen returns the names of the topics of partitions that the client may see and that were not deleted, in order.
func (s *Server) seen(c *call, partitions assign.Partitions) iter.Seq2[topic.ID, string] {
	return func(yield func(topic.ID, string) bool) {
		for _, of := range partitions.Topics() {
			t, err := s.broker.TopicByID(of)
			if err == nil && c.may(c.key, auth.Topic, t.Name()) && !yield(of, t.Name()) {
				return
			}
		}
	}
}
