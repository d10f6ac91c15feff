package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic/kafka/auth"
)

const (
	// maxACLChanges is the most creations, or filters, of one request.
	maxACLChanges = 2000
	// aclCost is the memory of an access list entry in an answer beside its names.
	aclCost = 192
)

// DescribeAcls: versions 1 to 3.
//
// Answers the access list entries that a filter finds. Without accounts the answer is SECURITY_DISABLED.
func (s *Server) describeACLs(c *call, r *kmsg.DescribeACLsRequest) answer {
	return func(context.Context) kmsg.Response {
		response := r.ResponseKind().(*kmsg.DescribeACLsResponse)
		manager, err := c.manager()
		var filter auth.ACLFilter
		if err == nil {
			filter, err = filterOf(kmsg.DeleteACLsRequestFilter{
				ResourceType: r.ResourceType, ResourceName: r.ResourceName, ResourcePatternType: r.ResourcePatternType,
				Principal: r.Principal, Host: r.Host, Operation: r.Operation, PermissionType: r.PermissionType,
			})
		}
		if err == nil {
			response.Resources, err = describedACLs(c, manager.ACLs(filter))
		}
		response.ErrorCode, response.ErrorMessage = s.outcome("describe access lists", err)
		return response
	}
}

// describedACLs groups entries by their resources.
func describedACLs(c *call, found []auth.ACL) ([]kmsg.DescribeACLsResponseResource, error) {
	slices.SortStableFunc(found, func(x, y auth.ACL) int {
		return slices.Compare([]string{x.Resource, x.Pattern, x.Name}, []string{y.Resource, y.Pattern, y.Name})
	})
	var resources []kmsg.DescribeACLsResponseResource
	for i, l := range found {
		if err := c.memory.add(sizeOfACL(l)); err != nil {
			return nil, err
		}
		if i == 0 || l.Resource != found[i-1].Resource || l.Pattern != found[i-1].Pattern || l.Name != found[i-1].Name {
			resource := kmsg.NewDescribeACLsResponseResource()
			resource.ResourceType, resource.ResourcePatternType, resource.ResourceName = aclResources.number(l.Resource), aclPatterns.number(l.Pattern), l.Name
			resources = append(resources, resource)
		}
		acl := kmsg.NewDescribeACLsResponseResourceACL()
		acl.Principal, acl.Host, acl.Operation, acl.PermissionType = l.Principal, l.Host, aclOperations.number(l.Operation), aclPermissions.number(l.Permission)
		last := &resources[len(resources)-1]
		last.ACLs = append(last.ACLs, acl)
	}
	return resources, nil
}

func sizeOfACL(l auth.ACL) int64 { return int64(len(l.Name)+len(l.Principal)+len(l.Host)) + aclCost }

// CreateAcls: versions 1 to 3.
//
// Creates access list entries, all that can be, and answers when that is durable; one that exists already stays. One that
// cannot be has INVALID_REQUEST with what would be right. When there is no place for more, all have POLICY_VIOLATION, and
// nothing has changed. A request has at most 2,000 entries.
func (s *Server) createACLs(c *call, r *kmsg.CreateACLsRequest) answer {
	return func(ctx context.Context) kmsg.Response {
		ctx, cancel := adminContext(ctx)
		defer cancel()
		response := r.ResponseKind().(*kmsg.CreateACLsResponse)
		manager, err := c.manager()
		err = checkChanges(err, len(r.Creations))
		var refused []error
		if err == nil {
			all := make([]auth.ACL, len(r.Creations))
			for i, l := range r.Creations {
				all[i] = auth.ACL{
					Resource: word(l.ResourceType), Pattern: word(l.ResourcePatternType), Name: l.ResourceName,
					Principal: l.Principal, Host: l.Host, Operation: word(l.Operation), Permission: word(l.PermissionType),
				}
				c.about("acl:", all[i].String())
			}
			refused, err = manager.CreateACLs(ctx, all)
		}
		number, text := s.outcome("create access lists", asInvalid(err))
		response.Results = make([]kmsg.CreateACLsResponseResult, len(r.Creations))
		for i := range response.Results {
			result := &response.Results[i]
			result.ErrorCode, result.ErrorMessage = number, text
			if err == nil {
				result.ErrorCode, result.ErrorMessage = s.outcome("create an access list", asInvalid(refused[i]))
			}
		}
		return response
	}
}

// checkChanges returns err, or an error for a request with too many changes.
func checkChanges(err error, n int) error {
	if err == nil && n > maxACLChanges {
		return refuse(kerr.InvalidRequest, "%d changes of access lists: want at most %d in a request", n, maxACLChanges)
	}
	return err
}

// asInvalid gives what cannot be its code.
func asInvalid(err error) error {
	if errors.Is(err, auth.ErrInvalid) {
		return fail(kerr.InvalidRequest, err.Error())
	}
	return err
}

// DeleteAcls: versions 1 to 3.
//
// Removes the access list entries that filters find, and answers with them when that is durable, each for the first filter
// that finds it. A filter with a word that does not exist has INVALID_REQUEST, and removes nothing. A request has at most
// 2,000 filters.
func (s *Server) deleteACLs(c *call, r *kmsg.DeleteACLsRequest) answer {
	return func(ctx context.Context) kmsg.Response {
		ctx, cancel := adminContext(ctx)
		defer cancel()
		response := r.ResponseKind().(*kmsg.DeleteACLsResponse)
		response.Results = make([]kmsg.DeleteACLsResponseResult, len(r.Filters))
		manager, err := c.manager()
		err = checkChanges(err, len(r.Filters))
		var filters []auth.ACLFilter
		var at []int // the places of filters in the request
		for i := 0; i < len(r.Filters) && err == nil; i++ {
			filter, invalid := filterOf(r.Filters[i])
			if result := &response.Results[i]; invalid != nil {
				result.ErrorCode, result.ErrorMessage = s.outcome("delete access lists", invalid)
				continue
			}
			filters, at = append(filters, filter), append(at, i)
		}
		var removed [][]auth.ACL
		if len(filters) > 0 && err == nil {
			removed, err = manager.DeleteACLs(ctx, filters)
		}
		if err != nil {
			number, text := s.outcome("delete access lists", err)
			for i := range response.Results {
				response.Results[i].ErrorCode, response.Results[i].ErrorMessage = number, text
			}
			return response
		}
		for i, of := range removed {
			result := &response.Results[at[i]]
			result.MatchingACLs, err = removedACLs(c, of)
			result.ErrorCode, result.ErrorMessage = s.outcome("answer removed access lists", err)
		}
		return response
	}
}

// removedACLs describes entries that were removed.
func removedACLs(c *call, removed []auth.ACL) ([]kmsg.DeleteACLsResponseResultMatchingACL, error) {
	answered := make([]kmsg.DeleteACLsResponseResultMatchingACL, len(removed))
	for i, l := range removed {
		c.about("acl:", l.String())
		if err := c.memory.add(sizeOfACL(l)); err != nil {
			return nil, err
		}
		acl := &answered[i]
		*acl = kmsg.NewDeleteACLsResponseResultMatchingACL()
		acl.ResourceType, acl.ResourcePatternType, acl.ResourceName = aclResources.number(l.Resource), aclPatterns.number(l.Pattern), l.Name
		acl.Principal, acl.Host, acl.Operation, acl.PermissionType = l.Principal, l.Host, aclOperations.number(l.Operation), aclPermissions.number(l.Permission)
	}
	return answered, nil
}

// filterOf returns a filter of a request. A word that does not exist is INVALID_REQUEST.
func filterOf(r kmsg.DeleteACLsRequestFilter) (auth.ACLFilter, error) {
	f := auth.ACLFilter{
		Resource: word(r.ResourceType), Pattern: word(r.ResourcePatternType), Name: r.ResourceName,
		Principal: r.Principal, Host: r.Host, Operation: word(r.Operation), Permission: word(r.PermissionType),
	}
	for _, of := range []*string{&f.Resource, &f.Pattern, &f.Operation, &f.Permission} {
		switch *of {
		case word(kmsg.ACLResourceTypeUnknown):
			return f, refuse(kerr.InvalidRequest, "a filter with an unknown resource type, pattern type, operation or permission: want those of Kafka, or ANY")
		case word(kmsg.ACLResourceTypeAny):
			*of = ""
		}
	}
	return f, nil
}

// word returns the word of an access list for one of the protocol's numbers.
func word(of fmt.Stringer) string { return strings.ToLower(of.String()) }

// words are the protocol's numbers for the words of access lists.
type words[N fmt.Stringer] map[string]N

func wordsOf[N interface {
	~int8
	fmt.Stringer
}](last N) words[N] {
	all := words[N]{}
	for n := N(0); n <= last; n++ {
		all[word(n)] = n
	}
	return all
}

func (w words[N]) number(word string) N { return w[word] }

var (
	aclResources   = wordsOf(kmsg.ACLResourceTypeTransactionalId)
	aclPatterns    = wordsOf(kmsg.ACLResourcePatternTypePrefixed)
	aclOperations  = wordsOf(kmsg.ACLOperationIdempotentWrite)
	aclPermissions = wordsOf(kmsg.ACLPermissionTypeAllow)
)
