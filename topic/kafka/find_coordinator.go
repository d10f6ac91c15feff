package kafka

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic/group"
	"github.com/sluice-project/sluice/topic/kafka/auth"
)

// The types of coordinators.
const (
	coordinatorOfGroup       = 0
	coordinatorOfTransaction = 1
)

// coordinated are the resources of the types of coordinators; other types have no resource.
var coordinated = map[int8]auth.Resource{coordinatorOfGroup: auth.Group, coordinatorOfTransaction: auth.Transaction}

// FindCoordinator: versions 0 to 4.
//
// Returns the node that coordinates a group or a transactional id. Any node knows it. The error is
// COORDINATOR_NOT_AVAILABLE, after which clients retry, if there is no coordinator or this node is
// isolated.
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
	return func(ctx context.Context) kmsg.Response {
		response.Coordinators = s.coordinators(ctx, c, r.CoordinatorType, distinct(keys))
		if r.Version < 4 {
			found := response.Coordinators[0]
			response.ErrorCode, response.ErrorMessage = found.ErrorCode, found.ErrorMessage
			response.NodeID, response.Host, response.Port = found.NodeID, found.Host, found.Port
		}
		return response
	}
}

// coordinators returns the coordinator of each key. Groups of one slot have the same, which is looked
// up once.
func (s *Server) coordinators(ctx context.Context, c *call, kind int8, keys []string) []kmsg.FindCoordinatorResponseCoordinator {
	all := make([]kmsg.FindCoordinatorResponseCoordinator, len(keys))
	bySlot := map[int]kmsg.FindCoordinatorResponseCoordinator{}
	for i, key := range keys {
		if err := c.authorize(coordinated[kind], key); err != nil {
			all[i] = kmsg.NewFindCoordinatorResponseCoordinator()
			all[i].Key, all[i].NodeID, all[i].Port, all[i].ErrorCode, all[i].ErrorMessage = key, -1, -1, code(err), message(err)
			continue
		}
		slot := group.SlotOf(key)
		found, known := bySlot[slot]
		if !known {
			found = s.coordinator(ctx, c, kind, key)
			bySlot[slot] = found
		}
		found.Key = key
		all[i] = found
	}
	return all
}

// coordinator returns the coordinator of a key.
func (s *Server) coordinator(ctx context.Context, c *call, kind int8, key string) kmsg.FindCoordinatorResponseCoordinator {
	found := kmsg.NewFindCoordinatorResponseCoordinator()
	found.NodeID, found.Port = -1, -1
	switch kind {
	case coordinatorOfGroup, coordinatorOfTransaction: // they have the same slots
		if at, moved := s.broker.MovedCoordinator(key); moved {
			found.NodeID = at.ID
			found.Host, found.Port, _ = s.address(c, at.ID)
			break
		}
		node, err := s.broker.Groups().Coordinator(ctx, key)
		host, port, known := s.address(c, node)
		if err == nil && !known {
			err = fmt.Errorf("%w: the address of node %d is not known", group.ErrCoordinatorUnavailable, node)
		}
		if err != nil {
			found.ErrorCode, found.ErrorMessage = s.groupCode(key, err), message(err)
			break
		}
		found.NodeID, found.Host, found.Port = node, host, port
	default:
		err := fail(kerr.InvalidRequest, fmt.Sprintf("coordinator type %d: want 0, a consumer group, or 1, a transactional id", kind))
		found.ErrorCode, found.ErrorMessage = code(err), message(err)
	}
	return found
}

// address returns the address of a node for clients, if it is alive.
func (s *Server) address(c *call, node int32) (host string, port int32, known bool) {
	for _, n := range s.nodes(c) {
		if n.ID == node {
			return n.Host, n.Port, true
		}
	}
	return "", 0, false
}
