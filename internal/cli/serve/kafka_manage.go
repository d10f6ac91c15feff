package serve

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/topic/kafka/auth"
)

// managed returns an error of accounts as one that the server for Kafka clients knows.
func managed(err error) error {
	_, invalid := errors.AsType[*access.InvalidError](err)
	kind := auth.ErrAway
	switch {
	case err == nil:
		return nil
	case invalid:
		kind = auth.ErrInvalid
	case errors.Is(err, access.ErrNoCredential):
		kind = auth.ErrNotFound
	case errors.Is(err, access.ErrFull):
		kind = auth.ErrFull
	}
	return fmt.Errorf("%w: %s", kind, access.Explain(err))
}

// Users implements auth.Manager.
func (a *kafkaAccounts) Users() []auth.ScramUser {
	known := a.Accounts.Users()
	users := make([]auth.ScramUser, len(known))
	for i, user := range known {
		users[i] = auth.ScramUser(user)
	}
	return users
}

// ChangeUsers implements auth.Manager.
func (a *kafkaAccounts) ChangeUsers(ctx context.Context, changes []auth.ScramChange) (map[string]error, error) {
	wanted := make([]access.ScramChange, len(changes))
	for i, change := range changes {
		wanted[i] = access.ScramChange(change)
	}
	refused, err := a.Accounts.ChangeUsers(ctx, wanted)
	for name, why := range refused {
		refused[name] = managed(why)
	}
	return refused, managed(err)
}

// ACLs implements auth.Manager.
func (a *kafkaAccounts) ACLs(filter auth.ACLFilter) []auth.ACL {
	return kafkaACLs(a.Accounts.ACLs(access.ACLFilter(filter)))
}

func kafkaACLs(all []access.ACL) []auth.ACL {
	converted := make([]auth.ACL, len(all))
	for i, l := range all {
		converted[i] = auth.ACL(l)
	}
	return converted
}

// CreateACLs implements auth.Manager.
func (a *kafkaAccounts) CreateACLs(ctx context.Context, all []auth.ACL) ([]error, error) {
	wanted := make([]access.ACL, len(all))
	for i, l := range all {
		wanted[i] = access.ACL(l)
	}
	refused, err := a.Accounts.CreateACLs(ctx, wanted)
	for i, why := range refused {
		refused[i] = managed(why)
	}
	return refused, managed(err)
}

// DeleteACLs implements auth.Manager.
func (a *kafkaAccounts) DeleteACLs(ctx context.Context, filters []auth.ACLFilter) ([][]auth.ACL, error) {
	wanted := make([]access.ACLFilter, len(filters))
	for i, filter := range filters {
		wanted[i] = access.ACLFilter(filter)
	}
	found, err := a.Accounts.DeleteACLs(ctx, wanted)
	removed := make([][]auth.ACL, len(found))
	for i, of := range found {
		removed[i] = kafkaACLs(of)
	}
	return removed, managed(err)
}

// Quotas implements auth.Manager.
func (a *kafkaAccounts) Quotas() []auth.Quota {
	var all []auth.Quota
	for _, q := range a.Accounts.Quotas() {
		if q.Tenant == "" { // Kafka has no tenants
			all = append(all, auth.Quota{User: q.User, Client: q.Client, Rates: q.Rates})
		}
	}
	return all
}

// ChangeQuotas implements auth.Manager.
func (a *kafkaAccounts) ChangeQuotas(ctx context.Context, changes []auth.Quota, validateOnly bool) ([]error, error) {
	wanted := make([]access.Quota, len(changes))
	for i, change := range changes {
		wanted[i] = access.Quota{User: change.User, Client: change.Client, Rates: change.Rates}
	}
	refused, err := a.Accounts.ChangeQuotas(ctx, wanted, validateOnly)
	for i, why := range refused {
		refused[i] = managed(why)
	}
	return refused, managed(err)
}
