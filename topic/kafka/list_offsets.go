package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
)

// Special timestamps.
const (
	timestampLatest        = -1
	timestampEarliest      = -2
	timestampMax           = -3
	timestampEarliestLocal = -4
)

// readCommitted is the isolation level of consumers that see committed records only.
const readCommitted = 1

// ListOffsets: versions 1 to 8.
//
// A timestamp returns the first record with at least that timestamp; offset and timestamp are -1 if
// there is none. -1 returns the high watermark, or with read_committed and for a view the last
// stable offset; -2 and -4 (version 8) the first available offset,
// -3 (version 7) the record with the highest timestamp. Other negative timestamps, and
// partitions that the request names again, are an INVALID_REQUEST.
//
//   - 2: isolation.
//   - 4: the expected leader epoch is checked, and the present one returned. Only the partition's
//     leader answers; other nodes return NOT_LEADER_OR_FOLLOWER.
//   - 9, 10: would be for tiered storage.
func (s *Server) listOffsets(c *call, r *kmsg.ListOffsetsRequest) answer {
	return func(ctx context.Context) kmsg.Response {
		response := r.ResponseKind().(*kmsg.ListOffsetsResponse)
		named := once[partitionName]{}
		response.Topics = make([]kmsg.ListOffsetsResponseTopic, len(r.Topics))
		for i := range r.Topics {
			asked, listed := &r.Topics[i], &response.Topics[i]
			listed.Topic = asked.Topic
			listed.Partitions = make([]kmsg.ListOffsetsResponseTopicPartition, len(asked.Partitions))
			t, missing := c.topic(asked.Topic)
			for j, p := range asked.Partitions {
				found, err := notListed, missing
				if err == nil {
					found, err = listOffset(ctx, t, p, r.IsolationLevel == readCommitted || t.Source() != nil, named)
				}
				s.unexpected("list offsets of ", asked.Topic, err)
				found.Partition, found.ErrorCode = p.Partition, code(err)
				listed.Partitions[j] = found
			}
		}
		return response
	}
}

// notListed is the answer for a partition whose offset is not known.
var notListed = func() kmsg.ListOffsetsResponseTopicPartition {
	found := kmsg.NewListOffsetsResponseTopicPartition()
	found.Offset, found.Timestamp, found.LeaderEpoch = -1, topic.NoTimestamp, -1
	return found
}()

// errNamedTwice refuses a partition that a request names again, as Kafka does: each name may have a
// batch unpacked.
var errNamedTwice = fail(kerr.InvalidRequest, "the request names the partition more than once")

var errTimestamp = fail(kerr.InvalidRequest, "timestamp: want one since the epoch, or -1 to -4")

func listOffset(ctx context.Context, t *broker.Topic, asked kmsg.ListOffsetsRequestTopicPartition, committed bool, named once[partitionName]) (kmsg.ListOffsetsResponseTopicPartition, error) {
	found := notListed
	p, err := led(t, asked.Partition, asked.CurrentLeaderEpoch)
	switch {
	case err != nil:
		return found, err
	case !named.first(partitionName{t, asked.Partition}):
		return found, errNamedTwice
	}
	ends := p.Ends()
	switch asked.Timestamp {
	case timestampLatest:
		found.Offset = ends.HighWatermark
		if committed {
			found.Offset = ends.LastStable
		}
	case timestampEarliest, timestampEarliestLocal:
		found.Offset = ends.Start
	case timestampMax:
		found.Offset, found.Timestamp, err = p.MaxTimestamp(ctx)
	default:
		if asked.Timestamp < 0 {
			return found, errTimestamp
		}
		found.Offset, found.Timestamp, err = p.OffsetAt(ctx, asked.Timestamp)
	}
	if committed && found.Offset > ends.LastStable {
		found = notListed
	}
	if err == nil && found.Offset >= 0 {
		found.LeaderEpoch = ends.Epoch
	}
	return found, err
}

// checkEpoch compares the leader epoch that a client expects, -1 for none, with the present one.
func checkEpoch(believed, present int32) error {
	switch {
	case believed < 0 || believed == present:
		return nil
	case believed < present:
		return errFencedEpoch
	default:
		return errUnknownEpoch
	}
}

var (
	errFencedEpoch  = fail(kerr.FencedLeaderEpoch, "the partition has a newer leader epoch")
	errUnknownEpoch = fail(kerr.UnknownLeaderEpoch, "the partition has not reached that leader epoch")
)
