package kafka

import (
	"context"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic/kafka/auth"
	"github.com/sluice-project/sluice/topic/txn"
)

// DescribeTransactions: version 0.
//
// Any node describes any transactional id: its producer, the state, and the partitions of an ongoing
// transaction. An unknown id is TRANSACTIONAL_ID_NOT_FOUND.
func (s *Server) describeTransactions(c *call, r *kmsg.DescribeTransactionsRequest) answer {
	return func(ctx context.Context) kmsg.Response {
		response := r.ResponseKind().(*kmsg.DescribeTransactionsResponse)
		ids := distinct(r.TransactionalIDs)
		response.TransactionStates = make([]kmsg.DescribeTransactionsResponseTransactionState, 0, len(ids))
		for _, id := range ids {
			response.TransactionStates = append(response.TransactionStates, s.describedTransaction(ctx, c, id))
		}
		return response
	}
}

func (s *Server) describedTransaction(ctx context.Context, c *call, id string) kmsg.DescribeTransactionsResponseTransactionState {
	described := kmsg.NewDescribeTransactionsResponseTransactionState()
	described.TransactionalID, described.ProducerID, described.ProducerEpoch, described.StartTimestamp = id, -1, -1, -1
	var of txn.Description
	err := c.authorize(auth.Transaction, id)
	if err == nil {
		of, err = s.broker.Transactions().Describe(ctx, id)
	}
	partitions := 0
	for _, numbers := range of.Partitions {
		partitions += len(numbers)
	}
	if err == nil {
		err = c.memory.add(int64(len(of.Partitions)+1)*offsetCost + 4*int64(partitions))
	}
	if err != nil {
		described.ErrorCode = s.transactionCode(id, err, true)
		return described
	}
	described.State, described.TimeoutMillis = string(of.State), int32(of.TimeoutMS)
	described.ProducerID, described.ProducerEpoch = of.Producer.ID, of.Producer.Epoch
	if of.BegunMS > 0 {
		described.StartTimestamp = of.BegunMS
	}
	for _, name := range slices.Sorted(maps.Keys(of.Partitions)) {
		if !c.may(c.key, auth.Topic, name) {
			continue
		}
		described.Topics = append(described.Topics, kmsg.DescribeTransactionsResponseTransactionStateTopic{Topic: name, Partitions: of.Partitions[name]})
	}
	return described
}
