package auth

import (
	"context"
	"errors"
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
