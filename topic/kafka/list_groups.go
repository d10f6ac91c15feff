package kafka

import (
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// groupType is the type of all groups: their members assign partitions themselves.
const groupType = "classic"

// ListGroups: versions 0 to 5.
//
// Lists the groups that this node coordinates, by name.
// Clients ask every node.
//
//   - 4: the state, and only those in certain states, if the client says so.
//   - 5: the type, which is "classic", and only those of certain types.
func (s *Server) listGroups(_ *call, r *kmsg.ListGroupsRequest) answer {
	response := r.ResponseKind().(*kmsg.ListGroupsResponse)
	groups, err := s.broker.Groups().List()
	if err != nil {
		response.ErrorCode = s.groupCode("", err)
		return respond(response)
	}
	for _, g := range groups {
		if !oneOf(r.StatesFilter, g.State.String()) || !oneOf(r.TypesFilter, groupType) {
			continue
		}
		listed := kmsg.NewListGroupsResponseGroup()
		listed.Group, listed.ProtocolType = g.Name, g.ProtocolType
		listed.GroupState, listed.GroupType = g.State.String(), groupType
		response.Groups = append(response.Groups, listed)
	}
	return respond(response)
}

// oneOf reports whether a filter is empty or contains a word, ignoring case.
func oneOf(filter []string, word string) bool {
	return len(filter) == 0 || slices.ContainsFunc(filter, func(f string) bool { return strings.EqualFold(f, word) })
}
