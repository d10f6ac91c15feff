package kafka

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What a coordinator is sought for.
const (
	coordinatorOfGroup       = 0
	coordinatorOfTransaction = 1
)

// FindCoordinator: versions 0 to 4.
//
// The coordinator of every group is this broker. Transactions do not exist yet:
// their coordinator is refused with TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which
// clients take as final, and a message that says what is the matter.
//
//   - 1: the type of coordinator, and a message with an error.
//   - 4: several keys in one request.
//   - 5: would add TRANSACTION_ABORTABLE. 6: share groups.
func (s *Server) findCoordinator(c *call, r *kmsg.FindCoordinatorRequest) answer {
	response := r.ResponseKind().(*kmsg.FindCoordinatorResponse)
	keys := r.CoordinatorKeys
	if r.Version < 4 {
		keys = []string{r.CoordinatorKey}
	}
	for _, key := range keys {
		response.Coordinators = append(response.Coordinators, s.coordinator(c, r.CoordinatorType, key))
	}
	if r.Version < 4 {
		found := response.Coordinators[0]
		response.ErrorCode, response.ErrorMessage = found.ErrorCode, found.ErrorMessage
		response.NodeID, response.Host, response.Port = found.NodeID, found.Host, found.Port
	}
	return respond(response)
}

// coordinator returns that of a key.
func (s *Server) coordinator(c *call, kind int8, key string) kmsg.FindCoordinatorResponseCoordinator {
	found := kmsg.NewFindCoordinatorResponseCoordinator()
	found.Key, found.NodeID, found.Port = key, -1, -1
	switch kind {
	case coordinatorOfGroup:
		found.NodeID = s.broker.Node()
		found.Host, found.Port = s.advertised(c)
	case coordinatorOfTransaction:
		s.log.Info("kafka refuses a transactional producer", "client", c.client, "from", c.host, "transactional_id", key)
		found.ErrorCode, found.ErrorMessage = code(errNoTransactions), message(errNoTransactions)
	default:
		err := fail(kerr.InvalidRequest, fmt.Sprintf("coordinator type %d: want 0, a consumer group", kind))
		found.ErrorCode, found.ErrorMessage = code(err), message(err)
	}
	return found
}
