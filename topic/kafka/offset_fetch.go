package kafka

import (
	"cmp"
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic/group"
)

// OffsetFetch: versions 0 to 9.
//
// Answers the committed offsets of groups, for the requested partitions or all with a commit.
// Without a commit, or for an unknown group, the offset is -1 and no error. In a cluster the
// node first confirms that it still coordinates the groups, so that no commit is missed.
//
//   - 2: all topics of the group (null); an error for the whole group.
//   - 5: the leader epoch.
//   - 7: only offsets that no transaction can change any more: there are no
//     others.
//   - 8: several groups.
//   - 9: the member and its epoch, for groups of a protocol that is not served
//     here.
func (s *Server) offsetFetch(c *call, r *kmsg.OffsetFetchRequest) answer {
	return func(ctx context.Context) kmsg.Response {
		return s.fetchOffsets(c, r, s.broker.Groups().Confirm(ctx))
	}
}

func (s *Server) fetchOffsets(c *call, r *kmsg.OffsetFetchRequest, failed error) kmsg.Response {
	response := r.ResponseKind().(*kmsg.OffsetFetchResponse)
	if r.Version >= 8 {
		asked := once[string]{}
		for _, group := range r.Groups {
			if asked.first(group.Group) {
				response.Groups = append(response.Groups, s.offsetsOf(c, group, failed))
			}
		}
		return response
	}
	asked := kmsg.NewOffsetFetchRequestGroup()
	asked.Group = r.Group
	if r.Topics != nil {
		asked.Topics = []kmsg.OffsetFetchRequestGroupTopic{}
	}
	for _, t := range r.Topics {
		of := kmsg.NewOffsetFetchRequestGroupTopic()
		of.Topic, of.Partitions = t.Topic, t.Partitions
		asked.Topics = append(asked.Topics, of)
	}
	found := s.offsetsOf(c, asked, failed)
	response.ErrorCode = found.ErrorCode
	for _, t := range found.Topics {
		of := kmsg.NewOffsetFetchResponseTopic()
		of.Topic = t.Topic
		for _, p := range t.Partitions {
			offset := kmsg.NewOffsetFetchResponseTopicPartition()
			offset.Partition, offset.Offset, offset.LeaderEpoch = p.Partition, p.Offset, p.LeaderEpoch
			offset.Metadata, offset.ErrorCode = p.Metadata, p.ErrorCode
			of.Partitions = append(of.Partitions, offset)
		}
		response.Topics = append(response.Topics, of)
	}
	return response
}

// offsetCost is the memory of a committed offset in an answer, without its text.
const offsetCost = 256

// offsetsOf returns the offsets of a group. It sets an error for the group and for each
// partition, because versions have one or the other.
func (s *Server) offsetsOf(c *call, asked kmsg.OffsetFetchRequestGroup, failed error) kmsg.OffsetFetchResponseGroup {
	found := kmsg.NewOffsetFetchResponseGroup()
	found.Group = asked.Group
	offsets, err := map[string]map[int32]group.CommittedOffset(nil), failed
	if err == nil {
		offsets, err = s.broker.Groups().Offsets(asked.Group)
	}
	found.ErrorCode = s.groupCode(asked.Group, err)
	topics := asked.Topics
	if topics == nil {
		topics = allTopics(offsets)
	}
	named := once[partitionName]{}
	for _, t := range topics {
		of := kmsg.NewOffsetFetchResponseGroupTopic()
		of.Topic = t.Topic
		for _, partition := range t.Partitions {
			if !named.first(partitionName{t.Topic, partition}) {
				continue
			}
			offset := kmsg.NewOffsetFetchResponseGroupTopicPartition()
			offset.Partition, offset.Offset, offset.LeaderEpoch = partition, -1, -1
			offset.Metadata, offset.ErrorCode = kmsg.StringPtr(""), found.ErrorCode
			o, committed := offsets[t.Topic][partition]
			if !committed {
				of.Partitions = append(of.Partitions, offset)
				continue
			}
			if err := c.memory.add(offsetCost + 2*int64(len(o.Metadata))); err != nil {
				offset.ErrorCode = code(err)
			} else {
				offset.Offset, offset.LeaderEpoch, offset.Metadata = o.Offset, o.Epoch, kmsg.StringPtr(o.Metadata)
			}
			of.Partitions = append(of.Partitions, offset)
		}
		found.Topics = append(found.Topics, of)
	}
	return found
}

// allTopics requests all topics with offsets, in order.
func allTopics(offsets map[string]map[int32]group.CommittedOffset) []kmsg.OffsetFetchRequestGroupTopic {
	var topics []kmsg.OffsetFetchRequestGroupTopic
	for name, partitions := range offsets {
		t := kmsg.NewOffsetFetchRequestGroupTopic()
		t.Topic = name
		for partition := range partitions {
			t.Partitions = append(t.Partitions, partition)
		}
		slices.Sort(t.Partitions)
		topics = append(topics, t)
	}
	slices.SortFunc(topics, func(a, b kmsg.OffsetFetchRequestGroupTopic) int { return cmp.Compare(a.Topic, b.Topic) })
	return topics
}
