package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic/group"
	"github.com/sluice-project/sluice/topic/kafka/auth"
)

// OffsetCommit: versions 0 to 9.
//
// Commits offsets of a group, and answers when they are durable. A member sends its id and
// generation. Consumers that assign partitions themselves, and tools, send no member and
// generation -1: the group must then have no members. An unknown partition is
// UNKNOWN_TOPIC_OR_PARTITION; the others are committed nevertheless.
//
//   - 0: no member. 1: the member; a timestamp, which does not matter.
//   - 2 to 4: how long the offsets are kept; after that the broker decides.
//   - 6: the leader epoch of the last record read.
//   - 7: static members (an instance id).
//   - 9: in groups of the consumer protocol, the generation is the member's epoch, and another one is
//     STALE_MEMBER_EPOCH; in earlier versions it is ILLEGAL_GENERATION.
func (s *Server) offsetCommit(c *call, r *kmsg.OffsetCommitRequest) answer {
	request := group.CommitRequest{MemberIdentity: group.MemberIdentity{
		Group: r.Group, Member: r.MemberID, Instance: orEmpty(r.InstanceID), Generation: r.Generation,
	}}
	if r.RetentionTimeMillis > 0 {
		request.Retention = time.Duration(min(r.RetentionTimeMillis, maxRetentionMillis)) * time.Millisecond
	}
	var places []*kmsg.OffsetCommitResponseTopicPartition // for each offset of the request
	response := r.ResponseKind().(*kmsg.OffsetCommitResponse)
	refused := c.authorize(auth.Group, r.Group)
	response.Topics = make([]kmsg.OffsetCommitResponseTopic, len(r.Topics))
	for i, t := range r.Topics {
		answered := &response.Topics[i]
		answered.Topic = t.Topic
		answered.Partitions = make([]kmsg.OffsetCommitResponseTopicPartition, len(t.Partitions))
		existing, missing := c.topic(t.Topic)
		for j, p := range t.Partitions {
			place := &answered.Partitions[j]
			place.Partition = p.Partition
			err := cmp.Or(refused, missing)
			if err == nil {
				err = existing.Has(p.Partition)
			}
			if err != nil {
				place.ErrorCode = code(err)
				continue
			}
			places = append(places, place)
			request.Offsets = append(request.Offsets, group.OffsetCommit{
				Topic: t.Topic, Partition: p.Partition, Offset: p.Offset, Epoch: epochOf(r.Version, p), Metadata: orEmpty(p.Metadata),
			})
		}
	}
	if refused != nil {
		return respond(response)
	}
	committing := s.broker.Groups().Commit(request)
	return func(ctx context.Context) kmsg.Response {
		errs, err := committing.Wait(ctx)
		if r.Version < 9 && errors.Is(err, group.ErrStaleEpoch) {
			err = fmt.Errorf("%w: %w", group.ErrIllegalGeneration, err)
		}
		for i, place := range places {
			if err == nil {
				place.ErrorCode = s.groupCode(r.Group, errs[i])
			} else {
				place.ErrorCode = s.groupCode(r.Group, err)
			}
		}
		return response
	}
}

// maxRetentionMillis is a hundred years.
const maxRetentionMillis = 100 * 365 * 24 * 3600 * 1000

// epochOf returns the leader epoch of a commit: older clients know none.
func epochOf(version int16, p kmsg.OffsetCommitRequestTopicPartition) int32 {
	if version < 6 {
		return -1
	}
	return p.LeaderEpoch
}
