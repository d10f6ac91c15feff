package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// AddPartitionsToTxn: versions 0 to 3.
//
// Adds partitions to the transaction of a producer; the first ones begin it. If one of the partitions
// does not exist (UNKNOWN_TOPIC_OR_PARTITION) or is a view's (POLICY_VIOLATION), none is added, and the
// others get OPERATION_NOT_ATTEMPTED.
//
//   - 2: PRODUCER_FENCED in place of INVALID_PRODUCER_EPOCH.
//   - 4, 5: would be for brokers.
func (s *Server) addPartitionsToTxn(_ *call, r *kmsg.AddPartitionsToTxnRequest) answer {
	return func(ctx context.Context) kmsg.Response {
		response := r.ResponseKind().(*kmsg.AddPartitionsToTxnResponse)
		response.Topics = make([]kmsg.AddPartitionsToTxnResponseTopic, len(r.Topics))
		partitions, refused := map[string][]int32{}, false
		for i, t := range r.Topics {
			answered := &response.Topics[i]
			answered.Topic = t.Topic
			answered.Partitions = make([]kmsg.AddPartitionsToTxnResponseTopicPartition, len(t.Partitions))
			for j, number := range t.Partitions {
				err := s.mayWrite(t.Topic, number)
				refused = refused || err != nil
				answered.Partitions[j].Partition, answered.Partitions[j].ErrorCode = number, code(err)
				partitions[t.Topic] = append(partitions[t.Topic], number)
			}
		}
		all := kerr.OperationNotAttempted.Code
		if !refused {
			err := s.broker.Transactions().AddPartitions(ctx, r.TransactionalID, producerOf(r.ProducerID, r.ProducerEpoch), partitions)
			all = s.transactionCode(r.TransactionalID, err, r.Version >= 2)
		}
		for i := range response.Topics {
			for j := range response.Topics[i].Partitions {
				if answered := &response.Topics[i].Partitions[j]; answered.ErrorCode == 0 {
					answered.ErrorCode = all
				}
			}
		}
		return response
	}
}
