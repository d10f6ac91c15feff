package engine

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/sluice-project/sluice/room"
)

// TokenKeys verify the tokens by which a shop says who a visitor is, so that nobody takes
// the place of another by naming that visitor's key. A token is a JWT of at most 2,048
// bytes, signed with HS256 or Ed25519 (alg EdDSA), with the claims sub, the visitor's key,
// and exp, at most [MaxTokenLife] ahead; and optionally room, nbf and iat. TokenKeys are
// immutable, and safe for concurrent use; nil has no keys.
type TokenKeys struct {
	byAlgorithm map[string][]jwt.VerificationKey
}

const (
	// MaxTokenKeys is how many keys there may be: more than one while a shop changes its
	// key.
	MaxTokenKeys = 8
	// MaxTokenLife is how long a token may still be valid.
	MaxTokenLife = 24 * time.Hour
	// tokenSkew is by how much the clock of a shop may be off.
	tokenSkew = 30 * time.Second
	// maxTokenText is the most bytes of a token.
	maxTokenText = 2 << 10
	// The bytes of a secret for HS256, which RFC 7518 wants to be as long as the hash.
	minTokenSecret, maxTokenSecret = 32, 512
)

// ErrBadToken: the visitor's token is not valid in this room.
var ErrBadToken = errors.New("the visitor's token is not valid")

// ErrUninvited: the room is for visitors with a key only.
var ErrUninvited = errors.New("the room is by invitation: a visitor needs a key, or a token that the shop has signed")

// ErrNoToken: a visitor's key was given without the token that it needs.
var ErrNoToken = errors.New("a visitor's key needs a token that the shop has signed")

// ParseTokenKeys reads keys, each as HS256:SECRET, with a secret of 32 to 512 bytes, or as
// EdDSA:KEY, with the public key in base64: its 32 bytes, or what is between the first
// and the last line of its PEM file. There are no keys in an empty list: it returns nil.
// Errors do not show keys.
func ParseTokenKeys(texts []string) (*TokenKeys, error) {
	if len(texts) == 0 {
		return nil, nil
	}
	if len(texts) > MaxTokenKeys {
		return nil, fmt.Errorf("%d of them: want at most %d", len(texts), MaxTokenKeys)
	}
	keys := &TokenKeys{map[string][]jwt.VerificationKey{}}
	for i, text := range texts {
		algorithm, material, _ := strings.Cut(text, ":")
		key, err := parseTokenKey(algorithm, material)
		if err != nil {
			return nil, fmt.Errorf("number %d: %w", i+1, err)
		}
		keys.byAlgorithm[algorithm] = append(keys.byAlgorithm[algorithm], key)
	}
	return keys, nil
}

func parseTokenKey(algorithm, material string) (jwt.VerificationKey, error) {
	switch algorithm {
	case jwt.SigningMethodHS256.Alg():
		if n := len(material); n < minTokenSecret || n > maxTokenSecret {
			return nil, fmt.Errorf("a secret of %d bytes: want HS256: and %d to %d, such as those of openssl rand -hex 32", n, minTokenSecret, maxTokenSecret)
		}
		return []byte(material), nil
	case jwt.SigningMethodEdDSA.Alg():
		if key := parsePublicKey(material); key != nil {
			return key, nil
		}
		return nil, errors.New("want EdDSA: and an Ed25519 public key in base64, as between the first and the last line of its PEM file")
	}
	return nil, errors.New("want HS256:SECRET or EdDSA:PUBLIC-KEY")
}

// parsePublicKey returns an Ed25519 key; nil if the text is none.
func parsePublicKey(text string) ed25519.PublicKey {
	// A JWK has the URL's alphabet without padding, a PEM file the other one with it.
	plain := strings.TrimRight(strings.NewReplacer("-", "+", "_", "/").Replace(text), "=")
	raw, err := base64.RawStdEncoding.DecodeString(plain)
	if err != nil {
		return nil
	}
	if len(raw) == ed25519.PublicKeySize {
		return raw
	}
	parsed, err := x509.ParsePKIXPublicKey(raw)
	if err != nil {
		return nil
	}
	key, _ := parsed.(ed25519.PublicKey)
	return key
}

// tokenParser accepts two algorithms, each with keys of its own: a token does not choose how
// it is checked. Verify checks the claims.
var tokenParser = jwt.NewParser(
	jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg(), jwt.SigningMethodEdDSA.Alg()}),
	jwt.WithStrictDecoding(), jwt.WithoutClaimsValidation())

// Verify returns the visitor's key of a token, and the lane that it names, "" for none, if one of the keys signed it and it is valid
// at now in the room of that name; otherwise an ErrBadToken with the reason.
func (k *TokenKeys) Verify(text, room string, now time.Time) (visitorKey, lane string, err error) {
	switch {
	case k == nil:
		return "", "", fmt.Errorf("%w: there are no keys for tokens here; set room.token_keys", ErrBadToken)
	case len(text) > maxTokenText:
		return "", "", fmt.Errorf("%w: it has %d bytes, at most %d can be", ErrBadToken, len(text), maxTokenText)
	case strings.ContainsAny(text, "\r\n"): // The decoder skips them.
		return "", "", fmt.Errorf("%w: it has line ends", ErrBadToken)
	}
	var claims tokenClaims
	if _, err := tokenParser.ParseWithClaims(text, &claims, k.candidates); err != nil {
		return "", "", fmt.Errorf("%w: %w", ErrBadToken, err)
	}
	if why := claims.wrong(room, now); why != "" {
		return "", "", fmt.Errorf("%w: %s", ErrBadToken, why)
	}
	return claims.Subject, claims.Lane, nil
}

// candidates returns the keys that may have signed a token.
func (k *TokenKeys) candidates(token *jwt.Token) (any, error) {
	if _, critical := token.Header["crit"]; critical {
		return nil, errors.New("its header has crit, which is not supported")
	}
	keys := k.byAlgorithm[token.Method.Alg()]
	if len(keys) == 0 {
		return nil, fmt.Errorf("there is no key for %s here", token.Method.Alg())
	}
	return jwt.VerificationKeySet{Keys: keys}, nil
}

// tokenClaims are the claims of a visitor's token.
type tokenClaims struct {
	jwt.Claims `json:"-"` // The parser does not use its methods.

	Subject   string     `json:"sub"`
	Room      string     `json:"room"`
	Lane      string     `json:"lane"`
	ExpiresAt jwtSeconds `json:"exp"`
	NotBefore jwtSeconds `json:"nbf"`
	IssuedAt  jwtSeconds `json:"iat"`
}

// wrong says why the claims are not valid; "" if they are.
func (c *tokenClaims) wrong(room string, now time.Time) string {
	at := func(t jwtSeconds) time.Time { return time.UnixMilli(int64(t)) }
	switch err := checkKey(c.Subject); {
	case c.Subject == "":
		return "it has no sub, which is the visitor's key"
	case err != nil:
		return err.Error()
	case c.Room != "" && c.Room != room:
		return "it is for another room"
	case c.ExpiresAt <= 0:
		return "it has no exp"
	case !now.Before(at(c.ExpiresAt).Add(tokenSkew)):
		return "it has expired"
	case at(c.ExpiresAt).After(now.Add(MaxTokenLife + tokenSkew)):
		return "its exp is more than 24 hours away"
	case at(max(c.NotBefore, c.IssuedAt)).After(now.Add(tokenSkew)):
		return "it is from the future"
	}
	return ""
}

// WithTokenKeys makes the engine accept visitors' keys only with a token that one of these
// keys verifies. The default is none: whoever calls Enter is believed about the visitor's
// key, and tokens are refused.
func WithTokenKeys(keys *TokenKeys) Option { return func(e *Engine) { e.SetTokenKeys(keys) } }

// SetTokenKeys replaces the keys of [WithTokenKeys]; nil: none.
func (e *Engine) SetTokenKeys(keys *TokenKeys) { e.tokens.Store(keys) }

// whose returns the key and the lane of a visitor who enters; "" if there is none.
func (e *Engine) whose(name string, v room.Visit) (visitorKey, lane string, err error) {
	switch {
	case v.Token != "":
		visitorKey, lane, err = e.tokens.Load().Verify(v.Token, name, time.Now())
		if err == nil && v.Key != "" && v.Key != visitorKey {
			return "", "", fmt.Errorf("%w: its sub is another one than the visitor's key in the request", ErrBadToken)
		}
		return visitorKey, lane, err
	case v.Key != "" && e.tokens.Load() != nil:
		return "", "", ErrNoToken
	}
	return v.Key, "", checkKey(v.Key)
}
