package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// errNoTransactions refuses requests that need transactions. This error is final for all clients,
// and librdkafka shows its message. A more accurate one, as UNSUPPORTED_VERSION, librdkafka would
// retry for a minute and then report as a timeout.
var errNoTransactions = fail(kerr.TransactionalIDAuthorizationFailed,
	"transactions are not supported: use an idempotent producer, without a transactional id")

// InitProducerID: versions 0 to 4.
//
// Each idempotent producer gets an id that nobody had before, at epoch 0; also
// one that says which id it had (version 3). One with a transactional id is
// refused with TRANSACTIONAL_ID_AUTHORIZATION_FAILED: FindCoordinator has told
// it why.
//
//   - 5: would be for transactions.
func (s *Server) initProducerID(_ *call, r *kmsg.InitProducerIDRequest) answer {
	response := r.ResponseKind().(*kmsg.InitProducerIDResponse)
	response.ProducerID, response.ProducerEpoch = -1, -1
	if r.TransactionalID != nil {
		response.ErrorCode = code(errNoTransactions)
		return respond(response)
	}
	return func(ctx context.Context) kmsg.Response {
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
