package kafka

import (
	"cmp"
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic/kafka/auth"
)

// AlterShareGroupOffsets: version 0.
//
// Makes a share group without members go on at other offsets, or begin there: what it knew of the records of
// these partitions is forgotten. The answer comes when that is durable.
func (s *Server) alterShareGroupOffsets(c *call, r *kmsg.AlterShareGroupOffsetsRequest) answer {
	return func(ctx context.Context) kmsg.Response {
		response := r.ResponseKind().(*kmsg.AlterShareGroupOffsetsResponse)
		if err := cmp.Or(c.authorize(auth.Group, r.GroupID), s.broker.Groups().MayReset(r.GroupID)); err != nil {
			response.ErrorCode, response.ErrorMessage = s.consumerCode(r.GroupID, err), message(err)
			return response
		}
		for _, t := range r.Topics {
			of := kmsg.NewAlterShareGroupOffsetsResponseTopic()
			of.Topic = t.Topic
			found, err := c.topic(t.Topic)
			if err == nil {
				of.TopicID = found.ID()
			}
			for _, p := range t.Partitions {
				failed := err
				if p.StartOffset < 0 {
					failed = cmp.Or(failed, fail(kerr.InvalidRequest, "want an offset of 0 or more"))
				}
				if failed == nil {
					failed = s.broker.ResetShare(ctx, r.GroupID, found, p.Partition, p.StartOffset)
				}
				s.unexpected("reset share group ", r.GroupID, failed)
				altered := kmsg.NewAlterShareGroupOffsetsResponseTopicPartition()
				altered.Partition, altered.ErrorCode, altered.ErrorMessage = p.Partition, code(failed), message(failed)
				of.Partitions = append(of.Partitions, altered)
			}
			response.Topics = append(response.Topics, of)
		}
		return response
	}
}
