package kafka

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/group"
)

// groupKinds are the protocol's errors for those of consumer groups. After
// COORDINATOR_NOT_AVAILABLE and NOT_COORDINATOR clients look for the coordinator again; after
// COORDINATOR_LOAD_IN_PROGRESS they wait and retry. Refusals are logged, because clients report
// them poorly.
var groupKinds = []struct {
	err     error
	kind    *kerr.Error
	refusal bool
}{
	{err: group.ErrUnknownMember, kind: kerr.UnknownMemberID},
	{err: group.ErrIllegalGeneration, kind: kerr.IllegalGeneration},
	{err: group.ErrRebalanceInProgress, kind: kerr.RebalanceInProgress},
	{err: group.ErrFencedInstance, kind: kerr.FencedInstanceID},
	{err: group.ErrOtherProtocol, kind: kerr.GroupIDNotFound},
	{err: group.ErrFencedEpoch, kind: kerr.FencedMemberEpoch},
	{err: group.ErrStaleEpoch, kind: kerr.StaleMemberEpoch},
	{err: group.ErrUnreleasedInstance, kind: kerr.UnreleasedInstanceID},
	{err: group.ErrUnknownAssignor, kind: kerr.UnsupportedAssignor},
	{err: group.ErrInvalidPattern, kind: kerr.InvalidRegularExpression},
	{err: group.ErrInconsistentProtocol, kind: kerr.InconsistentGroupProtocol},
	{err: group.ErrMemberIDRequired, kind: kerr.MemberIDRequired},
	{err: group.ErrInvalidSession, kind: kerr.InvalidSessionTimeout},
	{err: group.ErrInvalidGroup, kind: kerr.InvalidGroupID},
	{err: group.ErrInvalidGroupRequest, kind: kerr.InvalidRequest, refusal: true},
	{err: group.ErrGroupFull, kind: kerr.GroupMaxSizeReached, refusal: true},
	{err: group.ErrTooManyGroups, kind: kerr.PolicyViolation, refusal: true},
	{err: group.ErrGroupTooLarge, kind: kerr.MessageTooLarge, refusal: true},
	{err: group.ErrGroupNotEmpty, kind: kerr.NonEmptyGroup},
	{err: group.ErrNoGroup, kind: kerr.GroupIDNotFound},
	{err: group.ErrSubscribed, kind: kerr.GroupSubscribedToTopic},
	{err: group.ErrOffsetMetadataTooLarge, kind: kerr.OffsetMetadataTooLarge},
	{err: group.ErrCoordinatorLoading, kind: kerr.CoordinatorLoadInProgress},
	{err: group.ErrNotCoordinator, kind: kerr.NotCoordinator},
	{err: group.ErrCoordinatorUnavailable, kind: kerr.CoordinatorNotAvailable},
	{err: topic.ErrClosed, kind: kerr.NotCoordinator},
	{err: context.Canceled, kind: kerr.NotCoordinator},
}

// groupCode returns the number of the protocol's error for an error of a
// group; 0 for nil.
func (s *Server) groupCode(group string, err error) int16 {
	if err == nil {
		return 0
	}
	for _, known := range groupKinds {
		if !errors.Is(err, known.err) {
			continue
		}
		if known.refusal {
			s.log.Warn("consumer group request refused", "group", group, "error", err)
		}
		return known.kind.Code
	}
	s.unexpected("consumer group ", group, err)
	return code(err)
}

// awaitGroup waits for an outcome that depends on other members. When the server stops, or others
// wait for memory that later requests of the connection hold, it returns an error after which members
// look for their coordinator again.
func awaitGroup[T any](ctx context.Context, c *call, awaited *group.Awaited[T]) (T, error) {
	look := time.NewTicker(stallTime)
	defer look.Stop()
	for {
		select {
		case <-awaited.Done():
			return awaited.Wait(ctx)
		case <-ctx.Done():
			return awaited.Wait(ctx)
		case <-look.C:
			if !c.session.obstructs() {
				continue
			}
		case <-c.session.server.draining:
		}
		var none T
		return none, topic.ErrClosed
	}
}

// orEmpty returns a text, or "" if there is none; orNull is the reverse.
func orEmpty(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}

func orNull(text string) *string {
	if text == "" {
		return nil
	}
	return kmsg.StringPtr(text)
}

// kept copies bytes of a request that must outlive it.
func kept(part []byte) []byte { return bytes.Clone(part) }
