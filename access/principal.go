package access

import (
	"context"
	"strings"
	"time"
)

// Principal is somebody who is known, with what they may do. It does not change.
type Principal struct {
	// ID is that of the token, "" for the admin token of the settings, and for those without a token.
	ID string `json:"id,omitempty"`
	// Name is that of the token or of the SCRAM user, and unique; AdminName for the admin token, JWTPrefix and a name for a
	// JWT, CertPrefix and a name for a certificate.
	Name  string `json:"name"`
	Roles []Role `json:"roles"`
	// The limits: each is a name, or a prefix that ends with "*". Empty: all.
	Tenants []string `json:"tenants,omitempty"`
	Types   []string `json:"types,omitempty"`
	Rooms   []string `json:"rooms,omitempty"`
	Topics  []string `json:"topics,omitempty"`
	Groups  []string `json:"groups,omitempty"`
	// Expires is when the token ends; zero: never.
	Expires time.Time `json:"expires,omitzero"`

	hash hash // of the secret; of somebody without a token, the same at all instances
	// stands reports whether what made somebody without a token known still does, such as a key and a grant; nil for a token.
	stands func() bool
}

// String returns what somebody is called in messages.
func (p *Principal) String() string {
	if strings.Contains(p.Name, ":") { // of a JWT or a certificate
		return p.Name
	}
	return "the token " + p.Name
}

// May reports whether one of the roles has a right.
func (p *Principal) May(right Right) bool {
	if p == nil || right == Open {
		return true
	}
	for _, role := range p.Roles {
		if role.Rights()&right == right {
			return true
		}
	}
	return false
}

// Tenant reports whether a tenant is within the limits.
func (p *Principal) Tenant(name string) bool { return p == nil || within(p.Tenants, name) }

// onlyTenant returns the one tenant that somebody is limited to; "" if there is none, or may be another.
func (p *Principal) onlyTenant() string {
	if len(p.Tenants) != 1 || strings.HasSuffix(p.Tenants[0], "*") {
		return ""
	}
	return p.Tenants[0]
}

// Type reports whether a job type is within the limits.
func (p *Principal) Type(name string) bool { return p == nil || within(p.Types, name) }

// Room reports whether a room is within the limits.
func (p *Principal) Room(name string) bool { return p == nil || within(p.Rooms, name) }

// AuditTopic is the topic that has the audit trail. It is of those who manage access.
const AuditTopic = "sluice.audit"

// Topic reports whether a topic is within the limits.
func (p *Principal) Topic(name string) bool {
	return p == nil || within(p.Topics, name) && (name != AuditTopic || p.May(ManageAccess))
}

// Group reports whether a consumer group is within the limits. Somebody who is limited to topics and does not consume
// has no groups.
func (p *Principal) Group(name string) bool {
	return p == nil || within(p.Groups, name) && (len(p.Topics) == 0 || len(p.Groups) > 0 || p.May(Consume))
}

// Transaction reports whether a transactional id is within the limits of topics, or begins with the name of the token
// and "-". So producers cannot fence those of others.
func (p *Principal) Transaction(id string) bool {
	return p == nil || within(p.Topics, id) || strings.HasPrefix(id+"-", p.Name+"-")
}

func within(limits []string, name string) bool {
	for _, limit := range limits {
		prefix, open := strings.CutSuffix(limit, "*")
		if limit == name || open && strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return len(limits) == 0
}

// expired reports whether the token has ended.
func (p *Principal) expired(now time.Time) bool { return !p.Expires.IsZero() && !now.Before(p.Expires) }

// standing reports whether somebody without a token is still who they were.
func (p *Principal) standing() bool { return !p.expired(time.Now()) && p.stands() }

// Nobody sends requests to what is Open, without a valid token.
var Nobody = &Principal{}

type contextKey struct{}

// With returns a context of a request of somebody.
func With(ctx context.Context, p *Principal) context.Context {
	return context.WithValue(ctx, contextKey{}, p)
}

// From returns who sent the request of a context; nil if accounts are off.
func From(ctx context.Context) *Principal {
	p, _ := ctx.Value(contextKey{}).(*Principal)
	return p
}
