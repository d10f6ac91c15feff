package access

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// MaxACLs is the most ACLs.
const MaxACLs = 2000

// The words of ACLs: those of Kafka's access lists, in lower case.
const (
	// Allow is the permission of an ACL that adds to roles, Deny that of one that takes away.
	Allow = "allow"
	Deny  = "deny"
	// Literal ACLs are for the resource of their name, or for all with the name Every; Prefixed ones for those whose names
	// begin with theirs.
	Literal  = "literal"
	Prefixed = "prefixed"
	// Match, in a filter, finds all ACLs that count for a resource of the name.
	Match = "match"
	// Every is each name, and each host.
	Every = "*"
	// UserPrefix begins the principal of an ACL; the name of somebody follows, or Every.
	UserPrefix = "User:"
	// ClusterName is the name of the only Cluster.
	ClusterName = "kafka-cluster"
)

// Resource is a kind of thing that Kafka requests are about.
type Resource string

// The kinds of resources.
const (
	Cluster     Resource = "cluster"
	Topic       Resource = "topic"
	Group       Resource = "group"
	Transaction Resource = "transactional_id"
)

// ACL allows or denies somebody an operation on resources.
type ACL struct {
	// Resource is a kind of resource, Pattern is Literal or Prefixed.
	Resource string `json:"resource"`
	Pattern  string `json:"pattern"`
	Name     string `json:"name"`
	// Principal is UserPrefix with the name of a Principal, or Every.
	Principal string `json:"principal"`
	// Host is the address of a client, or Every.
	Host string `json:"host"`
	// Operation is one of Kafka's: all, read, write, create, delete, alter, describe, describe_configs, alter_configs or
	// idempotent_write.
	Operation string `json:"operation"`
	// Permission is Allow or Deny.
	Permission string `json:"permission"`
}

// operationsOn are the operations on each kind of resource that requests need.
var operationsOn = map[Resource][]string{
	Topic:       {opAll, opRead, opWrite, opCreate, opDelete, opAlter, opDescribe, opDescribeConfigs, opAlterConfigs},
	Group:       {opAll, opRead, opDelete, opDescribe, opDescribeConfigs, opAlterConfigs},
	Transaction: {opAll, opWrite, opDescribe},
	Cluster:     {opAll, opCreate, opAlter, opDescribe, opDescribeConfigs, opAlterConfigs, opIdempotentWrite},
}

// checked returns the ACL with its host in one form, or an *InvalidError.
func (l ACL) checked() (ACL, error) {
	invalid := func(field, format string, args ...any) (ACL, error) {
		return l, &InvalidError{field, fmt.Sprintf(format, args...)}
	}
	operations, known := operationsOn[Resource(l.Resource)]
	name, user := strings.CutPrefix(l.Principal, UserPrefix)
	host, of := sameHost(l.Host)
	switch {
	case !known:
		return invalid("resource", "%.40q: want topic, group, transactional_id or cluster", l.Resource)
	case l.Pattern != Literal && l.Pattern != Prefixed:
		return invalid("pattern", "%.40q: want literal or prefixed", l.Pattern)
	case !printable(l.Name):
		return invalid("name", "want 1 to %d bytes that can be printed", maxName)
	case Resource(l.Resource) == Cluster && (l.Name != ClusterName || l.Pattern != Literal):
		return invalid("name", "the cluster has the name %s, and the pattern literal", ClusterName)
	case l.Pattern == Prefixed && l.Name == Every:
		return invalid("name", `a prefix "*" is for names that begin with it: want the pattern literal for all names`)
	case !user || !printable(name):
		return invalid("principal", "want %sNAME, or %s* for everybody", UserPrefix, UserPrefix)
	case !of:
		return invalid("host", "%.80q: want an address, or * for all", l.Host)
	case !slices.Contains(operations, l.Operation):
		return invalid("operation", "%.40q on a %s: want one of %s", l.Operation, l.Resource, strings.Join(operations, ", "))
	case l.Permission != Allow && l.Permission != Deny:
		return invalid("permission", "%.40q: want allow or deny", l.Permission)
	}
	l.Host = host
	return l, nil
}

// sameHost returns an address in the form that connections have, and whether it is one, or Every.
func sameHost(text string) (host string, is bool) {
	if text == Every {
		return text, true
	}
	address, err := netip.ParseAddr(text)
	if err != nil {
		return text, false
	}
	return address.Unmap().String(), true
}

// ACLFilter finds ACLs. An empty field, and nil, finds all.
type ACLFilter struct {
	Resource string
	// Pattern is Literal, Prefixed or Match.
	Pattern               string
	Name, Principal, Host *string
	Operation, Permission string
}

// Finds reports whether the filter finds an ACL.
func (f *ACLFilter) Finds(l ACL) bool {
	same := func(want, is string) bool { return want == "" || want == is }
	if !same(f.Resource, l.Resource) || !same(f.Operation, l.Operation) || !same(f.Permission, l.Permission) || f.Principal != nil && *f.Principal != l.Principal {
		return false
	}
	if f.Host != nil {
		if host, _ := sameHost(*f.Host); host != l.Host {
			return false
		}
	}
	if f.Pattern != Match && !same(f.Pattern, l.Pattern) {
		return false
	}
	switch {
	case f.Name == nil || *f.Name == l.Name:
		return true
	case f.Pattern != Match:
		return false
	case l.Pattern == Literal:
		return l.Name == Every
	}
	return strings.HasPrefix(*f.Name, l.Name)
}

// ACLs returns the ACLs that a filter finds. Another instance may have changed them up to Follow ago.
func (a *Accounts) ACLs(filter ACLFilter) []ACL {
	var found []ACL
	for _, l := range a.known.Load().ACLs {
		if filter.Finds(l) {
			found = append(found, l)
		}
	}
	return found
}

// CreateACLs creates ACLs, and returns an *InvalidError for each that cannot be; one that exists already stays. With an
// error of its own, such as ErrFull or one of the store, nothing has changed.
func (a *Accounts) CreateACLs(ctx context.Context, all []ACL) (refused []error, err error) {
	refused = make([]error, len(all))
	var good []ACL
	for i, l := range all {
		if l, refused[i] = l.checked(); refused[i] == nil {
			good = append(good, l)
		}
	}
	err = a.change(ctx, func(d *document) error {
		has := make(map[ACL]bool, len(d.ACLs))
		for _, l := range d.ACLs {
			has[l] = true
		}
		before := len(d.ACLs)
		for _, l := range good {
			if !has[l] {
				has[l] = true
				d.ACLs = append(d.ACLs, l)
			}
		}
		if len(d.ACLs) == before {
			return errNothing
		}
		return nil
	})
	return refused, err
}

// DeleteACLs removes the ACLs that filters find, and returns them, each for the first filter that finds it. With an
// error, such as one of the store, nothing has changed.
func (a *Accounts) DeleteACLs(ctx context.Context, filters []ACLFilter) (removed [][]ACL, err error) {
	err = a.change(ctx, func(d *document) error {
		removed = make([][]ACL, len(filters))
		before := len(d.ACLs)
		d.ACLs = slices.DeleteFunc(d.ACLs, func(l ACL) bool {
			at := slices.IndexFunc(filters, func(f ACLFilter) bool { return f.Finds(l) })
			if at >= 0 {
				removed[at] = append(removed[at], l)
			}
			return at >= 0
		})
		if len(d.ACLs) == before {
			return errNothing
		}
		return nil
	})
	return removed, err
}
