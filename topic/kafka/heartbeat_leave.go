package kafka

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic/group"
	"github.com/sluice-project/sluice/topic/kafka/auth"
)

// LeaveGroup: versions 0 to 5.
//
// Removes members from a group, which rebalances at once.
//
//   - 3: several members, each by its id, by its instance id, or by both; an error for each.
//   - 5: a reason, which is logged at debug level.
func (s *Server) leaveGroup(c *call, r *kmsg.LeaveGroupRequest) answer {
	response := r.ResponseKind().(*kmsg.LeaveGroupResponse)
	if err := c.authorize(auth.Group, r.Group); err != nil {
		response.ErrorCode = code(err)
		return respond(response)
	}
	leaving := r.Members
	if r.Version < 3 {
		member := kmsg.NewLeaveGroupRequestMember()
		member.MemberID = r.MemberID
		leaving = []kmsg.LeaveGroupRequestMember{member}
	}
	members := make([]group.MemberIdentity, len(leaving))
	for i, m := range leaving {
		members[i] = group.MemberIdentity{Group: r.Group, Member: m.MemberID, Instance: orEmpty(m.InstanceID)}
		if m.Reason != nil && *m.Reason != "" {
			s.log.Debug("member leaves", "group", r.Group, "member", m.MemberID, "client", c.client, "reason", *m.Reason)
		}
	}
	errs, err := s.broker.Groups().Leave(r.Group, members)
	if err != nil {
		response.ErrorCode = s.groupCode(r.Group, err)
		return respond(response)
	}
	if r.Version < 3 {
		response.ErrorCode = s.groupCode(r.Group, errs[0])
		return respond(response)
	}
	response.Members = make([]kmsg.LeaveGroupResponseMember, len(leaving))
	for i, m := range leaving {
		left := &response.Members[i]
		left.MemberID, left.InstanceID, left.ErrorCode = m.MemberID, m.InstanceID, s.groupCode(r.Group, errs[i])
	}
	return respond(response)
}

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
