package kafka

import (
	"cmp"
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/group"
	"github.com/sluice-project/sluice/topic/kafka/auth"
)

// DescribeShareGroupOffsets: versions 0 to 1.
//
// Answers the offset of each partition before which all records are done in a share group; of all partitions that
// it has read, if the request names no topics. Partitions that it has not read have -1, and topics that the client may
// not see an error, or are left out.
//
//   - 1: the lag: the number of offsets from there to the end, -1 if it is not known.
func (s *Server) describeShareGroupOffsets(c *call, r *kmsg.DescribeShareGroupOffsetsRequest) answer {
	return func(ctx context.Context) kmsg.Response {
		response := r.ResponseKind().(*kmsg.DescribeShareGroupOffsetsResponse)
		asked := once[string]{}
		for i := range r.Groups {
			if asked.first(r.Groups[i].GroupID) {
				response.Groups = append(response.Groups, s.describedShareOffsets(ctx, c, &r.Groups[i]))
			}
		}
		return response
	}
}

func (s *Server) describedShareOffsets(ctx context.Context, c *call, r *kmsg.DescribeShareGroupOffsetsRequestGroup) kmsg.DescribeShareGroupOffsetsResponseGroup {
	described := kmsg.NewDescribeShareGroupOffsetsResponseGroup()
	described.GroupID = r.GroupID
	found, err := s.shareOffsets(ctx, c, r.GroupID)
	if err != nil {
		described.ErrorCode, described.ErrorMessage = s.consumerCode(r.GroupID, err), message(err)
		return described
	}
	want := make(map[string][]int32, len(found))
	for _, t := range r.Topics {
		want[t.Topic] = append(want[t.Topic], t.Partitions...)
	}
	for name, partitions := range found {
		if r.Topics == nil && c.may(c.key, auth.Topic, name) {
			for number := range partitions {
				want[name] = append(want[name], number)
			}
		}
	}
	for name, numbers := range want {
		t, err := c.topic(name)
		of := kmsg.NewDescribeShareGroupOffsetsResponseGroupTopic()
		of.Topic = name
		if t != nil {
			of.TopicID = t.ID()
		}
		for _, number := range distinct(numbers) {
			p := kmsg.NewDescribeShareGroupOffsetsResponseGroupTopicPartition()
			p.Partition, p.StartOffset, p.ErrorCode, p.ErrorMessage = number, -1, code(err), message(err)
			if lag, has := found[name][number]; has && err == nil {
				p.StartOffset, p.Lag = lag.Committed, lag.Lag
			}
			of.Partitions = append(of.Partitions, p)
		}
		described.Topics = append(described.Topics, of)
	}
	return described
}

// shareOffsets returns how far a share group is, by topic and partition.
func (s *Server) shareOffsets(ctx context.Context, c *call, name string) (map[string]map[int32]broker.Lag, error) {
	if _, err := s.shareGroup(c, name); err != nil {
		return nil, err
	}
	lags, err := s.broker.GroupLag(ctx, name)
	if err == nil {
		err = c.memory.add(int64(len(lags)) * answerCost)
	}
	found := map[string]map[int32]broker.Lag{}
	for _, lag := range lags {
		if found[lag.Topic] == nil {
			found[lag.Topic] = map[int32]broker.Lag{}
		}
		found[lag.Topic][lag.Partition] = lag
	}
	return found, err
}

// AlterShareGroupOffsets: version 0.
//
// Makes a share group without members go on at other offsets, or begin there: what it knew of the records of
// these partitions is forgotten. A group that does not exist is made. The answer comes when that is durable.
func (s *Server) alterShareGroupOffsets(c *call, r *kmsg.AlterShareGroupOffsetsRequest) answer {
	return func(ctx context.Context) kmsg.Response {
		response := r.ResponseKind().(*kmsg.AlterShareGroupOffsetsResponse)
		err := cmp.Or(c.authorize(auth.Group, r.GroupID), s.broker.Groups().MayReset(r.GroupID))
		if err != nil && !errors.Is(err, group.ErrNoGroup) {
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

// DeleteShareGroupOffsets: version 0.
//
// Makes a share group without members forget what it knows of the records of topics: it reads them as if for the first time.
// The answer comes when that is durable. A topic of which it knows nothing is UNKNOWN_TOPIC_OR_PARTITION.
func (s *Server) deleteShareGroupOffsets(c *call, r *kmsg.DeleteShareGroupOffsetsRequest) answer {
	return func(ctx context.Context) kmsg.Response {
		response := r.ResponseKind().(*kmsg.DeleteShareGroupOffsetsResponse)
		if err := cmp.Or(c.authorize(auth.Group, r.GroupID), s.broker.Groups().MayReset(r.GroupID)); err != nil {
			response.ErrorCode, response.ErrorMessage = s.consumerCode(r.GroupID, err), message(err)
			return response
		}
		asked := once[string]{}
		for _, t := range r.Topics {
			if !asked.first(t.Topic) {
				continue
			}
			deleted := kmsg.NewDeleteShareGroupOffsetsResponseTopic()
			deleted.Topic = t.Topic
			found, err := c.topic(t.Topic)
			if err == nil {
				deleted.TopicID = found.ID()
				err = s.broker.ForgetShares(ctx, r.GroupID, found)
			}
			if errors.Is(err, topic.ErrNotFound) {
				err = fail(kerr.UnknownTopicOrPartition, "the group knows nothing of the topic")
			}
			s.unexpected("forget records of share group ", r.GroupID, err)
			deleted.ErrorCode, deleted.ErrorMessage = code(err), message(err)
			response.Topics = append(response.Topics, deleted)
		}
		return response
	}
}
