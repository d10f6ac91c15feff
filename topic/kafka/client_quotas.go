package kafka

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic/kafka/auth"
)

const (
	// maxQuotaChanges is the most entities that one request changes.
	maxQuotaChanges = 2000
	// quotaCost is the memory of a quota in an answer beside its names.
	quotaCost = 256
)

// The types of entities that have quotas. Kafka's third, ip, bounds new connections, and has no quotas here.
const (
	entityUser   = "user"
	entityClient = "client-id"
	entityIP     = "ip"
)

// DescribeClientQuotas: versions 0 to 1.
//
// Answers the quotas of the entities that a filter finds: each component finds those with a type of entity, by its name, the
// default, or any. A strict filter finds those alone that have no other type. Without accounts the answer is SECURITY_DISABLED.
func (s *Server) describeClientQuotas(c *call, r *kmsg.DescribeClientQuotasRequest) answer {
	return func(context.Context) kmsg.Response {
		response := r.ResponseKind().(*kmsg.DescribeClientQuotasResponse)
		manager, err := c.manager()
		if err == nil {
			err = checkQuotaFilter(r)
		}
		if err == nil {
			response.Entries, err = describedQuotas(c, r, manager.Quotas())
		}
		response.ErrorCode, response.ErrorMessage = s.outcome("describe quotas", err)
		return response
	}
}

// checkQuotaFilter returns an error if a filter cannot be.
func checkQuotaFilter(r *kmsg.DescribeClientQuotasRequest) error {
	types := once[string]{}
	for i := range r.Components {
		switch of := &r.Components[i]; {
		case of.EntityType != entityUser && of.EntityType != entityClient && of.EntityType != entityIP:
			return refuse(kerr.UnsupportedVersion, "entity type %.40q: want user, client-id or ip", of.EntityType)
		case !types.first(of.EntityType):
			return refuse(kerr.InvalidRequest, "the filter has the entity type %s more than once", of.EntityType)
		case of.MatchType < kmsg.QuotasMatchTypeExact || of.MatchType > kmsg.QuotasMatchTypeAny:
			return refuse(kerr.InvalidRequest, "match type %d: want 0 (a name), 1 (the default) or 2 (any)", of.MatchType)
		case (of.Match != nil) != (of.MatchType == kmsg.QuotasMatchTypeExact):
			return refuse(kerr.InvalidRequest, "want a name with match type 0, and with no other")
		}
	}
	return nil
}

// describedQuotas returns the quotas that a filter finds.
func describedQuotas(c *call, r *kmsg.DescribeClientQuotasRequest, all []auth.Quota) (found []kmsg.DescribeClientQuotasResponseEntry, err error) {
	for _, q := range all {
		if !findsQuota(r, &q) {
			continue
		}
		if err := c.memory.add(int64(len(q.User)+len(q.Client)) + quotaCost); err != nil {
			return nil, err
		}
		entry := kmsg.NewDescribeClientQuotasResponseEntry()
		for _, of := range []struct{ kind, name string }{{entityUser, q.User}, {entityClient, q.Client}} {
			if of.name == "" {
				continue
			}
			part := kmsg.NewDescribeClientQuotasResponseEntryEntity()
			if part.Type = of.kind; of.name != auth.DefaultEntity {
				part.Name = &of.name
			}
			entry.Entity = append(entry.Entity, part)
		}
		for _, key := range slices.Sorted(maps.Keys(q.Rates)) {
			value := kmsg.NewDescribeClientQuotasResponseEntryValue()
			value.Key, value.Value = key, q.Rates[key]
			entry.Values = append(entry.Values, value)
		}
		found = append(found, entry)
	}
	return found, nil
}

// findsQuota reports whether a filter finds a quota.
func findsQuota(r *kmsg.DescribeClientQuotasRequest, q *auth.Quota) bool {
	types := map[string]string{entityUser: q.User, entityClient: q.Client}
	for i := range r.Components {
		of := &r.Components[i]
		name := types[of.EntityType]
		delete(types, of.EntityType)
		switch of.MatchType {
		case kmsg.QuotasMatchTypeExact:
			if name != *of.Match || name == auth.DefaultEntity {
				return false
			}
		case kmsg.QuotasMatchTypeDefault:
			if name != auth.DefaultEntity {
				return false
			}
		}
		if name == "" {
			return false
		}
	}
	return !r.Strict || types[entityUser] == "" && types[entityClient] == ""
}

// AlterClientQuotas: versions 0 to 1.
//
// Sets and removes quotas of entities: a user, a client id, a user with a client id, or the defaults, those without a name. The
// changes of one entity are made all or not at all, and the answer comes when they are durable, or, with validate only, without
// a change. A change that cannot be has INVALID_REQUEST with what would be right. When there is no place for more, all have
// POLICY_VIOLATION, and nothing has changed. A request changes at most 2,000 entities.
func (s *Server) alterClientQuotas(c *call, r *kmsg.AlterClientQuotasRequest) answer {
	return func(ctx context.Context) kmsg.Response {
		ctx, cancel := adminContext(ctx)
		defer cancel()
		response := r.ResponseKind().(*kmsg.AlterClientQuotasResponse)
		manager, err := c.manager()
		if err == nil && len(r.Entries) > maxQuotaChanges {
			err = refuse(kerr.InvalidRequest, "%d entities: want at most %d in a request", len(r.Entries), maxQuotaChanges)
		}
		refused := make([]error, len(r.Entries))
		if err == nil {
			err = changeQuotas(ctx, c, manager, r, refused)
		}
		response.Entries = make([]kmsg.AlterClientQuotasResponseEntry, len(r.Entries))
		for i := range response.Entries {
			entry := &response.Entries[i]
			entry.ErrorCode, entry.ErrorMessage = s.outcome("alter quotas", cmp.Or(err, asInvalid(refused[i])))
			for _, of := range r.Entries[i].Entity {
				entry.Entity = append(entry.Entity, kmsg.AlterClientQuotasResponseEntryEntity{Type: of.Type, Name: of.Name})
			}
		}
		return response
	}
}

// changeQuotas makes the changes of a request, and sets the errors of those that are refused.
func changeQuotas(ctx context.Context, c *call, manager auth.Manager, r *kmsg.AlterClientQuotasRequest, refused []error) error {
	var changes []auth.Quota
	var at []int // the places of changes in the request
	for i := range r.Entries {
		var change auth.Quota
		if change, refused[i] = quotaChange(&r.Entries[i]); refused[i] == nil {
			changes, at = append(changes, change), append(at, i)
			c.about("quota:", change.String())
		}
	}
	if len(changes) == 0 {
		return nil
	}
	wrong, err := manager.ChangeQuotas(ctx, changes, r.ValidateOnly)
	for i, why := range wrong {
		refused[at[i]] = why
	}
	return err
}

// quotaChange returns the change of one entity.
func quotaChange(entry *kmsg.AlterClientQuotasRequestEntry) (auth.Quota, error) {
	change := auth.Quota{Rates: map[string]float64{}}
	for i := range entry.Entity {
		of := &entry.Entity[i]
		name := &change.User
		switch of.Type {
		case entityUser:
		case entityClient:
			name = &change.Client
		case entityIP:
			return change, refuse(kerr.InvalidRequest, "quotas of addresses are not supported: the settings of the server bound their connections")
		default:
			return change, refuse(kerr.InvalidRequest, "entity type %.40q: want user or client-id", of.Type)
		}
		switch {
		case *name != "":
			return change, refuse(kerr.InvalidRequest, "the entity has the type %s more than once", of.Type)
		case of.Name == nil:
			*name = auth.DefaultEntity
		case *of.Name == "" || *of.Name == auth.DefaultEntity:
			return change, refuse(kerr.InvalidRequest, "%s %q: want a name, or null for the default", of.Type, *of.Name)
		default:
			*name = *of.Name
		}
	}
	for _, op := range entry.Ops {
		switch _, again := change.Rates[op.Key]; {
		case again:
			return change, refuse(kerr.InvalidRequest, "the change has the key %.40q more than once", op.Key)
		case op.Remove:
			change.Rates[op.Key] = 0
		case op.Value == 0:
			return change, refuse(kerr.InvalidRequest, "%.40q 0: want a whole number, at least 1, or that the key is removed", op.Key)
		default:
			change.Rates[op.Key] = op.Value
		}
	}
	return change, nil
}
