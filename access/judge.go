package access

import (
	"slices"
	"strings"
)

// The operations of ACLs.
const (
	opAll             = "all"
	opRead            = "read"
	opWrite           = "write"
	opCreate          = "create"
	opDelete          = "delete"
	opAlter           = "alter"
	opDescribe        = "describe"
	opDescribeConfigs = "describe_configs"
	opAlterConfigs    = "alter_configs"
	opIdempotentWrite = "idempotent_write"
)

// implied are the operations that an ACL allows with its own.
var implied = map[string][]string{
	opRead: {opDescribe}, opWrite: {opDescribe}, opDelete: {opDescribe}, opAlter: {opDescribe}, opAlterConfigs: {opDescribeConfigs},
}

// judged finds the ACLs for a resource without looking at those of others: by the names of principals, Every of all. It
// does not change. Without ACLs it is nil.
type judged map[string]*aclsOf

// aclsOf are the ACLs of a principal.
type aclsOf struct {
	literal  map[place][]ACL
	prefixed map[Resource][]ACL
	// writing are the hosts from which the principal may write to some topic.
	writing []string
}

type place struct {
	of   Resource
	name string
}

func newJudged(all []ACL) judged {
	if len(all) == 0 {
		return nil
	}
	j := judged{}
	for _, l := range all {
		who := strings.TrimPrefix(l.Principal, UserPrefix)
		own := j[who]
		if own == nil {
			own = &aclsOf{literal: map[place][]ACL{}, prefixed: map[Resource][]ACL{}}
			j[who] = own
		}
		of := Resource(l.Resource)
		if l.Pattern == Prefixed {
			own.prefixed[of] = append(own.prefixed[of], l)
		} else {
			own.literal[place{of, l.Name}] = append(own.literal[place{of, l.Name}], l)
		}
		if of == Topic && l.Permission == Allow && l.covers(opWrite) {
			own.writing = append(own.writing, l.Host)
		}
	}
	return j
}

// covers reports whether the ACL is about an operation.
func (l *ACL) covers(operation string) bool {
	return l.Operation == operation || l.Operation == opAll || l.Permission == Allow && slices.Contains(implied[l.Operation], operation)
}

// asked is what somebody wants to do.
type asked struct {
	who, host string
	of        Resource
	name      string
	operation string
}

// judge reports whether an ACL allows something, and whether one denies it.
func (j judged) judge(q asked) (allowed, denied bool) {
	for _, who := range [...]string{q.who, Every} {
		own := j[who]
		if own == nil {
			continue
		}
		for _, all := range [...][]ACL{own.literal[place{q.of, q.name}], own.literal[place{q.of, Every}], own.prefixed[q.of]} {
			for i := range all {
				l := &all[i]
				if !l.concerns(q) {
					continue
				}
				denied = denied || l.Permission == Deny
				allowed = allowed || l.Permission == Allow && l.opens(q)
			}
		}
		if q.operation == opIdempotentWrite {
			allowed = allowed || slices.Contains(own.writing, q.host) || slices.Contains(own.writing, Every)
		}
	}
	return allowed, denied
}

// concerns reports whether an ACL, found by its principal and resource, is about something.
func (l *ACL) concerns(q asked) bool {
	return (l.Pattern == Literal || strings.HasPrefix(q.name, l.Name)) && (l.Host == Every || l.Host == q.host) && l.covers(q.operation)
}

// ownTopics begins the names of the topics that only servers write.
const ownTopics = "sluice."

// opens reports whether the ACL can allow something of which it is about. The servers' topics it opens for reading only,
// and only by a name that begins as theirs do; the audit trail never.
func (l *ACL) opens(q asked) bool {
	if q.of != Topic || !strings.HasPrefix(q.name, ownTopics) {
		return true
	}
	reads := q.operation == opRead || q.operation == opDescribe || q.operation == opDescribeConfigs
	return reads && strings.HasPrefix(l.Name, ownTopics) && q.name != AuditTopic
}

// MayRequest reports whether somebody may send a Kafka request from a host for a resource: if the roles and limits allow
// it or an ACL does, and no ACL denies it. ACLs do not count for the admin token of the settings. Requests without a row in
// the table are refused.
func (a *Accounts) MayRequest(p *Principal, host string, key int16, of Resource, name string) bool {
	row, known := requests[key]
	if !known {
		return false
	}
	byRole := p.May(row.right) && p.mayUse(row.right, of, name)
	lists := a.known.Load().judged
	if lists == nil || p.Name == AdminName {
		return byRole
	}
	q := asked{who: p.Name, host: host, of: of, name: name, operation: row.on(of)}
	if of == Cluster {
		q.name = ClusterName
	}
	allowed, denied := lists.judge(q)
	if q.operation == opCreate && of == Topic { // who may create topics in the cluster may create all
		q.of, q.name = Cluster, ClusterName
		every, none := lists.judge(q)
		allowed, denied = allowed || every && !strings.HasPrefix(name, ownTopics), denied || none
	}
	return !denied && (byRole || allowed)
}

// mayUse reports whether a resource is within the limits of somebody who has a right.
func (p *Principal) mayUse(right Right, of Resource, name string) bool {
	switch of {
	case Topic:
		return p.Topic(name) && (right != Produce || !strings.HasPrefix(name, ownTopics))
	case Group:
		return p.Group(name)
	case Transaction:
		return p.Transaction(name)
	default:
		return true
	}
}
