package kafka

import (
	"context"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic/kafka/auth"
)

// groupCost is the memory of a group in a list.
const groupCost = 384

// ListGroups: versions 0 to 5.
//
// Lists the groups that this node coordinates, by name.
// Clients ask every node.
//
//   - 4: the state, and only those in certain states, if the client says so.
//   - 5: the type, "classic", "consumer" or "share", and only those of certain types.
func (s *Server) listGroups(c *call, r *kmsg.ListGroupsRequest) answer {
	return func(context.Context) kmsg.Response { return s.listedGroups(c, r) }
}

func (s *Server) listedGroups(c *call, r *kmsg.ListGroupsRequest) kmsg.Response {
	response := r.ResponseKind().(*kmsg.ListGroupsResponse)
	groups, err := s.broker.Groups().List()
	if err == nil {
		err = c.memory.add(int64(len(groups)) * groupCost)
	}
	if err != nil {
		response.ErrorCode = s.groupCode("", err)
		return response
	}
	for _, g := range groups {
		if !oneOf(r.StatesFilter, g.State.String()) || !oneOf(r.TypesFilter, g.Type) || !c.may(c.key, auth.Group, g.Name) {
			continue
		}
		listed := kmsg.NewListGroupsResponseGroup()
		listed.Group, listed.ProtocolType = g.Name, g.ProtocolType
		listed.GroupState, listed.GroupType = g.State.String(), g.Type
		response.Groups = append(response.Groups, listed)
	}
	return response
}

// oneOf reports whether a filter is empty or contains a word, ignoring case.
func oneOf(filter []string, word string) bool {
	return len(filter) == 0 || slices.ContainsFunc(filter, func(f string) bool { return strings.EqualFold(f, word) })
}
