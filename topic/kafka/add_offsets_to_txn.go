package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic/group"
)

// AddOffsetsToTxn: versions 0 to 3.
//
// Adds a group to the transaction of a producer, which then commits offsets for it with
// TxnOffsetCommit.
//
//   - 2: PRODUCER_FENCED in place of INVALID_PRODUCER_EPOCH.
//   - 4: would add TRANSACTION_ABORTABLE.
func (s *Server) addOffsetsToTxn(_ *call, r *kmsg.AddOffsetsToTxnRequest) answer {
	return func(ctx context.Context) kmsg.Response {
		response := r.ResponseKind().(*kmsg.AddOffsetsToTxnResponse)
		if err := group.CheckName(r.Group); err != nil {
			response.ErrorCode = s.groupCode(r.Group, err)
			return response
		}
		err := s.broker.Transactions().AddGroup(ctx, r.TransactionalID, producerOf(r.ProducerID, r.ProducerEpoch), r.Group)
		response.ErrorCode = s.transactionCode(r.TransactionalID, err, r.Version >= 2)
		return response
	}
}
