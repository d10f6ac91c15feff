package kafka

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic/group"
	"github.com/sluice-project/sluice/topic/kafka/auth"
)

// JoinGroup: versions 0 to 9.
//
// Joins a consumer group, or its next generation. The answer waits until all members have joined or
// the longest of their rebalance timeouts is over; the leader's answer has all members. After a
// lost connection the member stays until its session timeout.
//
//   - 0: the rebalance timeout is the session timeout.
//   - 4: a new dynamic member first gets an id, with MEMBER_ID_REQUIRED, so that a member whose
//     answer is lost does not stay.
//   - 5: static members (an instance id).
//   - 7: the protocol type; the protocol is null with an error.
//   - 8: a reason, which is logged at debug level.
//   - 9: a static leader that returns learns that its assignment is still valid.
func (s *Server) joinGroup(c *call, r *kmsg.JoinGroupRequest) answer {
	if r.Version == 0 {
		r.RebalanceTimeoutMillis = r.SessionTimeoutMillis
	}
	if r.Reason != nil && *r.Reason != "" {
		s.log.Debug("member joins", "group", r.Group, "member", r.MemberID, "client", c.client, "reason", *r.Reason)
	}
	if err := c.authorize(auth.Group, r.Group); err != nil {
		return respond(s.joined(r, group.JoinResult{}, err))
	}
	request := group.JoinRequest{
		Group: r.Group, Member: r.MemberID, Instance: orEmpty(r.InstanceID), Client: c.client, Host: "/" + c.host,
		Session:         time.Duration(r.SessionTimeoutMillis) * time.Millisecond,
		Rebalance:       time.Duration(r.RebalanceTimeoutMillis) * time.Millisecond,
		ProtocolType:    r.ProtocolType,
		RequireMember:   r.Version >= 4,
		SkipsAssignment: r.Version >= 9,
	}
	request.Protocols = make([]group.Protocol, len(r.Protocols))
	for i, p := range r.Protocols {
		request.Protocols[i] = group.Protocol{Name: p.Name, Metadata: kept(p.Metadata)}
	}
	r.Protocols = nil // they would keep the frame while the member waits
	began, joining := time.Now(), s.broker.Groups().Join(request)
	return func(ctx context.Context) kmsg.Response {
		result, err := awaitGroup(ctx, c, joining)
		if !errors.Is(err, group.ErrMemberIDRequired) { // then it has not joined yet
			s.spans.Rebalanced(began, c.client, r.Group, result.Member, result.Generation, err)
		}
		if err == nil {
			err = c.memory.add(sizeOfMembers(result.Members))
		}
		return s.joined(r, result, err)
	}
}

// sizeOfMembers returns the memory of the members in an answer.
func sizeOfMembers(members []group.JoinedMember) (size int64) {
	for i := range members {
		size += memberCost + int64(len(members[i].Metadata))
	}
	return size
}

func (s *Server) joined(r *kmsg.JoinGroupRequest, result group.JoinResult, err error) kmsg.Response {
	response := r.ResponseKind().(*kmsg.JoinGroupResponse)
	response.MemberID = result.Member
	if err != nil {
		response.ErrorCode, response.Generation = s.groupCode(r.Group, err), -1
		if response.MemberID == "" {
			response.MemberID = r.MemberID
		}
		return response
	}
	response.Generation, response.LeaderID, response.SkipAssignment = result.Generation, result.Leader, result.SkipAssignment
	response.ProtocolType, response.Protocol = kmsg.StringPtr(result.ProtocolType), kmsg.StringPtr(result.Protocol)
	for _, m := range result.Members {
		member := kmsg.NewJoinGroupResponseMember()
		member.MemberID, member.InstanceID, member.ProtocolMetadata = m.Member, orNull(m.Instance), m.Metadata
		response.Members = append(response.Members, member)
	}
	return response
}
