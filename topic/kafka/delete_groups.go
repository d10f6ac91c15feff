package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic/group"
)

// DeleteGroups: versions 0 to 2.
//
// Removes groups without members, with their offsets, and answers when that is durable. Errors:
// GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
func (s *Server) deleteGroups(_ *call, r *kmsg.DeleteGroupsRequest) answer {
	deleting := make([]*group.Awaited[struct{}], len(r.Groups))
	for i, name := range r.Groups {
		deleting[i] = s.broker.Groups().Delete(name)
	}
	return func(ctx context.Context) kmsg.Response {
		response := r.ResponseKind().(*kmsg.DeleteGroupsResponse)
		for i, name := range r.Groups {
			_, err := deleting[i].Wait(ctx)
			deleted := kmsg.NewDeleteGroupsResponseGroup()
			deleted.Group, deleted.ErrorCode = name, s.groupCode(name, err)
			response.Groups = append(response.Groups, deleted)
		}
		return response
	}
}
