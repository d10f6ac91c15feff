package access

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// The bounds of one token.
const (
	maxLimits     = 100
	maxLimitBytes = 256
	maxTries      = 10 // of a change, while others change the document too
)

var (
	// ErrExists means that there is a token of the name.
	ErrExists = errors.New("access: there is a token of this name: rotate or revoke it, or choose another name")
	// ErrNotFound means that there is no token of the name.
	ErrNotFound = errors.New("access: there is no token of this name")
)

// InvalidError says what is wrong with a new token.
type InvalidError struct{ Field, Why string }

func (e *InvalidError) Error() string { return e.Field + ": " + e.Why }

var tokenName = regexp.MustCompile(`^[a-z0-9._-]{1,64}$`)

// validate returns an *InvalidError if no token can be like p.
func (p *Principal) validate(now time.Time) error {
	switch {
	case !tokenName.MatchString(p.Name):
		return &InvalidError{"name", `want 1 to 64 of a-z, 0-9, "-", "_" and "."`}
	case p.Name == AdminName:
		return &InvalidError{"name", "it is the name of the admin token of the settings: choose another"}
	case len(p.Roles) == 0:
		return &InvalidError{"roles", "want at least one of " + JoinRoles(Roles())}
	case p.expired(now):
		return &InvalidError{"expires", "it is over already: want a time to come"}
	}
	for i, role := range p.Roles {
		if role.Rights() == 0 || slices.Contains(p.Roles[:i], role) {
			return &InvalidError{"roles", fmt.Sprintf("%q: want some of %s, each once", role, JoinRoles(Roles()))}
		}
	}
	for _, of := range []struct {
		field  string
		limits []string
		roles  []Role
	}{
		{"tenants", p.Tenants, []Role{Submitter}}, {"types", p.Types, []Role{Worker}}, {"rooms", p.Rooms, []Role{Shop}},
		{"topics", p.Topics, []Role{Producer, Consumer}}, {"groups", p.Groups, []Role{Consumer}},
	} {
		if err := p.validateLimits(of.field, of.limits, of.roles); err != nil {
			return err
		}
	}
	return nil
}

// validateLimits checks the limits of a kind, which are for some roles.
func (p *Principal) validateLimits(field string, limits []string, for_ []Role) error {
	has := func(role Role) bool { return slices.Contains(p.Roles, role) }
	switch {
	case len(limits) == 0:
		return nil
	case len(limits) > maxLimits:
		return &InvalidError{field, fmt.Sprintf("want at most %d", maxLimits)}
	case has(Admin) || has(Operator):
		return &InvalidError{field, "admin and operator have no limits"}
	case !slices.ContainsFunc(for_, has):
		return &InvalidError{field, "it limits the role " + strings.ReplaceAll(JoinRoles(for_), ", ", " or ") + ", which the token does not have"}
	}
	for _, limit := range limits {
		if limit == "" || len(limit) > maxLimitBytes || strings.Contains(strings.TrimSuffix(limit, "*"), "*") {
			return &InvalidError{field, fmt.Sprintf(`%q: want a name, or a prefix with "*" at its end, of at most %d bytes`, limit, maxLimitBytes)}
		}
	}
	return nil
}

// JoinRoles returns roles as a text.
func JoinRoles(roles []Role) string {
	names := make([]string, len(roles))
	for i, role := range roles {
		names[i] = string(role)
	}
	return strings.Join(names, ", ")
}

// Create makes a token with the name, the roles, the limits and the end of p, and returns its secret, which nobody
// can read later. Errors: *InvalidError, ErrExists, ErrFull, and those of the store.
func (a *Accounts) Create(ctx context.Context, p Principal) (Token, string, error) {
	now, secret := time.Now().UTC().Truncate(time.Second), newSecret()
	if err := p.validate(now); err != nil {
		return Token{}, "", err
	}
	p.ID, p.Expires = newID(), p.Expires.UTC()
	made := record{Token: Token{Principal: p, Created: now}}
	if err := made.setSecret(secret); err != nil {
		return Token{}, "", err
	}
	err := a.change(ctx, func(d *document) error {
		if d.find(p.Name) >= 0 {
			return ErrExists
		}
		if d.Users[p.Name] != nil {
			return &InvalidError{"name", "it is the name of a SCRAM user: choose another"}
		}
		d.Tokens = append(d.Tokens, made)
		return nil
	})
	return made.Token, secret, err
}

// List returns all tokens, in the order of their creation. Another instance may have changed them up to Follow ago.
func (a *Accounts) List() []Token {
	known := a.known.Load().Tokens
	all := make([]Token, len(known))
	for i := range known {
		all[i] = known[i].Token
	}
	return all
}

// Revoke removes a token. Its name is free again. Errors: ErrNotFound, and those of the store.
func (a *Accounts) Revoke(ctx context.Context, name string) error {
	return a.change(ctx, func(d *document) error {
		at := d.find(name)
		if at < 0 {
			return ErrNotFound
		}
		d.Tokens = slices.Delete(d.Tokens, at, at+1)
		return nil
	})
}

// Rotate gives a token a new secret, and returns it. The one before is unknown at once. Errors: ErrNotFound, and
// those of the store.
func (a *Accounts) Rotate(ctx context.Context, name string) (Token, string, error) {
	var rotated record
	secret := newSecret()
	err := a.change(ctx, func(d *document) error {
		at := d.find(name)
		if at < 0 {
			return ErrNotFound
		}
		if err := d.Tokens[at].setSecret(secret); err != nil {
			return err
		}
		rotated = d.Tokens[at]
		return nil
	})
	return rotated.Token, secret, err
}

// change reads the document, changes a copy and writes it, again if another instance was faster.
func (a *Accounts) change(ctx context.Context, change func(*document) error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for range maxTries {
		err := a.tryChange(ctx, change)
		if errors.Is(err, errNothing) {
			return nil
		}
		if !errors.Is(err, ErrChanged) {
			return err
		}
	}
	return ErrChanged
}

func (a *Accounts) tryChange(ctx context.Context, change func(*document) error) error {
	now, err := a.read(ctx)
	if err != nil {
		return err
	}
	changed := now.clone()
	if err := change(changed); err != nil {
		return err
	}
	text, err := changed.encode()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	version, err := a.store.Write(ctx, text, now.version)
	if err != nil {
		return err
	}
	d, err := decode(text)
	if err == nil {
		a.known.Store(newSnapshot(d, version))
	}
	return err
}
