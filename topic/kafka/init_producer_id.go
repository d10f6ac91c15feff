package kafka

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic/kafka/auth"
	"github.com/sluice-project/sluice/topic/txn"
)

// InitProducerID: versions 0 to 4.
//
// Each idempotent producer gets an id that nobody had before, at epoch 0; also
// one that says which id it had (version 3).
//
// A producer with a transactional id gets the id that belongs to that, at an epoch that is one higher:
// earlier producers are fenced, and an open transaction of theirs is aborted first. If that takes more
// than a second, the answer is CONCURRENT_TRANSACTIONS, after which clients try again.
//
//   - 3: a transactional producer may say which id and epoch it has, to continue after an error: it is
//     fenced if these are not the last ones.
//   - 4: PRODUCER_FENCED in place of INVALID_PRODUCER_EPOCH.
//   - 5: would add TRANSACTION_ABORTABLE.
func (s *Server) initProducerID(c *call, r *kmsg.InitProducerIDRequest) answer {
	return func(ctx context.Context) kmsg.Response {
		response := r.ResponseKind().(*kmsg.InitProducerIDResponse)
		response.ProducerID, response.ProducerEpoch = -1, -1
		if r.TransactionalID != nil {
			got, err := s.initTransactional(ctx, c, r)
			if response.ErrorCode = s.transactionCode(*r.TransactionalID, err, r.Version >= 4); err == nil {
				response.ProducerID, response.ProducerEpoch = got.ID, got.Epoch
			}
			return response
		}
		if err := c.authorize(auth.Cluster, ""); err != nil {
			response.ErrorCode = code(err)
			return response
		}
		id, err := s.broker.NewProducerID(ctx)
		if err != nil {
			s.log.Warn("kafka cannot give out a producer id", "error", err)
			response.ErrorCode = kerr.CoordinatorNotAvailable.Code // clients retry
			return response
		}
		response.ProducerID, response.ProducerEpoch = id, 0
		return response
	}
}

func (s *Server) initTransactional(ctx context.Context, c *call, r *kmsg.InitProducerIDRequest) (txn.Producer, error) {
	if err := c.authorize(auth.Transaction, *r.TransactionalID); err != nil {
		return txn.Producer{}, err
	}
	var expected *txn.Producer
	if r.Version >= 3 && (r.ProducerID >= 0 || r.ProducerEpoch >= 0) {
		if r.ProducerID < 0 || r.ProducerEpoch < 0 {
			return txn.Producer{}, fmt.Errorf("%w: producer %d with epoch %d: want both or neither", txn.ErrInvalid, r.ProducerID, r.ProducerEpoch)
		}
		expected = &txn.Producer{ID: r.ProducerID, Epoch: r.ProducerEpoch}
	}
	timeout := time.Duration(r.TransactionTimeoutMillis) * time.Millisecond
	return s.broker.Transactions().Init(ctx, *r.TransactionalID, timeout, expected)
}
