package kafka

import (
	"cmp"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic/group"
	"github.com/sluice-project/sluice/topic/kafka/auth"
)

// ShareGroupHeartbeat: version 1.
//
// Lets a member of a share group join (epoch 0), stay and leave (-1). The answer brings its epoch, and its
// partitions if they have changed or the request has its topics; it comes when that is durable. Several
// members may have one partition. The rack is shown, and does not matter.
//
//   - 0: of a preview of Kafka, not supported.
func (s *Server) shareGroupHeartbeat(c *call, r *kmsg.ShareGroupHeartbeatRequest) answer {
	err := c.authorize(auth.Group, r.GroupID)
	for _, name := range r.SubscribedTopicNames {
		err = cmp.Or(err, c.authorize(auth.Topic, name))
	}
	if r.MemberID == "" {
		err = cmp.Or(err, errNoMember)
	}
	if err != nil {
		return respond(s.shareBeaten(r, group.ConsumerResult{}, err))
	}
	return s.beat(c, group.ConsumerHeartbeat{
		Group: r.GroupID, Member: r.MemberID, Epoch: r.MemberEpoch, Share: true, Rack: orEmpty(r.RackID),
		Client: c.client, Host: "/" + c.host, Topics: r.SubscribedTopicNames,
	}, func(result group.ConsumerResult, err error) kmsg.Response { return s.shareBeaten(r, result, err) })
}

func (s *Server) shareBeaten(r *kmsg.ShareGroupHeartbeatRequest, result group.ConsumerResult, err error) kmsg.Response {
	response := r.ResponseKind().(*kmsg.ShareGroupHeartbeatResponse)
	if err != nil {
		response.ErrorCode, response.ErrorMessage = s.consumerCode(r.GroupID, err), message(err)
		return response
	}
	response.MemberID, response.MemberEpoch = orNull(result.Member), result.Epoch
	response.HeartbeatIntervalMillis = int32(result.Heartbeat.Milliseconds())
	if result.Assigned != nil {
		assignment := kmsg.NewShareGroupHeartbeatResponseAssignment()
		for _, of := range result.Assigned.Topics() {
			assigned := kmsg.NewShareGroupHeartbeatResponseAssignmentTopicPartition()
			assigned.TopicID, assigned.Partitions = of, result.Assigned[of]
			assignment.TopicPartitions = append(assignment.TopicPartitions, assigned)
		}
		response.Assignment = &assignment
	}
	return response
}
