package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic"
)

// DeleteRecords: versions 0 to 2.
//
//   - The records before an offset are removed durably; -1 removes all present ones. The answer has
//     the new start offset of the partition.
//   - An offset above the high watermark is out of range; one below the start offset has no effect.
//   - A view has no records of its own: delete those of its source.
func (s *Server) deleteRecords(_ *call, r *kmsg.DeleteRecordsRequest) answer {
	return func(ctx context.Context) kmsg.Response {
		ctx, cancel := adminContext(ctx)
		defer cancel()
		response := r.ResponseKind().(*kmsg.DeleteRecordsResponse)
		for i := range r.Topics {
			wanted := &r.Topics[i]
			trimmed := kmsg.NewDeleteRecordsResponseTopic()
			trimmed.Topic = wanted.Topic
			for _, p := range wanted.Partitions {
				done := kmsg.NewDeleteRecordsResponseTopicPartition()
				done.Partition = p.Partition
				start, err := s.trim(ctx, wanted.Topic, p.Partition, p.Offset)
				done.LowWatermark, done.ErrorCode = start, code(err)
				trimmed.Partitions = append(trimmed.Partitions, done)
			}
			response.Topics = append(response.Topics, trimmed)
		}
		return response
	}
}

// trim removes the records before an offset and returns the new start, or -1.
func (s *Server) trim(ctx context.Context, name string, number int32, before int64) (int64, error) {
	t, err := s.broker.Topic(name)
	if err != nil {
		return -1, err
	}
	p, err := t.Partition(number)
	switch {
	case err != nil:
		return -1, err
	case t.Source() != nil:
		return -1, topic.ErrView
	case before < -1:
		return -1, topic.ErrOffsetOutOfRange
	}
	start, err := p.DeleteRecords(ctx, before)
	if err != nil {
		return -1, err
	}
	return start, nil
}
