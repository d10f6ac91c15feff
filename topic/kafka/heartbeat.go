package kafka

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic/group"
)

// Heartbeat: versions 0 to 4.
//
// Keeps a member's session alive. REBALANCE_IN_PROGRESS does too, and asks the member to join
// again.
//
//   - 3: static members (an instance id).
func (s *Server) heartbeat(_ *call, r *kmsg.HeartbeatRequest) answer {
	response := r.ResponseKind().(*kmsg.HeartbeatResponse)
	response.ErrorCode = s.groupCode(r.Group, s.broker.Groups().Heartbeat(group.MemberIdentity{
		Group: r.Group, Member: r.MemberID, Instance: orEmpty(r.InstanceID), Generation: r.Generation,
	}))
	return respond(response)
}
