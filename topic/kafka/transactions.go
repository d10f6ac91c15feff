package kafka

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/group"
	"github.com/sluice-project/sluice/topic/txn"
)

// transactionKinds are the protocol's errors for those of transactions. After CONCURRENT_TRANSACTIONS
// and COORDINATOR_NOT_AVAILABLE clients try again.
var transactionKinds = []struct {
	err  error
	kind *kerr.Error
}{
	{txn.ErrFenced, kerr.ProducerFenced},
	{txn.ErrUnknownProducer, kerr.InvalidProducerIDMapping},
	{txn.ErrConcurrent, kerr.ConcurrentTransactions},
	{txn.ErrTimeout, kerr.InvalidTransactionTimeout},
	{txn.ErrInvalid, kerr.InvalidRequest},
	{txn.ErrFull, kerr.PolicyViolation},
	{txn.ErrNotFound, kerr.TransactionalIDNotFound},
	{topic.ErrTransactionState, kerr.InvalidTxnState},
	{txn.ErrUnavailable, kerr.CoordinatorNotAvailable},
	{group.ErrCoordinatorLoading, kerr.CoordinatorLoadInProgress},
	{context.Canceled, kerr.CoordinatorNotAvailable},
}

// transactionCode returns the number of the protocol's error for an error of a transaction; 0 for nil.
// Clients before a version know a fenced producer as INVALID_PRODUCER_EPOCH.
func (s *Server) transactionCode(id string, err error, knowsFenced bool) int16 {
	if err == nil {
		return 0
	}
	if errors.Is(err, txn.ErrFenced) && !knowsFenced {
		return kerr.InvalidProducerEpoch.Code
	}
	for _, known := range transactionKinds {
		if errors.Is(err, known.err) {
			s.log.Debug("transactional request refused", "transactional_id", id, "error", err)
			return known.kind.Code
		}
	}
	s.unexpected("transaction of ", id, err)
	return code(err)
}

func producerOf(id int64, epoch int16) txn.Producer { return txn.Producer{ID: id, Epoch: epoch} }

// mayWrite returns an error if there is no such partition, or it is a view's.
func mayWrite(c *call, name string, number int32) error {
	t, err := c.topic(name)
	switch {
	case err != nil:
		return err
	case t.Source() != nil:
		return topic.ErrView
	}
	return t.Has(number)
}
