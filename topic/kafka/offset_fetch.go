package kafka

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic/group"
	"github.com/sluice-project/sluice/topic/kafka/auth"
	"github.com/sluice-project/sluice/topic/txn"
)

// OffsetFetch: versions 0 to 9.
//
// Answers the committed offsets of groups, for the requested partitions or all with a commit.
// Without a commit, or for an unknown group, the offset is -1 and no error. In a cluster the
// node first confirms that it still coordinates the groups, so that no commit is missed.
//
//   - 2: all topics of the group (null); an error for the whole group.
//   - 5: the leader epoch.
//   - 7: only offsets that no transaction can change any more; for others the
//     error is UNSTABLE_OFFSET_COMMIT, after which clients try again.
//   - 8: several groups.
//   - 9: the member and its epoch. In groups of the consumer protocol another epoch is
//     STALE_MEMBER_EPOCH, so that a member does not read from where it no longer may.
func (s *Server) offsetFetch(c *call, r *kmsg.OffsetFetchRequest) answer {
	return func(ctx context.Context) kmsg.Response {
		err := s.broker.Groups().Confirm(ctx)
		var pending map[string]txn.Offsets
		if err == nil && r.RequireStable { // before the offsets are read: those that were pending are committed by then, or stay so
			if pending, err = s.broker.Transactions().Pending(ctx); err != nil {
				err = fmt.Errorf("%w: %w", group.ErrCoordinatorUnavailable, err)
			}
		}
		return s.fetchOffsets(c, r, pending, err)
	}
}

func (s *Server) fetchOffsets(c *call, r *kmsg.OffsetFetchRequest, pending map[string]txn.Offsets, failed error) kmsg.Response {
	response := r.ResponseKind().(*kmsg.OffsetFetchResponse)
	if r.Version >= 8 {
		asked := once[string]{}
		response.Groups = make([]kmsg.OffsetFetchResponseGroup, 0, len(r.Groups))
		for i := range r.Groups {
			if asked.first(r.Groups[i].Group) {
				response.Groups = append(response.Groups, s.offsetsOf(c, &r.Groups[i], pending[r.Groups[i].Group], failed))
			}
		}
		return response
	}
	offsets := s.newGroupOffsets(c, r.Group, pending[r.Group], failed)
	response.ErrorCode = offsets.failure
	if r.Topics == nil {
		r.Topics = offsets.topics()
	}
	response.Topics = make([]kmsg.OffsetFetchResponseTopic, len(r.Topics))
	for i, t := range r.Topics {
		response.Topics[i].Topic = t.Topic
		response.Topics[i].Partitions = partitionsOf[kmsg.OffsetFetchResponseTopicPartition](offsets, t.Topic, t.Partitions)
	}
	return response
}

// offsetsOf returns the offsets of a group.
func (s *Server) offsetsOf(c *call, asked *kmsg.OffsetFetchRequestGroup, pending txn.Offsets, failed error) kmsg.OffsetFetchResponseGroup {
	if failed == nil && asked.MemberID != nil {
		failed = s.broker.Groups().CheckEpoch(group.MemberIdentity{Group: asked.Group, Member: *asked.MemberID, Generation: asked.MemberEpoch})
	}
	offsets := s.newGroupOffsets(c, asked.Group, pending, failed)
	found := kmsg.OffsetFetchResponseGroup{Group: asked.Group, ErrorCode: offsets.failure}
	if asked.Topics == nil {
		for _, t := range offsets.topics() {
			asked.Topics = append(asked.Topics, kmsg.OffsetFetchRequestGroupTopic{Topic: t.Topic, Partitions: t.Partitions})
		}
	}
	found.Topics = make([]kmsg.OffsetFetchResponseGroupTopic, len(asked.Topics))
	for i, t := range asked.Topics {
		found.Topics[i].Topic = t.Topic
		found.Topics[i].Partitions = partitionsOf[kmsg.OffsetFetchResponseGroupTopicPartition](offsets, t.Topic, t.Partitions)
	}
	return found
}

// groupOffsets are the committed offsets of a group.
type groupOffsets struct {
	call    *call
	byTopic map[string]map[int32]group.CommittedOffset
	// pending are the offsets that transactions may change, if these must not be answered.
	pending txn.Offsets
	// failure is the code of the error for the group and for each partition, because versions have one
	// or the other.
	failure int16
	// told are the offsets that the answer has.
	told once[committedName]
}

// committedName names a partition with a committed offset.
type committedName struct {
	topic  string
	number int32
}

func (s *Server) newGroupOffsets(c *call, name string, pending txn.Offsets, failed error) *groupOffsets {
	offsets, err := map[string]map[int32]group.CommittedOffset(nil), failed
	if err == nil {
		err = c.authorize(auth.Group, name)
	}
	if err == nil {
		offsets, err = s.broker.Groups().Offsets(name)
	}
	return &groupOffsets{call: c, byTopic: offsets, pending: pending, failure: s.groupCode(name, err), told: once[committedName]{}}
}

// topics requests all topics with offsets, in order.
func (o *groupOffsets) topics() []kmsg.OffsetFetchRequestTopic {
	var topics []kmsg.OffsetFetchRequestTopic
	for name, partitions := range o.byTopic {
		if !o.call.may(o.call.key, auth.Topic, name) {
			continue
		}
		topics = append(topics, kmsg.OffsetFetchRequestTopic{Topic: name, Partitions: slices.Sorted(maps.Keys(partitions))})
	}
	slices.SortFunc(topics, func(a, b kmsg.OffsetFetchRequestTopic) int { return cmp.Compare(a.Topic, b.Topic) })
	return topics
}

// offsetCost is the memory of a committed offset in an answer, without its text.
const offsetCost = 256

// noMetadata is the text of a partition without a committed offset, which may not be null.
var noMetadata = new(string)

// partitionsOf returns the offsets of partitions of a topic, in either form. One that is committed is
// answered once.
func partitionsOf[P kmsg.OffsetFetchResponseTopicPartition | kmsg.OffsetFetchResponseGroupTopicPartition](offsets *groupOffsets, name string, numbers []int32) []P {
	numbers = distinct(numbers)
	all := make([]P, 0, len(numbers))
	in, failed := offsets.byTopic[name], offsets.failure
	if err := offsets.call.authorize(auth.Topic, name); err != nil && failed == 0 {
		in, failed = nil, code(err)
	}
	for _, number := range numbers {
		offset := kmsg.OffsetFetchResponseTopicPartition{Partition: number, Offset: -1, LeaderEpoch: -1, Metadata: noMetadata, ErrorCode: failed}
		if _, pending := offsets.pending[name][number]; pending && failed == 0 {
			offset.ErrorCode = kerr.UnstableOffsetCommit.Code
			all = append(all, P(offset))
			continue
		}
		if o, committed := in[number]; committed {
			if !offsets.told.first(committedName{name, number}) {
				continue
			}
			if err := offsets.call.memory.add(offsetCost + 2*int64(len(o.Metadata))); err != nil {
				offset.ErrorCode = code(err)
			} else {
				offset.Offset, offset.LeaderEpoch, offset.Metadata = o.Offset, o.Epoch, kmsg.StringPtr(o.Metadata)
			}
		}
		all = append(all, P(offset))
	}
	return all
}
