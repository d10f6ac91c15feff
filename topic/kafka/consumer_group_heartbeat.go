package kafka

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/group"
	"github.com/sluice-project/sluice/topic/group/assign"
	"github.com/sluice-project/sluice/topic/kafka/auth"
)

// ConsumerGroupHeartbeat: versions 0 to 1.
//
// Lets a member of the consumer protocol join (epoch 0), stay, leave (-1) or go away for its session
// (-2, static members). The answer brings its epoch, and its partitions if they have changed or the
// request tells everything; it comes when that is durable. The rack is shown, and does not matter.
//
//   - 1: a pattern of topics; the member chooses its id.
func (s *Server) consumerGroupHeartbeat(c *call, r *kmsg.ConsumerGroupHeartbeatRequest) answer {
	err := c.authorize(auth.Group, r.Group)
	for _, name := range r.SubscribedTopicNames {
		err = cmp.Or(err, c.authorize(auth.Topic, name))
	}
	request, invalid := consumerHeartbeat(c, r)
	if err = cmp.Or(err, invalid); err != nil {
		return respond(s.consumerBeaten(r, group.ConsumerResult{}, err))
	}
	return s.beat(c, request, func(result group.ConsumerResult, err error) kmsg.Response { return s.consumerBeaten(r, result, err) })
}

// beat makes a heartbeat, of the consumer protocol or of a share group. It has a span if it changes what the member has, or
// cannot: a heartbeat without news, every few seconds, has none.
func (s *Server) beat(c *call, request group.ConsumerHeartbeat, answered func(group.ConsumerResult, error) kmsg.Response) answer {
	began, beating := time.Now(), s.broker.Groups().ConsumerHeartbeat(request)
	return func(ctx context.Context) kmsg.Response {
		result, err := beating.Wait(ctx)
		if err != nil || request.Epoch <= group.JoinEpoch || result.Epoch != request.Epoch || result.Assigned != nil {
			s.spans.Rebalanced(began, c.client, request.Group, cmp.Or(result.Member, request.Member), result.Epoch, err)
		}
		return answered(result, err)
	}
}

// consumerHeartbeat returns what a request means.
func consumerHeartbeat(c *call, r *kmsg.ConsumerGroupHeartbeatRequest) (group.ConsumerHeartbeat, error) {
	request := group.ConsumerHeartbeat{
		Group: r.Group, Member: r.MemberID, Epoch: r.MemberEpoch, Instance: orEmpty(r.InstanceID), Rack: orEmpty(r.RackID),
		Client: c.client, Host: "/" + c.host,
		Rebalance: max(0, time.Duration(r.RebalanceTimeoutMillis)*time.Millisecond),
		Topics:    r.SubscribedTopicNames, Pattern: r.SubscribedTopicRegex, Assignor: orEmpty(r.ServerAssignor),
		MayRead: func(name string) bool { return c.may(c.key, auth.Topic, name) },
	}
	for what, text := range map[string]*string{"instance id": r.InstanceID, "rack": r.RackID, "assignor": r.ServerAssignor} {
		if text != nil && *text == "" {
			return request, fmt.Errorf("%w: the %s is empty; want null, or a name", group.ErrInvalidGroupRequest, what)
		}
	}
	if r.Version >= 1 && r.MemberID == "" {
		return request, fmt.Errorf("%w: want a member id", group.ErrInvalidGroupRequest)
	}
	if r.Topics != nil {
		lists := make(map[topic.ID][]int32, len(r.Topics))
		for _, t := range r.Topics {
			lists[t.TopicID] = append(lists[t.TopicID], t.Partitions...)
		}
		request.Owned = assign.Sorted(lists)
	}
	return request, nil
}

// assignedCost is the memory of a topic in an assignment, without its partitions.
const assignedCost = 64

func (s *Server) consumerBeaten(r *kmsg.ConsumerGroupHeartbeatRequest, result group.ConsumerResult, err error) kmsg.Response {
	response := r.ResponseKind().(*kmsg.ConsumerGroupHeartbeatResponse)
	if err != nil {
		response.ErrorCode, response.ErrorMessage = s.consumerCode(r.Group, err), message(err)
		return response
	}
	response.MemberID, response.MemberEpoch = orNull(result.Member), result.Epoch
	response.HeartbeatIntervalMillis = int32(result.Heartbeat.Milliseconds())
	if result.Assigned != nil {
		assignment := kmsg.NewConsumerGroupHeartbeatResponseAssignment()
		for _, of := range result.Assigned.Topics() {
			assigned := kmsg.NewConsumerGroupHeartbeatResponseAssignmentTopic()
			assigned.TopicID, assigned.Partitions = of, result.Assigned[of]
			assignment.Topics = append(assignment.Topics, assigned)
		}
		response.Assignment = &assignment
	}
	return response
}

// consumerCode is groupCode for errors that may be of topics too.
func (s *Server) consumerCode(name string, err error) int16 {
	if kind := kindOf(err); kind == kerr.TopicAuthorizationFailed || kind == kerr.GroupAuthorizationFailed {
		return kind.Code
	}
	return s.groupCode(name, err)
}
