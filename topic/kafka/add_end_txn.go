package kafka

import (
	"cmp"
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic/group"
	"github.com/sluice-project/sluice/topic/kafka/auth"
	"github.com/sluice-project/sluice/topic/txn"
)

// AddPartitionsToTxn: versions 0 to 3.
//
// Adds partitions to the transaction of a producer; the first ones begin it. If one of the partitions
// does not exist (UNKNOWN_TOPIC_OR_PARTITION) or is a view's (POLICY_VIOLATION), none is added, and the
// others get OPERATION_NOT_ATTEMPTED.
//
//   - 2: PRODUCER_FENCED in place of INVALID_PRODUCER_EPOCH.
//   - 4, 5: would be for brokers.
func (s *Server) addPartitionsToTxn(c *call, r *kmsg.AddPartitionsToTxnRequest) answer {
	return func(ctx context.Context) kmsg.Response {
		response := r.ResponseKind().(*kmsg.AddPartitionsToTxnResponse)
		response.Topics = make([]kmsg.AddPartitionsToTxnResponseTopic, len(r.Topics))
		refusedID := c.authorize(auth.Transaction, r.TransactionalID)
		partitions, refused := map[string][]int32{}, false
		for i, t := range r.Topics {
			answered := &response.Topics[i]
			answered.Topic = t.Topic
			answered.Partitions = make([]kmsg.AddPartitionsToTxnResponseTopicPartition, len(t.Partitions))
			for j, number := range t.Partitions {
				err := cmp.Or(refusedID, mayWrite(c, t.Topic, number))
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

// AddOffsetsToTxn: versions 0 to 3.
//
// Adds a group to the transaction of a producer, which then commits offsets for it with
// TxnOffsetCommit.
//
//   - 2: PRODUCER_FENCED in place of INVALID_PRODUCER_EPOCH.
//   - 4: would add TRANSACTION_ABORTABLE.
func (s *Server) addOffsetsToTxn(c *call, r *kmsg.AddOffsetsToTxnRequest) answer {
	return func(ctx context.Context) kmsg.Response {
		response := r.ResponseKind().(*kmsg.AddOffsetsToTxnResponse)
		if err := cmp.Or(c.authorize(auth.Transaction, r.TransactionalID), c.authorize(auth.Group, r.Group), group.CheckName(r.Group)); err != nil {
			response.ErrorCode = s.groupCode(r.Group, err)
			return response
		}
		err := s.broker.Transactions().AddGroup(ctx, r.TransactionalID, producerOf(r.ProducerID, r.ProducerEpoch), r.Group)
		response.ErrorCode = s.transactionCode(r.TransactionalID, err, r.Version >= 2)
		return response
	}
}

// EndTxn: versions 0 to 5.
//
// Commits or aborts the transaction of a producer. The answer comes when the outcome is durable, and
// mostly once consumers see it: the server waits for that for a second. A repeated request has no
// further effect. Another outcome than the first, and a transaction that has not begun, are
// INVALID_TXN_STATE.
//
//   - 2: PRODUCER_FENCED in place of INVALID_PRODUCER_EPOCH.
//   - 4: TRANSACTION_ABORTABLE, which does not occur.
//   - 5: the producer goes on with the id and the epoch of the answer, so that its late batches are fenced;
//     it may abort what has not begun. While the cluster has nodes that know version 1 of transactions
//     only, they stay the same.
func (s *Server) endTxn(c *call, r *kmsg.EndTxnRequest) answer {
	return func(ctx context.Context) kmsg.Response {
		began := time.Now()
		response := r.ResponseKind().(*kmsg.EndTxnResponse)
		response.ProducerID, response.ProducerEpoch = -1, -1
		of, err := producerOf(r.ProducerID, r.ProducerEpoch), c.authorize(auth.Transaction, r.TransactionalID)
		switch {
		case err != nil:
		case r.Version >= 5 && s.broker.TransactionsVersion() >= txn.Version:
			of, err = s.broker.Transactions().EndAndBump(ctx, r.TransactionalID, of, r.Commit)
		default:
			err = s.broker.Transactions().End(ctx, r.TransactionalID, of, r.Commit)
		}
		if err == nil {
			response.ProducerID, response.ProducerEpoch = of.ID, of.Epoch
		}
		s.spans.Ended(began, c.client, r.TransactionalID, r.Commit, err)
		response.ErrorCode = s.transactionCode(r.TransactionalID, err, r.Version >= 2)
		return response
	}
}
