package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// OffsetForLeaderEpoch: versions 2 to 4.
//
// Answers the end of a leader epoch, so that a consumer can detect lost records: the highest
// epoch up to the requested one that has records, and the offset after its last; for the
// present epoch the high watermark; -1 and -1 for none.
//
//   - 2: the expected leader epoch is checked.
//   - 3: the replica that asks; only consumers do here.
func (s *Server) offsetForLeaderEpoch(_ *call, r *kmsg.OffsetForLeaderEpochRequest) answer {
	return func(ctx context.Context) kmsg.Response {
		response := r.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
		for _, asked := range r.Topics {
			t := kmsg.NewOffsetForLeaderEpochResponseTopic()
			t.Topic = asked.Topic
			for _, p := range asked.Partitions {
				end := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
				epoch, offset, err := s.endOfEpoch(ctx, asked.Topic, p)
				s.unexpected("find the end of a leader epoch of "+asked.Topic, err)
				end.Partition, end.LeaderEpoch, end.EndOffset, end.ErrorCode = p.Partition, epoch, offset, code(err)
				t.Partitions = append(t.Partitions, end)
			}
			response.Topics = append(response.Topics, t)
		}
		return response
	}
}

func (s *Server) endOfEpoch(ctx context.Context, name string, asked kmsg.OffsetForLeaderEpochRequestTopicPartition) (int32, int64, error) {
	p, err := s.led(name, asked.Partition, asked.CurrentLeaderEpoch)
	if err != nil {
		return -1, -1, err
	}
	ends := p.Ends()
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
