package kafka

import (
	"bytes"
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic"
)

// groupKinds are the errors of consumer groups, as clients are told. For
// COORDINATOR_NOT_AVAILABLE and NOT_COORDINATOR they look for the coordinator
// again, for COORDINATOR_LOAD_IN_PROGRESS they wait and try again. Refusals are
// for somebody to look at: clients cannot say well what is wrong.
var groupKinds = []struct {
	err     error
	kind    *kerr.Error
	refusal bool
}{
	{err: topic.ErrUnknownMember, kind: kerr.UnknownMemberID},
	{err: topic.ErrIllegalGeneration, kind: kerr.IllegalGeneration},
	{err: topic.ErrRebalanceInProgress, kind: kerr.RebalanceInProgress},
	{err: topic.ErrFencedInstance, kind: kerr.FencedInstanceID},
	{err: topic.ErrInconsistentProtocol, kind: kerr.InconsistentGroupProtocol},
	{err: topic.ErrMemberIDRequired, kind: kerr.MemberIDRequired},
	{err: topic.ErrInvalidSession, kind: kerr.InvalidSessionTimeout},
	{err: topic.ErrInvalidGroup, kind: kerr.InvalidGroupID},
	{err: topic.ErrInvalidGroupRequest, kind: kerr.InvalidRequest, refusal: true},
	{err: topic.ErrGroupFull, kind: kerr.GroupMaxSizeReached, refusal: true},
	{err: topic.ErrTooManyGroups, kind: kerr.PolicyViolation, refusal: true},
	{err: topic.ErrGroupTooLarge, kind: kerr.MessageTooLarge, refusal: true},
	{err: topic.ErrGroupNotEmpty, kind: kerr.NonEmptyGroup},
	{err: topic.ErrNoGroup, kind: kerr.GroupIDNotFound},
	{err: topic.ErrSubscribed, kind: kerr.GroupSubscribedToTopic},
	{err: topic.ErrOffsetMetadataTooLarge, kind: kerr.OffsetMetadataTooLarge},
	{err: topic.ErrCoordinatorLoading, kind: kerr.CoordinatorLoadInProgress},
	{err: topic.ErrNotCoordinator, kind: kerr.NotCoordinator},
	{err: topic.ErrCoordinatorUnavailable, kind: kerr.CoordinatorNotAvailable},
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
	s.unexpected("consumer group "+group, err)
	return code(err)
}

// awaitGroup waits for what depends on other members. When the server is about to
// stop, members are told to look for their coordinator again.
func awaitGroup[T any](ctx context.Context, s *Server, awaited *topic.Awaited[T]) (T, error) {
	select {
	case <-awaited.Done():
	case <-ctx.Done():
	case <-s.draining:
		var none T
		return none, topic.ErrClosed
	}
	return awaited.Wait(ctx)
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

// kept returns a copy of bytes of a request, which outlive it.
func kept(part []byte) []byte { return bytes.Clone(part) }
