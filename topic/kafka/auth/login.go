package auth

import (
	"bytes"
	"errors"
	"fmt"
)

// The mechanisms of SASL.
const (
	// Plain sends a name, which does not matter, and a secret (RFC 4616).
	Plain = "PLAIN"
	// OAuthBearer sends a token (RFC 7628).
	OAuthBearer = "OAUTHBEARER"
	// ScramSHA256 and ScramSHA512 prove that the client knows the secret of a name (RFC 5802, 7677).
	ScramSHA256 = "SCRAM-SHA-256"
	ScramSHA512 = "SCRAM-SHA-512"
)

var (
	// ErrMalformed means that a message is not one of the mechanism.
	ErrMalformed = errors.New("malformed message")
	// ErrProof means that a client does not know the secret of the name, or that nobody has the name.
	ErrProof = errors.New("unknown name or wrong secret")
)

// Login is one authentication of a client.
type Login struct {
	// Mechanism is one of the above.
	Mechanism string
	// scram is not nil after the first message of a SCRAM mechanism.
	scram *scram
	// refused is why the token of OAuthBearer is not valid: the client learns it after its next message.
	refused error
}

// Step reads a message of the client and returns the answer to it. The principal is nil until the last
// one. The text of an error is for the client: ErrMalformed, ErrProof, or one of the accounts.
func (l *Login) Step(accounts Accounts, message []byte) (answer []byte, principal Principal, err error) {
	switch {
	case l.Mechanism == Plain:
		parts := bytes.Split(message, []byte{0})
		if len(parts) != 3 {
			return nil, nil, fmt.Errorf("%w: want NUL, a name, NUL, a secret", ErrMalformed)
		}
		principal, err = accounts.Secret(string(parts[2]))
		return nil, principal, err
	case l.Mechanism == OAuthBearer:
		return l.bearer(accounts, message)
	case l.scram == nil:
		if l.scram, err = beginScram(accounts, l.Mechanism, message); err != nil {
			return nil, nil, err
		}
		return []byte(l.scram.challenge), nil, nil
	default:
		answer, err = l.scram.finish(message)
		return answer, l.scram.principal, err
	}
}
