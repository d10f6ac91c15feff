package kafka

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic/group"
	"github.com/sluice-project/sluice/topic/kafka/auth"
)

// Heartbeat: versions 0 to 4.
//
// Keeps a member's session alive. REBALANCE_IN_PROGRESS does too, and asks the member to join
// again.
//
//   - 3: static members (an instance id).
func (s *Server) heartbeat(c *call, r *kmsg.HeartbeatRequest) answer {
	response := r.ResponseKind().(*kmsg.HeartbeatResponse)
	err := c.authorize(auth.Group, r.Group)
	if err == nil {
		err = s.broker.Groups().Heartbeat(group.MemberIdentity{
			Group: r.Group, Member: r.MemberID, Instance: orEmpty(r.InstanceID), Generation: r.Generation,
		})
	}
	response.ErrorCode = s.groupCode(r.Group, err)
	return respond(response)
}
