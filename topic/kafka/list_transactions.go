package kafka

import (
	"context"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic/kafka/auth"
	"github.com/sluice-project/sluice/topic/txn"
)

// ListTransactions: versions 0 and 1.
//
// Lists the transactional ids that this node coordinates, if they fit the filters: tools ask all nodes.
//
//   - 1: only transactions that have been ongoing for longer.
//   - 2: would filter by a pattern.
func (s *Server) listTransactions(c *call, r *kmsg.ListTransactionsRequest) answer {
	return func(ctx context.Context) kmsg.Response {
		response := r.ResponseKind().(*kmsg.ListTransactionsResponse)
		for _, state := range distinct(r.StateFilters) {
			if !slices.Contains(txn.States, txn.State(state)) {
				response.UnknownStateFilters = append(response.UnknownStateFilters, state)
			}
		}
		all, err := s.broker.Transactions().List(ctx)
		if err == nil {
			err = c.memory.add(int64(len(all)) * offsetCost)
		}
		if err != nil {
			response.ErrorCode = s.transactionCode("", err, true)
			return response
		}
		for _, of := range all {
			if listed(r, of, time.Now()) && c.may(c.key, auth.Transaction, of.TransactionalID) {
				response.TransactionStates = append(response.TransactionStates, kmsg.ListTransactionsResponseTransactionState{
					TransactionalID: of.TransactionalID, ProducerID: of.Producer.ID, TransactionState: string(of.State),
				})
			}
		}
		return response
	}
}

// listed reports whether a transaction fits the filters of a request.
func listed(r *kmsg.ListTransactionsRequest, of txn.Description, now time.Time) bool {
	return (len(r.StateFilters) == 0 || slices.Contains(r.StateFilters, string(of.State))) &&
		(len(r.ProducerIDFilters) == 0 || slices.Contains(r.ProducerIDFilters, of.Producer.ID)) &&
		(r.Version < 1 || r.DurationFilterMillis < 0 || of.BegunMS > 0 && now.UnixMilli()-of.BegunMS > r.DurationFilterMillis)
}
