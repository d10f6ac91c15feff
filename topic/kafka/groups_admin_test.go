package kafka

import (
	"errors"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/group"
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
			want[0] = kerr.GroupIDNotFound // it is already gone
		}
		for i, g := range gone.Groups {
			wantCode(t, "delete group "+g.Group, g.ErrorCode, want[i])
		}
	}
}

// Every error of groups has a code that clients handle.
func TestEveryGroupErrorHasACode(t *testing.T) {
	s, _ := serve(t, topic.Config{})
	for _, err := range []error{
		group.ErrUnknownMember, group.ErrIllegalGeneration, group.ErrRebalanceInProgress, group.ErrFencedInstance,
		group.ErrInconsistentProtocol, group.ErrMemberIDRequired, group.ErrInvalidSession, group.ErrInvalidGroup,
		group.ErrInvalidGroupRequest, group.ErrGroupFull, group.ErrTooManyGroups, group.ErrGroupTooLarge, group.ErrGroupNotEmpty,
		group.ErrNoGroup, group.ErrSubscribed, group.ErrOffsetMetadataTooLarge, group.ErrCoordinatorLoading,
		group.ErrCoordinatorUnavailable, group.ErrNotCoordinator, topic.ErrClosed,
	} {
		if code := s.groupCode("g", fmt.Errorf("wrapped: %w", err)); code <= 0 {
			t.Errorf("%v has the code %d", err, code)
		}
	}
	if code := s.groupCode("g", fmt.Errorf("%w: %w", group.ErrCoordinatorUnavailable, topic.ErrClosed)); code != kerr.CoordinatorNotAvailable.Code {
		t.Errorf("a store that is closed has the code %d", code)
	}
	if code := s.groupCode("g", errors.New("new")); code != kerr.UnknownServerError.Code {
		t.Errorf("an error that nobody knows has the code %d", code)
	}
}
