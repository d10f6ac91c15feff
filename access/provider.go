package access

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/golang-jwt/jwt/v5"
)

const (
	// JWTPrefix begins the names of those whom an identity provider makes known. No token's name has a colon.
	JWTPrefix = "jwt:"
	// MaxJWT is the most bytes of a JWT.
	MaxJWT = 16 << 10
	// ClockSkew is by how much the clock of an identity provider may be off.
	ClockSkew = 30 * time.Second
)

// ProviderOptions configure a Provider. All fields are needed.
type ProviderOptions struct {
	// Issuer and Audience are what the claims iss and aud must have, byte for byte.
	Issuer, Audience string
	// Keys are the provider's.
	Keys Keys
	// NameClaim is the claim with the name of somebody, a text; GrantClaim that with the values that grants ask for: a
	// list of texts, or one text with spaces between them. A dot leads into an object, as in realm_access.roles.
	NameClaim, GrantClaim string
}

// Keys are the keys with which an identity provider signs; package access/jwks has them.
type Keys interface {
	// Find returns the public key of a kid that verifies an algorithm; nil: there is none, or none any more. It does no I/O.
	Find(kid, algorithm string) any
	// Follow keeps the keys until the context ends.
	Follow(ctx context.Context) error
}

// Provider knows who has a JWT of an identity provider.
type Provider struct {
	options ProviderOptions
	parser  *jwt.Parser
	cache   verified
}

// NewProvider returns a provider. It knows nobody until Accounts with it have started.
func NewProvider(options ProviderOptions) *Provider {
	methods := []string{jwt.SigningMethodRS256.Alg(), jwt.SigningMethodES256.Alg(), jwt.SigningMethodEdDSA.Alg()}
	return &Provider{options: options, parser: jwt.NewParser(
		jwt.WithValidMethods(methods), jwt.WithStrictDecoding(),
		jwt.WithIssuer(options.Issuer), jwt.WithAudience(options.Audience), jwt.WithExpirationRequired(), jwt.WithLeeway(ClockSkew))}
}

// ErrBadJWT means that a JWT makes nobody known.
var ErrBadJWT = errors.New("access: the JWT is not valid")

var errNoKey = errors.New("no key of the identity provider has its kid and alg; if the key is new, it is known within seconds")

// isJWT reports whether a secret has the shape of a JWT: three parts with dots between them. No secret of a token has a dot.
func isJWT(secret string) bool {
	return strings.Count(secret, ".") == 2 && strings.HasPrefix(secret, "ey")
}

// signed is whom a JWT makes known, for whom grants say what they may do.
type signed struct {
	name    string
	values  []string // of the claim of grants
	expires time.Time
	// stands reports whether the provider still publishes the key that signed the JWT.
	stands func() bool
}

// verify returns whom a JWT makes known. Other errors than ErrExpired are ErrBadJWT.
func (p *Provider) verify(text string) (*signed, error) {
	if len(text) > MaxJWT || strings.ContainsAny(text, "\r\n") { // the decoder skips line ends
		return nil, fmt.Errorf("%w: it has line ends, or more than %d bytes", ErrBadJWT, MaxJWT)
	}
	var kid, algorithm string
	var key any
	claims := jwt.MapClaims{}
	_, err := p.parser.ParseWithClaims(text, claims, func(t *jwt.Token) (any, error) {
		if _, critical := t.Header["crit"]; critical {
			return nil, errors.New("its header has crit, which is not supported")
		}
		kid, _ = t.Header["kid"].(string)
		algorithm = t.Method.Alg()
		if key = p.options.Keys.Find(kid, algorithm); key != nil {
			return key, nil
		}
		return nil, errNoKey
	})
	switch {
	case errors.Is(err, jwt.ErrTokenExpired):
		return nil, ErrExpired
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrBadJWT, err)
	}
	name, _ := claim(claims, p.options.NameClaim).(string)
	if !printable(name) {
		return nil, fmt.Errorf("%w: want the claim %s with a name of 1 to %d bytes that can be printed", ErrBadJWT, p.options.NameClaim, maxName)
	}
	expires, err := claims.GetExpirationTime()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadJWT, err)
	}
	return &signed{
		name: JWTPrefix + name, values: values(claim(claims, p.options.GrantClaim)), expires: expires.Add(ClockSkew),
		stands: func() bool { return sameKey(key, p.options.Keys.Find(kid, algorithm)) },
	}, nil
}

// sameKey reports whether two public keys are the same; none is the same as nil.
func sameKey(key, now any) bool {
	of, is := key.(interface {
		Equal(other crypto.PublicKey) bool
	})
	return is && now != nil && of.Equal(now)
}

// maxName is the most bytes of a name that is not a token's.
const maxName = 256

// printable reports whether a name can be that of a principal.
func printable(name string) bool {
	return name != "" && len(name) <= maxName && utf8.ValidString(name) && !strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) })
}

// claim returns a claim; nil if there is none. A name with dots that is a claim itself counts first.
func claim(claims map[string]any, path string) any {
	if found, has := claims[path]; has {
		return found
	}
	outer, inner, nested := strings.Cut(path, ".")
	if object, is := claims[outer].(map[string]any); nested && is {
		return claim(object, inner)
	}
	return nil
}

// values returns the texts of a claim.
func values(of any) []string {
	switch of := of.(type) {
	case string:
		return strings.Fields(of)
	case []any:
		var texts []string
		for _, value := range of {
			if text, is := value.(string); is {
				texts = append(texts, text)
			}
		}
		return texts
	}
	return nil
}
