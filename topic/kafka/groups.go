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
// again, for COORDINATOR_LOAD_IN_PROGRESS they wait and try again.
var groupKinds = []struct {
	err  error
	kind *kerr.Error
}{
	{topic.ErrUnknownMember, kerr.UnknownMemberID},
	{topic.ErrIllegalGeneration, kerr.IllegalGeneration},
	{topic.ErrRebalanceInProgress, kerr.RebalanceInProgress},
	{topic.ErrFencedInstance, kerr.FencedInstanceID},
	{topic.ErrInconsistentProtocol, kerr.InconsistentGroupProtocol},
	{topic.ErrMemberIDRequired, kerr.MemberIDRequired},
	{topic.ErrInvalidSession, kerr.InvalidSessionTimeout},
	{topic.ErrInvalidGroup, kerr.InvalidGroupID},
	{topic.ErrInvalidGroupRequest, kerr.InvalidRequest},
	{topic.ErrGroupFull, kerr.GroupMaxSizeReached},
	{topic.ErrTooManyGroups, kerr.PolicyViolation},
	{topic.ErrGroupTooLarge, kerr.MessageTooLarge},
	{topic.ErrGroupNotEmpty, kerr.NonEmptyGroup},
	{topic.ErrNoGroup, kerr.GroupIDNotFound},
	{topic.ErrSubscribed, kerr.GroupSubscribedToTopic},
	{topic.ErrOffsetMetadataTooLarge, kerr.OffsetMetadataTooLarge},
	{topic.ErrCoordinatorLoading, kerr.CoordinatorLoadInProgress},
	{topic.ErrNotCoordinator, kerr.NotCoordinator},
	{topic.ErrCoordinatorUnavailable, kerr.CoordinatorNotAvailable},
	{topic.ErrClosed, kerr.NotCoordinator},
	{context.Canceled, kerr.NotCoordinator},
}

// groupCode returns the number of the protocol's error for an error of a
// group; 0 for nil. Those that clients do not know how to treat are logged.
func (s *Server) groupCode(group string, err error) int16 {
	if err == nil {
		return 0
	}
	for _, known := range groupKinds {
		if !errors.Is(err, known.err) {
			continue
		}
		switch known.err {
		case topic.ErrGroupFull, topic.ErrTooManyGroups, topic.ErrGroupTooLarge, topic.ErrInvalidGroupRequest:
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
