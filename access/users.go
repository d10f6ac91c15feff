package access

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"time"
)

// The bounds of a credential of SCRAM.
const (
	// MinIterations is the least number of times that a password was hashed, MaxIterations the most (KIP-554).
	MinIterations = 4096
	MaxIterations = 16384
	// MinSalt is the least number of bytes of its salt, MaxSalt the most.
	MinSalt = 8
	MaxSalt = 64
)

// ErrNoCredential means that a user has no credential for a mechanism.
var ErrNoCredential = errors.New("access: the user has no such credential")

// errNothing ends a change of the document that changes nothing.
var errNothing = errors.New("nothing changes")

// ScramUser is somebody who authenticates by SCRAM with a password that the server has never seen. Roles and limits
// come from grants for the name.
type ScramUser struct {
	Name string
	// Iterations are those of each credential, by its mechanism.
	Iterations map[string]int
}

// ScramChange sets the credential of a user for a mechanism, or removes it. A user without credentials does not exist.
type ScramChange struct {
	User, Mechanism string
	Remove          bool
	// Salted is the password after Iterations with Salt, as RFC 5802 computes it. All three are for a credential that is set.
	Iterations   int
	Salt, Salted []byte
}

// userName are the names of users. None has a colon, as those of JWTs and certificates have.
var userName = regexp.MustCompile(`^[A-Za-z0-9._@+-]{1,64}$`)

// keys returns what the server keeps of the credential, or an *InvalidError.
func (c *ScramChange) keys() (ScramKeys, error) {
	size, of := sha256.Size, func() keyPair { return pairOf(sha256.New, c.Salted) }
	if c.Mechanism == ScramSHA512 {
		size, of = sha512.Size, func() keyPair { return pairOf(sha512.New, c.Salted) }
	}
	switch {
	case c.Mechanism != ScramSHA256 && c.Mechanism != ScramSHA512:
		return ScramKeys{}, &InvalidError{"mechanism", fmt.Sprintf("%q: want %s or %s", c.Mechanism, ScramSHA256, ScramSHA512)}
	case c.Iterations < MinIterations || c.Iterations > MaxIterations:
		return ScramKeys{}, &InvalidError{"iterations", fmt.Sprintf("%d: want %d to %d", c.Iterations, MinIterations, MaxIterations)}
	case len(c.Salt) < MinSalt || len(c.Salt) > MaxSalt:
		return ScramKeys{}, &InvalidError{"salt", fmt.Sprintf("it has %d bytes: want %d to %d", len(c.Salt), MinSalt, MaxSalt)}
	case len(c.Salted) != size:
		return ScramKeys{}, &InvalidError{"salted password", fmt.Sprintf("it has %d bytes: want %d for %s", len(c.Salted), size, c.Mechanism)}
	}
	pair := of()
	return ScramKeys{Salt: bytes.Clone(c.Salt), Iterations: c.Iterations, Stored: pair.Stored, Server: pair.Server}, nil
}

// user returns somebody who has proved the password of a SCRAM user: valid until the credential is removed or replaced.
func (a *Accounts) user(name, mechanism string, keys ScramKeys) *Principal {
	return a.granted(name, nil, time.Time{}, func() bool {
		return bytes.Equal(a.known.Load().Users[name][mechanism].Stored, keys.Stored)
	})
}

// Users returns the SCRAM users, by their names. Another instance may have changed them up to Follow ago.
func (a *Accounts) Users() []ScramUser {
	known := a.known.Load().Users
	all := make([]ScramUser, 0, len(known))
	for _, name := range slices.Sorted(maps.Keys(known)) {
		iterations := map[string]int{}
		for mechanism, keys := range known[name] {
			iterations[mechanism] = keys.Iterations
		}
		all = append(all, ScramUser{name, iterations})
	}
	return all
}

// ChangeUsers makes changes, those of one user all or not at all, and returns the error of each user that has one:
// *InvalidError, ErrNoCredential. With another error, such as ErrFull or one of the store, nothing has changed.
func (a *Accounts) ChangeUsers(ctx context.Context, changes []ScramChange) (refused map[string]error, err error) {
	made := map[string][]ScramChange{}
	for _, change := range changes {
		made[change.User] = append(made[change.User], change)
	}
	err = a.change(ctx, func(d *document) error {
		refused = map[string]error{}
		for name, of := range made {
			changed, err := d.changeUser(name, of)
			switch {
			case err != nil:
				refused[name] = err
			case len(changed) == 0:
				delete(d.Users, name)
			default:
				d.Users[name] = changed
			}
		}
		if len(refused) == len(made) {
			return errNothing
		}
		return nil
	})
	return refused, err
}

// changeUser returns the credentials of a user after changes.
func (d *document) changeUser(name string, changes []ScramChange) (credentials, error) {
	switch {
	case !userName.MatchString(name):
		return nil, &InvalidError{"user", `want a name of 1 to 64 of A-Z, a-z, 0-9, ".", "_", "-", "@" and "+"`}
	case name == AdminName || d.find(name) >= 0:
		return nil, &InvalidError{"user", "it is the name of a token, whose secret is its password for SCRAM: choose another name"}
	}
	changed := maps.Clone(d.Users[name])
	if changed == nil {
		changed = credentials{}
	}
	for i := range changes {
		mechanism := changes[i].Mechanism
		if _, has := changed[mechanism]; changes[i].Remove && !has {
			return nil, ErrNoCredential
		}
		if changes[i].Remove {
			delete(changed, mechanism)
			continue
		}
		keys, err := changes[i].keys()
		if err != nil {
			return nil, err
		}
		changed[mechanism] = keys
	}
	return changed, nil
}
