package kafka

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic"
)

// groupOperations are what a client may do with a group: all there is (READ,
// DELETE and DESCRIBE, a bit each), as long as nothing restricts it.
const groupOperations = 1<<3 | 1<<6 | 1<<8

// DescribeGroups: versions 0 to 6.
//
// Tells the state of groups and who is in them; assignments only while a group is
// stable. A group that does not exist is Dead.
//
//   - 3: what the client may do, if it asks.
//   - 4: instance ids.
//   - 6: a group that does not exist is GROUP_ID_NOT_FOUND, with a message.
func (s *Server) describeGroups(_ *call, r *kmsg.DescribeGroupsRequest) answer {
	response := r.ResponseKind().(*kmsg.DescribeGroupsResponse)
	for _, name := range r.Groups {
		described := kmsg.NewDescribeGroupsResponseGroup()
		described.Group = name
		d, err := s.broker.Groups().Describe(name)
		switch {
		case err == nil:
			describeGroup(&described, d)
		case errors.Is(err, topic.ErrNoGroup) && r.Version < 6:
			described.State = topic.GroupDead.String()
		default:
			described.ErrorCode, described.ErrorMessage = s.groupCode(name, err), message(err)
			described.State = topic.GroupDead.String()
		}
		if r.IncludeAuthorizedOperations {
			described.AuthorizedOperations = groupOperations
		}
		response.Groups = append(response.Groups, described)
	}
	return respond(response)
}

func describeGroup(to *kmsg.DescribeGroupsResponseGroup, d topic.GroupDescription) {
	to.State, to.ProtocolType, to.Protocol = d.State.String(), d.ProtocolType, d.Protocol
	for _, m := range d.Members {
		member := kmsg.NewDescribeGroupsResponseGroupMember()
		member.MemberID, member.InstanceID, member.ClientID, member.ClientHost = m.Member, orNull(m.Instance), m.Client, m.Host
		member.ProtocolMetadata, member.MemberAssignment = m.Metadata, m.Assignment
		to.Members = append(to.Members, member)
	}
}
