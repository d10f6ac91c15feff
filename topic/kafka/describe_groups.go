package kafka

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic/group"
)

// groupOperations are the operations on a group: all that exist (READ, DELETE and DESCRIBE, a bit
// each), since there are no access lists.
const groupOperations = 1<<3 | 1<<6 | 1<<8

// DescribeGroups: versions 0 to 6.
//
// Answers the state and members of groups, with assignments while a group is stable. A group
// that does not exist is Dead.
//
//   - 3: the allowed operations, if the client asks.
//   - 4: instance ids.
//   - 6: a group that does not exist is GROUP_ID_NOT_FOUND, with a message.
func (s *Server) describeGroups(_ *call, r *kmsg.DescribeGroupsRequest) answer {
	response := r.ResponseKind().(*kmsg.DescribeGroupsResponse)
	asked := once[string]{}
	for _, name := range r.Groups {
		if !asked.first(name) {
			continue
		}
		described := kmsg.NewDescribeGroupsResponseGroup()
		described.Group = name
		d, err := s.broker.Groups().Describe(name)
		switch {
		case err == nil:
			describeGroup(&described, d)
		case errors.Is(err, group.ErrNoGroup) && r.Version < 6:
			described.State = group.Dead.String()
		default:
			described.ErrorCode, described.ErrorMessage = s.groupCode(name, err), message(err)
			described.State = group.Dead.String()
		}
		if r.IncludeAuthorizedOperations {
			described.AuthorizedOperations = groupOperations
		}
		response.Groups = append(response.Groups, described)
	}
	return respond(response)
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
