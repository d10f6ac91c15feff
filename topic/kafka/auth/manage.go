package auth

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// The kinds of errors of a Manager.
var (
	// ErrInvalid means that what was asked for cannot be; the text says what can.
	ErrInvalid = errors.New("invalid")
	// ErrNotFound means that what was to be removed does not exist.
	ErrNotFound = errors.New("not found")
	// ErrFull means that there is as much as there may be.
	ErrFull = errors.New("full")
	// ErrAway means that what keeps the accounts does not answer now.
	ErrAway = errors.New("the accounts cannot be changed now")
)

// Manager lets clients change accounts by Kafka's admin calls. Its errors are of the kinds above.
type Manager interface {
	// Users returns the users with credentials of SCRAM, by their names, as far as they are known without I/O.
	Users() []ScramUser
	// ChangeUsers makes changes, those of one user all or not at all, and returns the error of each user that has one.
	// With an error of its own nothing has changed.
	ChangeUsers(ctx context.Context, changes []ScramChange) (refused map[string]error, err error)
	// ACLs returns those that a filter finds, as far as they are known without I/O.
	ACLs(filter ACLFilter) []ACL
	// CreateACLs creates ACLs, and returns an error, or nil, for each. With an error of its own nothing has changed.
	CreateACLs(ctx context.Context, all []ACL) (refused []error, err error)
	// DeleteACLs removes the ACLs that filters find, and returns them for each filter.
	DeleteACLs(ctx context.Context, filters []ACLFilter) (removed [][]ACL, err error)
	// Quotas returns all quotas, as far as they are known without I/O.
	Quotas() []Quota
	// ChangeQuotas sets and removes values, those of one entity all or not at all, and returns an error, or nil, for each
	// change. With an error of its own nothing has changed. With validateOnly nothing changes in any case.
	ChangeQuotas(ctx context.Context, changes []Quota, validateOnly bool) (refused []error, err error)
}

// ScramUser is a user with credentials of SCRAM.
type ScramUser struct {
	Name string
	// Iterations are those of each credential, by its mechanism.
	Iterations map[string]int
}

// ScramChange sets the credential of a user for a mechanism, or removes it.
type ScramChange struct {
	User, Mechanism string
	Remove          bool
	// Salted is the password after Iterations with Salt (RFC 5802). All three are for a credential that is set.
	Iterations   int
	Salt, Salted []byte
}

// ACL is an entry of the access lists: it allows or denies somebody an operation on resources. Its words are Kafka's, in
// lower case.
type ACL struct {
	// Resource is topic, group, cluster or transactional_id; Pattern is literal or prefixed.
	Resource, Pattern, Name string
	// Principal is "User:" and a name, or "*"; Host is an address, or "*".
	Principal, Host string
	// Operation is one of Kafka's; Permission is allow or deny.
	Operation, Permission string
}

func (l ACL) String() string {
	return fmt.Sprintf("%s %s %s on %s %s:%s from %s", l.Permission, l.Principal, l.Operation, l.Pattern, l.Resource, l.Name, l.Host)
}

// ACLFilter finds ACLs. An empty field, and nil, finds all.
type ACLFilter struct {
	Resource string
	// Pattern is literal, prefixed, or match: all that count for a resource of the name.
	Pattern               string
	Name, Principal, Host *string
	Operation, Permission string
}

// The rates of quotas, by Kafka's names, in bytes a second.
const (
	// ProducerRate bounds Produce requests, ConsumerRate the records in answers.
	ProducerRate = "producer_byte_rate"
	ConsumerRate = "consumer_byte_rate"
)

// DefaultEntity stands for each user, or each client id, that has no quota of its own.
const DefaultEntity = "<default>"

// Quota is the quotas of a user, of a client id, or of a user with a client id.
type Quota struct {
	// User and Client are names, or DefaultEntity; "" for each.
	User, Client string
	// Rates are the values of quotas, by their names: rates in bytes a second, and how much of something a user may have made. In
	// a change, 0 removes one, and others stay.
	Rates map[string]float64
}

func (q Quota) String() string {
	var parts []string
	for _, of := range []struct{ kind, name string }{{"user", q.User}, {"client-id", q.Client}} {
		if of.name != "" {
			parts = append(parts, of.kind+"="+of.name)
		}
	}
	return strings.Join(parts, ",")
}
