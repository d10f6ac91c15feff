package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic/group"
	"github.com/sluice-project/sluice/topic/kafka/auth"
)

// DescribeGroups: versions 0 to 6.
//
// Answers the state and members of groups, with assignments while a group is stable. A group
// that does not exist is Dead, as is one of the consumer protocol, which ConsumerGroupDescribe
// describes.
//
//   - 3: the allowed operations, if the client asks.
//   - 4: instance ids.
//   - 6: a group that does not exist is GROUP_ID_NOT_FOUND, with a message.
func (s *Server) describeGroups(c *call, r *kmsg.DescribeGroupsRequest) answer {
	return func(context.Context) kmsg.Response { return s.describedGroups(c, r) }
}

func (s *Server) describedGroups(c *call, r *kmsg.DescribeGroupsRequest) kmsg.Response {
	response := r.ResponseKind().(*kmsg.DescribeGroupsResponse)
	names := distinct(r.Groups)
	response.Groups = make([]kmsg.DescribeGroupsResponseGroup, 0, len(names))
	for _, name := range names {
		described := kmsg.NewDescribeGroupsResponseGroup()
		described.Group = name
		var d group.Description
		err := c.authorize(auth.Group, name)
		if err == nil {
			d, err = s.broker.Groups().Describe(name)
		}
		if err == nil && d.Type != group.TypeClassic {
			d, err = group.Description{}, errNotClassic
		}
		if err == nil {
			err = c.memory.add(sizeOfGroup(d))
		}
		switch {
		case err == nil:
			describeGroup(&described, d)
		case (errors.Is(err, group.ErrNoGroup) || errors.Is(err, group.ErrOtherProtocol)) && r.Version < 6:
			described.State = group.Dead.String()
		default:
			described.ErrorCode, described.ErrorMessage = s.groupCode(name, err), message(err)
			described.State = group.Dead.String()
		}
		if r.IncludeAuthorizedOperations {
			described.AuthorizedOperations = c.operations(auth.Group, name)
		}
		response.Groups = append(response.Groups, described)
	}
	return response
}

var errNotClassic = fmt.Errorf("%w: ConsumerGroupDescribe describes it", group.ErrOtherProtocol)

// memberCost is the memory of a member in an answer, without what it has brought.
const memberCost = 512

// sizeOfGroup returns the memory of a group in an answer.
func sizeOfGroup(d group.Description) (size int64) {
	for i := range d.Members {
		size += memberCost + int64(len(d.Members[i].Metadata)+len(d.Members[i].Assignment))
	}
	return size
}

func describeGroup(to *kmsg.DescribeGroupsResponseGroup, d group.Description) {
	to.State, to.ProtocolType, to.Protocol = d.State.String(), d.ProtocolType, d.Protocol
	for _, m := range d.Members {
		member := kmsg.NewDescribeGroupsResponseGroupMember()
		member.MemberID, member.InstanceID, member.ClientID, member.ClientHost = m.Member, orNull(m.Instance), m.Client, m.Host
		member.ProtocolMetadata, member.MemberAssignment = m.Metadata, m.Assignment
		to.Members = append(to.Members, member)
	}
}
