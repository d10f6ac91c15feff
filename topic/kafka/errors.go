package kafka

import (
	"context"
	"errors"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/sluice-project/sluice/topic"
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
	{topic.ErrInvalidReplicas, kerr.InvalidReplicationFactor},
	{topic.ErrInvalidAssignment, kerr.InvalidReplicaAssignment},
	{topic.ErrNoNode, kerr.BrokerNotAvailable},
	{topic.ErrNoReassignment, kerr.NoReassignmentInProgress},
	{topic.ErrElectionNotNeeded, kerr.ElectionNotNeeded},
	{topic.ErrNoPreferredLeader, kerr.PreferredLeaderNotAvailable},
	{topic.ErrHasViews, kerr.PolicyViolation},
	{topic.ErrView, kerr.PolicyViolation},
	{topic.ErrOffsetOutOfRange, kerr.OffsetOutOfRange},
	{topic.ErrRecordTooLarge, kerr.MessageTooLarge},
	{topic.ErrInvalidRecord, kerr.InvalidRecord},
	{topic.ErrInvalidTimestamp, kerr.InvalidTimestamp},
	{topic.ErrOutOfOrderSequence, kerr.OutOfOrderSequenceNumber},
	{topic.ErrProducerFenced, kerr.InvalidProducerEpoch},
	{topic.ErrUnknownProducer, kerr.UnknownProducerID},
	{topic.ErrCorrupt, kerr.CorruptMessage},
	// Before ErrRetry, which occurs together with it while the partition recovers.
	{topic.ErrFull, kerr.KafkaStorageError},
	{topic.ErrNotLeader, kerr.NotLeaderForPartition},
	{topic.ErrRetry, kerr.NotLeaderForPartition},
	{topic.ErrFenced, kerr.NotLeaderForPartition},
	{topic.ErrNoLog, kerr.NotLeaderForPartition},
	{topic.ErrClosed, kerr.NotLeaderForPartition},
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

// message returns the text that goes with the code of an error; nil for nil.
func message(err error) *string {
	if err == nil {
		return nil
	}
	text := err.Error()
	if len(text) > maxMessage { // a client may have sent a long name
		text = strings.ToValidUTF8(text[:maxMessage], "") + " …"
	}
	return &text
}

// maxMessage bounds the text that goes with an error.
const maxMessage = 1000

// unexpected logs an error without a code: clients only see UNKNOWN_SERVER_ERROR.
func (s *Server) unexpected(doing string, err error) {
	if err != nil && kindOf(err) == kerr.UnknownServerError {
		s.log.Error("kafka request failed", "doing", doing, "error", err)
	}
}
