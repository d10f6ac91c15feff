package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic/broker"
)

// OffsetForLeaderEpoch: versions 2 to 4.
//
// Answers the end of a leader epoch, so that a consumer can detect lost records: the highest
// epoch up to the requested one that has records, and the offset after its last; for the
// present epoch the high watermark; -1 and -1 for none, which a leader says only when it is certain to be the last one.
//
//   - 2: the expected leader epoch is checked.
//   - 3: the replica that asks; only consumers do here.
func (s *Server) offsetForLeaderEpoch(c *call, r *kmsg.OffsetForLeaderEpochRequest) answer {
	return func(ctx context.Context) kmsg.Response {
		var known certainty
		response := r.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
		response.Topics = make([]kmsg.OffsetForLeaderEpochResponseTopic, len(r.Topics))
		for i := range r.Topics {
			asked, found := &r.Topics[i], &response.Topics[i]
			found.Topic = asked.Topic
			found.Partitions = make([]kmsg.OffsetForLeaderEpochResponseTopicPartition, len(asked.Partitions))
			t, missing := c.topic(asked.Topic)
			for j, p := range asked.Partitions {
				epoch, offset, err := int32(-1), int64(-1), missing
				if err == nil {
					epoch, offset, err = endOfEpoch(ctx, t, p, &known)
				}
				s.unexpected("find the end of a leader epoch of ", asked.Topic, err)
				end := &found.Partitions[j]
				end.Partition, end.LeaderEpoch, end.EndOffset, end.ErrorCode = p.Partition, epoch, offset, code(err)
			}
		}
		return response
	}
}

func endOfEpoch(ctx context.Context, t *broker.Topic, asked kmsg.OffsetForLeaderEpochRequestTopicPartition, known *certainty) (int32, int64, error) {
	p, err := led(t, asked.Partition, asked.CurrentLeaderEpoch)
	if err != nil {
		return -1, -1, err
	}
	ends := p.Ends()
	if asked.LeaderEpoch > ends.Epoch {
		if err := known.of(ctx, p); err != nil {
			return -1, -1, err
		}
		ends = p.Ends()
	}
	switch {
	case asked.LeaderEpoch == ends.Epoch:
		return ends.Epoch, ends.HighWatermark, nil
	case asked.LeaderEpoch > ends.Epoch:
		return -1, -1, nil
	}
	epoch, offset, err := p.EndOfEpoch(ctx, asked.LeaderEpoch)
	if err != nil {
		return -1, -1, err
	}
	return epoch, offset, nil
}
