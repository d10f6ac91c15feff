package access

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// The versions of the document. Releases that know only a former one would lose what is new when they change a token.
const (
	formatTokens = 1 // tokens alone
	formatACLs   = 2 // users and ACLs too
	formatQuotas = 3 // quotas too, of users and client ids
	format       = 4 // quotas of tenants too
)

// ErrFull means that there are as many tokens, users, ACLs or quotas as there may be.
var ErrFull = errors.New("access: there is no place for more: revoke tokens, or remove users, access lists or quotas, that are not needed")

// document is all that access keeps.
type document struct {
	Format int      `json:"format"`
	Tokens []record `json:"tokens"`
	// Users have credentials of SCRAM and no token, by their names.
	Users map[string]credentials `json:"users,omitempty"`
	// ACLs are in the order of their creation, each once.
	ACLs []ACL `json:"acls,omitempty"`
	// Quotas are in the order of their creation, one of each entity.
	Quotas []Quota `json:"quotas,omitempty"`
}

// credentials are those of a user, by their mechanisms.
type credentials map[string]ScramKeys

// clone returns a copy that can be changed. Records, credentials and the rates of quotas never change.
func (d *document) clone() *document {
	users := make(map[string]credentials, len(d.Users))
	for name, of := range d.Users {
		users[name] = maps.Clone(of)
	}
	return &document{Tokens: slices.Clone(d.Tokens), Users: users, ACLs: slices.Clone(d.ACLs), Quotas: slices.Clone(d.Quotas)}
}

// decode reads a document; nil is an empty one.
func decode(text []byte) (*document, error) {
	d := &document{Format: formatTokens}
	if text == nil {
		return d, nil
	}
	if err := json.Unmarshal(text, d); err != nil {
		return nil, fmt.Errorf("access: the document cannot be read: %w", err)
	}
	if d.Format < formatTokens || d.Format > format {
		return nil, fmt.Errorf("access: the document has format %d, and this release reads %d to %d: run the release that wrote it", d.Format, formatTokens, format)
	}
	for i := range d.Tokens {
		if n := copy(d.Tokens[i].hash[:], d.Tokens[i].Hash); n != len(d.Tokens[i].hash) {
			return nil, fmt.Errorf("access: the document has no whole hash of token %q", d.Tokens[i].Name)
		}
	}
	return d, nil
}

// Summary counts what a document has.
type Summary struct{ Tokens, Expired int }

// Summarize counts what a document has at a time, without those that were revoked, which are not in it. It fails where
// Accounts would.
func Summarize(text []byte, now time.Time) (Summary, error) {
	d, err := decode(text)
	if err != nil {
		return Summary{}, err
	}
	counted := Summary{Tokens: len(d.Tokens)}
	for i := range d.Tokens {
		if d.Tokens[i].expired(now) {
			counted.Expired++
		}
	}
	return counted, nil
}

// encode writes a document.
func (d *document) encode() ([]byte, error) {
	switch {
	case slices.ContainsFunc(d.Quotas, func(q Quota) bool { return q.Tenant != "" }):
		d.Format = format
	case len(d.Quotas) > 0:
		d.Format = formatQuotas
	case len(d.Users) > 0 || len(d.ACLs) > 0:
		d.Format = formatACLs
	default:
		d.Format = formatTokens
	}
	text, err := json.Marshal(d)
	if err == nil && (len(text) > MaxDocument || len(d.Tokens)+len(d.Users) > MaxTokens || len(d.ACLs) > MaxACLs || len(d.Quotas) > MaxQuotas) {
		err = ErrFull
	}
	return text, err
}

// find returns the place of a token of a name, or -1.
func (d *document) find(name string) int {
	for i := range d.Tokens {
		if d.Tokens[i].Name == name {
			return i
		}
	}
	return -1
}
