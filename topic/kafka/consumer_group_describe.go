package kafka

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic/group"
	"github.com/sluice-project/sluice/topic/group/assign"
	"github.com/sluice-project/sluice/topic/kafka/auth"
)

// ConsumerGroupDescribe: versions 0 to 1.
//
// Answers the state, epoch and members of groups of the consumer protocol, with what members are assigned and
// what they are to have. Other groups are GROUP_ID_NOT_FOUND. Topics that the client may not see
// are left out.
//
//   - 1: the protocol of each member, which may be the classic one.
func (s *Server) consumerGroupDescribe(c *call, r *kmsg.ConsumerGroupDescribeRequest) answer {
	return func(context.Context) kmsg.Response {
		response := r.ResponseKind().(*kmsg.ConsumerGroupDescribeResponse)
		names := distinct(r.Groups)
		response.Groups = make([]kmsg.ConsumerGroupDescribeResponseGroup, 0, len(names))
		for _, name := range names {
			response.Groups = append(response.Groups, s.describedConsumers(c, name, r.IncludeAuthorizedOperations))
		}
		return response
	}
}

func (s *Server) describedConsumers(c *call, name string, operations bool) kmsg.ConsumerGroupDescribeResponseGroup {
	described := kmsg.NewConsumerGroupDescribeResponseGroup()
	described.Group, described.State = name, group.Dead.String()
	var d group.Description
	err := c.authorize(auth.Group, name)
	if err == nil {
		d, err = s.broker.Groups().Describe(name)
	}
	if err == nil && d.Type != group.TypeConsumer {
		err = errNotConsumers
	}
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
	described.State, described.Epoch, described.AssignmentEpoch, described.AssignorName = d.State.String(), d.Generation, d.Generation, d.Protocol
	for i := range d.Members {
		described.Members = append(described.Members, s.describedConsumer(c, &d.Members[i]))
	}
	return described
}

var errNotConsumers = fmt.Errorf("%w: DescribeGroups describes it", group.ErrOtherProtocol)

// The kinds of members, by their protocol.
const (
	classicMember  = 0
	consumerMember = 1
)

func (s *Server) describedConsumer(c *call, m *group.MemberDescription) kmsg.ConsumerGroupDescribeResponseGroupMember {
	member := kmsg.NewConsumerGroupDescribeResponseGroupMember()
	member.MemberID, member.InstanceID, member.RackID = m.Member, orNull(m.Instance), orNull(m.Consumer.Rack)
	member.ClientID, member.ClientHost = m.Client, m.Host
	member.MemberEpoch, member.MemberType = m.Consumer.Epoch, consumerMember
	if m.Consumer.Classic {
		member.MemberType = classicMember
	}
	member.SubscribedTopicRegex = orNull(m.Consumer.Pattern)
	for _, name := range m.Consumer.Topics {
		if c.may(c.key, auth.Topic, name) {
			member.SubscribedTopics = append(member.SubscribedTopics, name)
		}
	}
	member.Assignment, member.TargetAssignment = s.named(c, m.Consumer.Assigned), s.named(c, m.Consumer.Target)
	return member
}

// named returns partitions with the names of their topics. Topics that were deleted are left out.
func (s *Server) named(c *call, partitions assign.Partitions) (named kmsg.Assignment) {
	for of, name := range s.seen(c, partitions) {
		assigned := kmsg.NewAssignmentTopicPartition()
		assigned.TopicID, assigned.Topic, assigned.Partitions = of, name, partitions[of]
		named.TopicPartitions = append(named.TopicPartitions, assigned)
	}
	return named
}

// sizeOfConsumers returns the memory of a group of consumers in an answer.
func sizeOfConsumers(d group.Description) (size int64) {
	for i := range d.Members {
		of := d.Members[i].Consumer
		size += memberCost + int64(len(of.Pattern))
		for _, name := range of.Topics {
			size += assignedCost + int64(len(name))
		}
		for _, partitions := range []assign.Partitions{of.Assigned, of.Target} {
			size += assignedCost*int64(len(partitions)) + 4*int64(partitions.Count())
		}
	}
	return size
}
