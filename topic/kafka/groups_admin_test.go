package kafka

import (
	"errors"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic"
)

func TestDeleteOffsetsAndGroups(t *testing.T) {
	s, b := serve(t, topic.Config{})
	create(t, b, "orders", 1)
	p := dial(t, s)
	wantCode(t, "commit", ask[*kmsg.OffsetCommitResponse](p, 9, commitOf("g", noMember, "orders", 0, 1)).Topics[0].Partitions[0].ErrorCode, nil)

	offsets := kmsg.NewPtrOffsetDeleteRequest()
	offsets.Group = "g"
	of := kmsg.NewOffsetDeleteRequestTopic()
	of.Topic = "orders"
	for partition := range int32(2) {
		o := kmsg.NewOffsetDeleteRequestTopicPartition()
		o.Partition = partition
		of.Partitions = append(of.Partitions, o)
	}
	offsets.Topics = append(offsets.Topics, of)
	deleted := ask[*kmsg.OffsetDeleteResponse](p, 0, offsets)
	wantCode(t, "delete offsets", deleted.ErrorCode, nil)
	wantCode(t, "delete an offset", deleted.Topics[0].Partitions[0].ErrorCode, nil)
	wantCode(t, "delete an offset of a partition that is not there", deleted.Topics[0].Partitions[1].ErrorCode, kerr.UnknownTopicOrPartition)
	offsets.Group = "nobody's"
	wantCode(t, "delete offsets of no group", ask[*kmsg.OffsetDeleteResponse](p, 0, offsets).ErrorCode, kerr.GroupIDNotFound)

	wantCode(t, "commit", ask[*kmsg.OffsetCommitResponse](p, 9, commitOf("g", noMember, "orders", 0, 1)).Topics[0].Partitions[0].ErrorCode, nil)
	joinAlone(p, 9, "members")
	for version := range int16(3) {
		groups := kmsg.NewPtrDeleteGroupsRequest()
		groups.Groups = []string{"g", "members", "nobody's"}
		gone := ask[*kmsg.DeleteGroupsResponse](p, version, groups)
		want := []*kerr.Error{nil, kerr.NonEmptyGroup, kerr.GroupIDNotFound}
		if version > 0 {
			want[0] = kerr.GroupIDNotFound // it is gone already
		}
		for i, g := range gone.Groups {
			wantCode(t, "delete group "+g.Group, g.ErrorCode, want[i])
		}
	}
}

// Every error of groups has a code that clients know what to do with.
func TestEveryGroupErrorHasACode(t *testing.T) {
	s, _ := serve(t, topic.Config{})
	for _, err := range []error{
		topic.ErrUnknownMember, topic.ErrIllegalGeneration, topic.ErrRebalanceInProgress, topic.ErrFencedInstance,
		topic.ErrInconsistentProtocol, topic.ErrMemberIDRequired, topic.ErrInvalidSession, topic.ErrInvalidGroup,
		topic.ErrInvalidGroupRequest, topic.ErrGroupFull, topic.ErrTooManyGroups, topic.ErrGroupTooLarge, topic.ErrGroupNotEmpty,
		topic.ErrNoGroup, topic.ErrSubscribed, topic.ErrOffsetMetadataTooLarge, topic.ErrCoordinatorLoading,
		topic.ErrCoordinatorUnavailable, topic.ErrNotCoordinator, topic.ErrClosed,
	} {
		if code := s.groupCode("g", fmt.Errorf("wrapped: %w", err)); code <= 0 {
			t.Errorf("%v has the code %d", err, code)
		}
	}
	if code := s.groupCode("g", fmt.Errorf("%w: %w", topic.ErrCoordinatorUnavailable, topic.ErrClosed)); code != kerr.CoordinatorNotAvailable.Code {
		t.Errorf("a store that is closed has the code %d", code)
	}
	if code := s.groupCode("g", errors.New("new")); code != kerr.UnknownServerError.Code {
		t.Errorf("an error that nobody knows has the code %d", code)
	}
}
