package kafka

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ListPartitionReassignments: version 0. With one broker nothing moves: the
// list is empty, whatever was asked for.
func (s *Server) listPartitionReassignments(_ *call, r *kmsg.ListPartitionReassignmentsRequest) answer {
	return respond(r.ResponseKind())
}
