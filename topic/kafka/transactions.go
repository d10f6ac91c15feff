package kafka

import (
	"context"
	"errors"
	"fmt"

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

// join adds the partitions in which batches begin a transaction to that, all at once. Partitions that cannot be
// added refuse their records: clients try again after CONCURRENT_TRANSACTIONS and NOT_LEADER_OR_FOLLOWER.
// Later requests of the connection wait for it, so that batches stay in order: for ten seconds at most.
func (p *producing) join(s *Server) {
	joining := map[txn.Producer]map[string][]int32{}
	p.eachBegun(func(of txn.Producer, started *started) {
		if joining[of] == nil {
			joining[of] = map[string][]int32{}
		}
		joining[of][started.topic.Name()] = append(joining[of][started.topic.Name()], started.partition)
	})
	for of, partitions := range joining {
		err := s.broker.Transactions().AddPartitions(p.call.session.ctx, *p.request.TransactionID, of, partitions)
		if err == nil {
			continue
		}
		refused := s.notJoined(*p.request.TransactionID, err)
		p.eachBegun(func(other txn.Producer, started *started) {
			if other == of {
				started.err = refused
			}
		})
	}
}

// eachBegun calls f for each part of the request that begins a transaction in its partition.
func (p *producing) eachBegun(f func(of txn.Producer, started *started)) {
	for i := range p.started {
		for j := range p.started[i] {
			started := &p.started[i][j]
			if started.err != nil {
				continue
			}
			batches, err := topic.SplitBatches(p.request.Topics[i].Partitions[j].Records)
			if err != nil || len(batches) == 0 {
				continue // appendTo says what is wrong
			}
			joins, err := started.topic.Joins(started.partition, batches[0])
			if started.err = err; joins {
				id, epoch, _ := batches[0].Producer()
				f(producerOf(id, epoch), started)
			}
		}
	}
}

// notJoined returns the error of records whose partition was not added to their transaction.
func (s *Server) notJoined(id string, err error) error {
	switch {
	case errors.Is(err, txn.ErrUnavailable):
		return fmt.Errorf("%w: %w", topic.ErrRetry, err)
	case errors.Is(err, context.Canceled):
		return err
	}
	return fail(kerr.TypedErrorForCode(s.transactionCode(id, err, false)), err.Error())
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
