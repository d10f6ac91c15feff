package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic/group"
	"github.com/sluice-project/sluice/topic/kafka/auth"
)

// DeleteGroups: versions 0 to 2.
//
// Removes groups without members, with their offsets, and answers when that is durable. Errors:
// GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
func (s *Server) deleteGroups(c *call, r *kmsg.DeleteGroupsRequest) answer {
	names := distinct(r.Groups)
	refused := make([]error, len(names))
	deleting := make([]*group.Awaited[struct{}], len(names))
	for i, name := range names {
		if refused[i] = c.authorize(auth.Group, name); refused[i] == nil {
			deleting[i] = s.broker.Groups().Delete(name)
		}
	}
	return func(ctx context.Context) kmsg.Response {
		response := r.ResponseKind().(*kmsg.DeleteGroupsResponse)
		response.Groups = make([]kmsg.DeleteGroupsResponseGroup, len(names))
		for i, name := range names {
			err := refused[i]
			if err == nil {
				_, err = deleting[i].Wait(ctx)
			}
			response.Groups[i].Group, response.Groups[i].ErrorCode = name, s.groupCode(name, err)
		}
		return response
	}
}
