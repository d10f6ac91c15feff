package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic/kafka/auth"
)

// EndTxn: versions 0 to 4.
//
// Commits or aborts the transaction of a producer. The answer comes when the outcome is durable, and
// mostly once consumers see it: the server waits for that for a second. A repeated request has no
// further effect. Another outcome than the first, and a transaction that has not begun, are
// INVALID_TXN_STATE.
//
//   - 2: PRODUCER_FENCED in place of INVALID_PRODUCER_EPOCH.
//   - 4: TRANSACTION_ABORTABLE, which does not occur. 5: would give the producer a new epoch.
func (s *Server) endTxn(c *call, r *kmsg.EndTxnRequest) answer {
	return func(ctx context.Context) kmsg.Response {
		response := r.ResponseKind().(*kmsg.EndTxnResponse)
		err := c.authorize(auth.Transaction, r.TransactionalID)
		if err == nil {
			err = s.broker.Transactions().End(ctx, r.TransactionalID, producerOf(r.ProducerID, r.ProducerEpoch), r.Commit)
		}
		response.ErrorCode = s.transactionCode(r.TransactionalID, err, r.Version >= 2)
		return response
	}
}
