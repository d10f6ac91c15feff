package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic/group"
	"github.com/sluice-project/sluice/topic/kafka/auth"
)

// OffsetDelete: version 0.
//
// Removes the offsets of topics that no member of the group reads (GROUP_SUBSCRIBED_TO_TOPIC), and
// answers when that is durable. A group whose members are not consumers must have no members:
// NON_EMPTY_GROUP.
func (s *Server) offsetDelete(c *call, r *kmsg.OffsetDeleteRequest) answer {
	response := r.ResponseKind().(*kmsg.OffsetDeleteResponse)
	if err := c.authorize(auth.Group, r.Group); err != nil {
		response.ErrorCode = code(err)
		return respond(response)
	}
	count := 0
	for i := range r.Topics {
		count += len(r.Topics[i].Partitions)
	}
	offsets := make([]group.OffsetDelete, 0, count)
	places := make([]*kmsg.OffsetDeleteResponseTopicPartition, 0, count) // in the response, for each offset
	response.Topics = make([]kmsg.OffsetDeleteResponseTopic, len(r.Topics))
	for i, t := range r.Topics {
		answered := &response.Topics[i]
		answered.Topic = t.Topic
		answered.Partitions = make([]kmsg.OffsetDeleteResponseTopicPartition, len(t.Partitions))
		existing, missing := c.topic(t.Topic)
		for j, p := range t.Partitions {
			place := &answered.Partitions[j]
			place.Partition = p.Partition
			err := missing
			if err == nil {
				err = existing.Has(p.Partition)
			}
			if err != nil {
				place.ErrorCode = code(err)
				continue
			}
			places = append(places, place)
			offsets = append(offsets, group.OffsetDelete{Topic: t.Topic, Partition: p.Partition})
		}
	}
	deleting := s.broker.Groups().DeleteOffsets(r.Group, offsets)
	return func(ctx context.Context) kmsg.Response {
		errs, err := deleting.Wait(ctx)
		if err != nil {
			response.ErrorCode, response.Topics = s.groupCode(r.Group, err), nil
			return response
		}
		for i, place := range places {
			place.ErrorCode = s.groupCode(r.Group, errs[i])
		}
		return response
	}
}
