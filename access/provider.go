package access

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/golang-jwt/jwt/v5"

	"github.com/sluice-project/sluice/access/jwks"
)

const (
	// JWTPrefix begins the names of those whom an identity provider makes known. No token's name has a colon.
	JWTPrefix = "jwt:"
	// MaxJWT is the most bytes of a JWT.
	MaxJWT = 16 << 10
	// ClockSkew is by how much the clock of an identity provider may be off.
	ClockSkew = 30 * time.Second

	maxJWTName = 256
)

// ProviderOptions configure a Provider. All fields are needed.
type ProviderOptions struct {
	// Issuer and Audience are what the claims iss and aud must have, byte for byte.
	Issuer, Audience string
	// Keys is the URL of the provider's key set, or the path of a file with it.
	Keys string
	// NameClaim is the claim with the name of somebody, a text; GrantClaim that with the values that grants ask for: a
	// list of texts, or one text with spaces between them. A dot leads into an object, as in realm_access.roles.
	NameClaim, GrantClaim string
	// Grants say what they may do: the first that matches.
	Grants []Grant
	// Logger gets failures to read the keys.
	Logger *slog.Logger
}

// Provider knows who has a JWT of an identity provider.
type Provider struct {
	options ProviderOptions
	keys    *jwks.Keys
	parser  *jwt.Parser
}

// NewProvider returns a provider. It knows nobody until Accounts with it have started.
func NewProvider(options ProviderOptions) *Provider {
	return &Provider{options: options, keys: jwks.New(options.Keys, options.Logger), parser: jwt.NewParser(
		jwt.WithValidMethods([]string{jwks.RS256, jwks.ES256, jwks.EdDSA}), jwt.WithStrictDecoding(),
		jwt.WithIssuer(options.Issuer), jwt.WithAudience(options.Audience), jwt.WithExpirationRequired(), jwt.WithLeeway(ClockSkew))}
}

// ErrBadJWT means that a JWT makes nobody known.
var ErrBadJWT = errors.New("access: the JWT is not valid")

var errNoKey = errors.New("no key of the identity provider has its kid and alg; if the key is new, it is known within seconds")

// isJWT reports whether a secret has the shape of a JWT: three parts with dots between them. No secret of a token has a dot.
func isJWT(secret string) bool {
	return strings.Count(secret, ".") == 2 && strings.HasPrefix(secret, "ey")
}

// verify returns whom a JWT makes known, without roles if no grant matches. Other errors than ErrExpired are ErrBadJWT.
func (p *Provider) verify(text string) (*Principal, error) {
	if len(text) > MaxJWT || strings.ContainsAny(text, "\r\n") { // the decoder skips line ends
		return nil, fmt.Errorf("%w: it has line ends, or more than %d bytes", ErrBadJWT, MaxJWT)
	}
	var id jwks.ID
	claims := jwt.MapClaims{}
	_, err := p.parser.ParseWithClaims(text, claims, func(t *jwt.Token) (any, error) {
		if _, critical := t.Header["crit"]; critical {
			return nil, errors.New("its header has crit, which is not supported")
		}
		kid, _ := t.Header["kid"].(string)
		id = jwks.ID{KID: kid, Algorithm: t.Method.Alg()}
		if key := p.keys.Find(id); key != nil {
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
	if name == "" || len(name) > maxJWTName || !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return nil, fmt.Errorf("%w: want the claim %s with a name of 1 to %d bytes that can be printed", ErrBadJWT, p.options.NameClaim, maxJWTName)
	}
	expires, err := claims.GetExpirationTime()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadJWT, err)
	}
	who := &Principal{Name: JWTPrefix + name, Expires: expires.Add(ClockSkew), stands: func() bool { return p.keys.Find(id) != nil }}
	grant(who, p.options.Grants, values(claim(claims, p.options.GrantClaim)))
	return who, nil
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

// follow keeps the keys.
func (p *Provider) follow(ctx context.Context) error { return p.keys.Follow(ctx) }

// Grant gives roles and limits to those who have a name, or a value of a claim.
type Grant struct {
	// Name is that of a principal, such as jwt:alice; Claim a value of the claim of grants. One of them is set.
	Name, Claim string
	// Principal has the roles and the limits.
	Principal
}

// ParseGrant reads a grant: name:NAME or claim:VALUE, then roles and limits, separated by spaces, as in
// "claim:tills producer topic=orders*". Limits are tenant, type, room, topic and group, each as often as needed.
func ParseGrant(text string) (Grant, error) {
	var g Grant
	words := strings.Fields(text)
	if len(words) == 0 {
		return g, errors.New(`want name:NAME or claim:VALUE, then roles and limits, as in "claim:tills producer topic=orders*"`)
	}
	kind, who, _ := strings.Cut(words[0], ":")
	switch {
	case kind == "name" && who != "":
		g.Name = who
	case kind == "claim" && who != "":
		g.Claim = who
	default:
		return g, fmt.Errorf("%q: want name:NAME, such as name:jwt:alice, or claim:VALUE", words[0])
	}
	limits := map[string]*[]string{"tenant": &g.Tenants, "type": &g.Types, "room": &g.Rooms, "topic": &g.Topics, "group": &g.Groups}
	for _, word := range words[1:] {
		field, limit, limited := strings.Cut(word, "=")
		switch of := limits[field]; {
		case !limited:
			g.Roles = append(g.Roles, Role(word))
		case of == nil:
			return g, fmt.Errorf("%q: want a role, or tenant=, type=, room=, topic= or group= with a name", word)
		default:
			*of = append(*of, limit)
		}
	}
	checked := g.Principal
	checked.Name = "grant"
	return g, checked.validate(time.Time{})
}

// grant gives somebody the roles and limits of the first grant that matches.
func grant(who *Principal, grants []Grant, claims []string) {
	for i := range grants {
		g := &grants[i]
		if g.Name == who.Name || g.Claim != "" && slices.Contains(claims, g.Claim) {
			who.Roles, who.Tenants, who.Types, who.Rooms, who.Topics, who.Groups = g.Roles, g.Tenants, g.Types, g.Rooms, g.Topics, g.Groups
			return
		}
	}
}
