package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
)

// DeleteRecords: versions 0 to 2.
//
//   - The records before an offset are removed durably; -1 removes all present ones. The answer has
//     the new start offset of the partition.
//   - An offset above the high watermark is out of range; one below the start offset has no effect.
//   - A view has no records of its own: delete those of its source.
func (s *Server) deleteRecords(c *call, r *kmsg.DeleteRecordsRequest) answer {
	return func(ctx context.Context) kmsg.Response {
		ctx, cancel := adminContext(ctx)
		defer cancel()
		response := r.ResponseKind().(*kmsg.DeleteRecordsResponse)
		response.Topics = make([]kmsg.DeleteRecordsResponseTopic, len(r.Topics))
		for i := range r.Topics {
			wanted, trimmed := &r.Topics[i], &response.Topics[i]
			trimmed.Topic = wanted.Topic
			trimmed.Partitions = make([]kmsg.DeleteRecordsResponseTopicPartition, len(wanted.Partitions))
			t, missing := c.topic(wanted.Topic)
			for j, p := range wanted.Partitions {
				start, err := int64(-1), missing
				if err == nil {
					start, err = trim(ctx, t, p.Partition, p.Offset)
				}
				done := &trimmed.Partitions[j]
				done.Partition, done.LowWatermark, done.ErrorCode = p.Partition, start, code(err)
			}
		}
		return response
	}
}

// trim removes the records before an offset and returns the new start, or -1.
func trim(ctx context.Context, t *broker.Topic, number int32, before int64) (int64, error) {
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
