package kafka

import (
	"context"
	"errors"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/group"
	"github.com/sluice-project/sluice/topic/kafka/auth"
	"github.com/sluice-project/sluice/topic/share"
)

// failure is an error with a code of the protocol.
type failure struct {
	kind   *kerr.Error
	reason string
}

// fail returns an error of a kind with a message.
func fail(kind *kerr.Error, reason string) error { return &failure{kind, reason} }

func (f *failure) Error() string { return f.reason }

// kinds maps topic's errors to the protocol's. They decide which requests clients retry.
var errorKinds = []struct {
	err  error
	kind *kerr.Error
}{
	{topic.ErrNoTopic, kerr.UnknownTopicOrPartition},
	{topic.ErrNoPartition, kerr.UnknownTopicOrPartition},
	{topic.ErrTopicExists, kerr.TopicAlreadyExists},
	{topic.ErrInvalidName, kerr.InvalidTopicException},
	{topic.ErrInvalidSetting, kerr.InvalidConfig},
	{topic.ErrInvalidPartitions, kerr.InvalidPartitions},
	{topic.ErrTooManyPartitions, kerr.PolicyViolation},
	{topic.ErrQuota, kerr.PolicyViolation},
	{topic.ErrInvalidReplicas, kerr.InvalidReplicationFactor},
	{topic.ErrInvalidAssignment, kerr.InvalidReplicaAssignment},
	{topic.ErrNoNode, kerr.BrokerNotAvailable},
	{topic.ErrNoReassignment, kerr.NoReassignmentInProgress},
	{topic.ErrElectionNotNeeded, kerr.ElectionNotNeeded},
	{topic.ErrNoPreferredLeader, kerr.PreferredLeaderNotAvailable},
	{share.ErrState, kerr.InvalidRecordState},
	{share.ErrInvalid, kerr.InvalidRequest},
	{group.ErrNoGroup, kerr.GroupIDNotFound},
	{group.ErrOtherProtocol, kerr.GroupIDNotFound},
	{group.ErrGroupNotEmpty, kerr.NonEmptyGroup},
	{group.ErrInvalidGroup, kerr.InvalidGroupID},
	{group.ErrTooManyGroups, kerr.PolicyViolation},
	{topic.ErrSharesFull, kerr.PolicyViolation},
	{topic.ErrHasViews, kerr.PolicyViolation},
	{topic.ErrView, kerr.PolicyViolation},
	{topic.ErrCompacted, kerr.PolicyViolation},
	{topic.ErrOffsetOutOfRange, kerr.OffsetOutOfRange},
	{topic.ErrRecordTooLarge, kerr.MessageTooLarge},
	{topic.ErrInvalidRecord, kerr.InvalidRecord},
	{topic.ErrInvalidTimestamp, kerr.InvalidTimestamp},
	{topic.ErrOutOfOrderSequence, kerr.OutOfOrderSequenceNumber},
	{topic.ErrProducerFenced, kerr.InvalidProducerEpoch},
	{topic.ErrUnknownProducer, kerr.UnknownProducerID},
	{topic.ErrTransactionState, kerr.InvalidTxnState},
	{topic.ErrTransactionsFull, kerr.PolicyViolation},
	{topic.ErrCorrupt, kerr.CorruptMessage},
	// Before ErrRetry, which occurs together with it while the partition recovers.
	{topic.ErrFull, kerr.KafkaStorageError},
	{topic.ErrNotLeader, kerr.NotLeaderForPartition},
	{topic.ErrRetry, kerr.NotLeaderForPartition},
	{topic.ErrFenced, kerr.NotLeaderForPartition},
	{topic.ErrNoLog, kerr.NotLeaderForPartition},
	{topic.ErrClosed, kerr.NotLeaderForPartition},
	{auth.ErrNotFound, kerr.ResourceNotFound},
	{auth.ErrFull, kerr.PolicyViolation},
	{auth.ErrAway, kerr.RequestTimedOut},
	{topic.ErrDelaysFull, kerr.ThrottlingQuotaExceeded},
	{topic.ErrUncompressedSize, kerr.MessageTooLarge},
	{topic.ErrUncertain, kerr.RequestTimedOut},
	{context.DeadlineExceeded, kerr.RequestTimedOut},
	{context.Canceled, kerr.RequestTimedOut},
}

// kindOf returns the protocol's error for an error; nil for nil, and UNKNOWN_SERVER_ERROR for
// an unexpected one.
func kindOf(err error) *kerr.Error {
	if err == nil {
		return nil
	}
	if f, ok := errors.AsType[*failure](err); ok {
		return f.kind
	}
	for _, known := range errorKinds {
		if errors.Is(err, known.err) {
			return known.kind
		}
	}
	return kerr.UnknownServerError
}

// code returns the number of the protocol's error for an error; 0 for nil.
func code(err error) int16 {
	if err == nil {
		return 0
	}
	return kindOf(err).Code
}

// unknown has all that is said of names that this node does not know. A request may have many, and the
// answer has each name beside the text.
var unknown = []struct {
	err  error
	text string
}{
	{topic.ErrNoTopic, topic.ErrNoTopic.Error()},
	{topic.ErrNoPartition, topic.ErrNoPartition.Error()},
	{group.ErrNoGroup, group.ErrNoGroup.Error()},
	{group.ErrNotCoordinator, group.ErrNotCoordinator.Error()},
}

// message returns the text that goes with the code of an error; nil for nil.
func message(err error) *string {
	if err == nil {
		return nil
	}
	for i := range unknown {
		if errors.Unwrap(err) == unknown[i].err { //nolint:errorlint // wrapped in more, it is why something else is refused
			return &unknown[i].text
		}
	}
	text := err.Error()
	if len(text) > maxMessage { // a client may have sent a long name
		text = strings.ToValidUTF8(text[:maxMessage], "") + " …"
	}
	return &text
}

// maxMessage bounds the text that goes with an error.
const maxMessage = 1000

// unexpected logs an error without a code: clients only see UNKNOWN_SERVER_ERROR. doing ends with the
// name, if any: the two are put together for the log only.
func (s *Server) unexpected(doing, name string, err error) {
	if err != nil && kindOf(err) == kerr.UnknownServerError {
		s.log.Error("kafka request failed", "doing", doing+name, "error", err)
	}
}
