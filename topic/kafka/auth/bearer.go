package auth

import (
	"fmt"
	"strings"
)

// refusal is the server's answer to a token that is not valid (RFC 7628, section 3.2.2). The client answers with one
// byte, 1, and then the authentication fails.
const refusal = `{"status":"invalid_token"}`

// bearer is a step of OAuthBearer.
func (l *Login) bearer(accounts Accounts, message []byte) ([]byte, Principal, error) {
	if l.refused != nil {
		return nil, nil, l.refused
	}
	fields := strings.Split(string(message), "\x01")
	if n := len(fields); n < 4 || fields[n-1] != "" || fields[n-2] != "" || !strings.HasPrefix(fields[0], "n,") || !strings.HasSuffix(fields[0], ",") {
		return nil, nil, fmt.Errorf("%w: want n,, then 0x01, auth=Bearer TOKEN, and twice 0x01", ErrMalformed)
	}
	for _, field := range fields[1:] {
		scheme, token, _ := strings.Cut(strings.TrimPrefix(field, "auth="), " ")
		if !strings.HasPrefix(field, "auth=") || !strings.EqualFold(scheme, "Bearer") {
			continue
		}
		principal, refused := accounts.Secret(token)
		l.refused = refused
		if refused == nil {
			return nil, principal, nil
		}
		return []byte(refusal), nil, nil
	}
	return nil, nil, fmt.Errorf("%w: want auth=Bearer TOKEN", ErrMalformed)
}
