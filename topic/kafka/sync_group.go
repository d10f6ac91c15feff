package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic/group"
	"github.com/sluice-project/sluice/topic/kafka/auth"
)

// SyncGroup: versions 0 to 5.
//
// Answers a member's assignment in the generation that it has joined. The leader's request
// has all assignments; the other members wait for it, and all wait until the generation is
// durable. An assignment has at most 1 MiB, and the group with all
// of them 4 MiB as it is stored: MESSAGE_TOO_LARGE.
//
//   - 3: static members (an instance id).
//   - 5: the protocol, which is checked, and answered.
func (s *Server) syncGroup(c *call, r *kmsg.SyncGroupRequest) answer {
	if err := c.authorize(auth.Group, r.Group); err != nil {
		response := r.ResponseKind().(*kmsg.SyncGroupResponse)
		response.ErrorCode = code(err)
		return respond(response)
	}
	request := group.SyncRequest{
		MemberIdentity: group.MemberIdentity{
			Group: r.Group, Member: r.MemberID, Instance: orEmpty(r.InstanceID), Generation: r.Generation,
		},
		ProtocolType: orEmpty(r.ProtocolType), Protocol: orEmpty(r.Protocol),
		Assignments: make(map[string][]byte, len(r.GroupAssignment)),
	}
	for _, a := range r.GroupAssignment {
		request.Assignments[a.MemberID] = kept(a.MemberAssignment)
	}
	r.GroupAssignment = nil // they would keep the frame while the member waits
	syncing := s.broker.Groups().Sync(request)
	return func(ctx context.Context) kmsg.Response {
		response := r.ResponseKind().(*kmsg.SyncGroupResponse)
		result, err := awaitGroup(ctx, c, syncing)
		if err == nil {
			err = c.memory.add(int64(len(result.Assignment)))
		}
		if err != nil {
			response.ErrorCode = s.groupCode(r.Group, err)
			return response
		}
		response.ProtocolType, response.Protocol = kmsg.StringPtr(result.ProtocolType), kmsg.StringPtr(result.Protocol)
		response.MemberAssignment = result.Assignment
		return response
	}
}
