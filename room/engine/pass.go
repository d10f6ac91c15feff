package engine

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/sluice-project/sluice/room"
)

// Pass is the right to be inside a room until a time. As text it is a JWT that is
// signed with Ed25519 (alg EdDSA, kid the key's ID), with the claims iss ("sluice"), sub
// (the number), room, gen (the generation), epoch, iat and exp, in seconds with up to
// three decimals, ticket (the ticket's fingerprint), client if it is bound to one, and proven
// if the visitor has passed a challenge. Other services can check it with the keys of [Keyring.JWKS], but do not
// see that it was revoked, or released.
type Pass struct {
	Room       string
	Generation string
	// Number is the visitor's.
	Number int64
	// Epoch is the room's when the pass was signed: the pass is void in a later one.
	Epoch int64
	// IssuedAt and ExpiresAt are to the millisecond.
	IssuedAt, ExpiresAt time.Time
	// Client is the ClientHash of the address that the pass is bound to; zero: to none.
	Client [4]byte
	// Fingerprint is that of the visitor's ticket; 0 in passes of earlier releases.
	Fingerprint room.Fingerprint
	// Proven reports whether the visitor has passed a challenge.
	Proven bool
}

func (p *Pass) bearer() room.Bearer { return room.Bearer{Number: p.Number, Fingerprint: p.Fingerprint} }

// ErrBadPass: the pass is not one of this room, no key of the ring signed it, or it
// has expired.
var ErrBadPass = errors.New("the pass is not valid in this room")

const (
	passIssuer = "sluice"
	// maxPassText is the most bytes of a pass.
	maxPassText = 1024
)

// passClaims are the claims of a pass's JWT.
type passClaims struct {
	Issuer     string     `json:"iss"`
	Subject    string     `json:"sub"`
	Room       string     `json:"room"`
	Generation string     `json:"gen"`
	Epoch      int64      `json:"epoch"`
	IssuedAt   jwtSeconds `json:"iat"`
	ExpiresAt  jwtSeconds `json:"exp"`
	Client     string     `json:"client,omitempty"`
	Proven     bool       `json:"proven,omitempty"`
	// Ticket is a number, so that passes stay short.
	Ticket room.Fingerprint `json:"ticket,omitempty"`
}

// SignPass signs a pass and returns it as text. The room's name and generation replace
// those of the pass.
func (k *Keyring) SignPass(r *Room, p Pass) (string, error) {
	claims := passClaims{
		passIssuer, strconv.FormatInt(p.Number, 10), r.Name, r.Generation, p.Epoch,
		jwtSeconds(p.IssuedAt.UnixMilli()), jwtSeconds(p.ExpiresAt.UnixMilli()), "", p.Proven, p.Fingerprint,
	}
	if p.Client != [4]byte{} {
		claims.Client = hex.EncodeToString(p.Client[:])
	}
	if text, known := k.verified.signed(claims); known {
		return text, nil
	}
	token := jwt.NewWithClaims(jwt.SigningMethodEdDSA, claims)
	token.Header["kid"] = k.newest.text
	text, err := token.SignedString(k.newest.private)
	if err != nil {
		return "", err
	}
	if len(text) > maxPassText {
		return "", fmt.Errorf("a pass of %d bytes is too long", len(text))
	}
	// It will be checked here soon.
	k.verified.put(text, claims.pass(p.Number))
	k.verified.sign(claims, text)
	return text, nil
}

// ParsePass returns the pass of a text, if it is of the room, a key of the ring signed it,
// and it has not expired at now; otherwise an ErrBadPass with the reason. With a zero now
// it may have expired: for callers that ask the store anyway. It does not compare the
// epoch.
func (k *Keyring) ParsePass(r *Room, text string, now time.Time) (Pass, error) {
	pass, known := k.verified.get(text)
	if !known {
		var err error
		if pass, err = k.verifyPass(text); err != nil {
			return Pass{}, err
		}
		k.verified.put(text, pass)
	}
	switch {
	case pass.Room != r.Name:
		return Pass{}, fmt.Errorf("%w: it is of another room", ErrBadPass)
	case pass.Generation != r.Generation:
		return Pass{}, fmt.Errorf("%w: it is of a room of the same name that was removed", ErrBadPass)
	case !now.IsZero() && !now.Before(pass.ExpiresAt):
		return Pass{}, fmt.Errorf("%w: it has expired", ErrBadPass)
	}
	return pass, nil
}

// passParser accepts one algorithm only: a token does not choose how it is checked.
// ParsePass checks the claims, each time.
var passParser = jwt.NewParser(
	jwt.WithValidMethods([]string{jwt.SigningMethodEdDSA.Alg()}), jwt.WithStrictDecoding(), jwt.WithoutClaimsValidation())

// verifyPass checks the signature, and that the claims are those of a pass.
func (k *Keyring) verifyPass(text string) (Pass, error) {
	if len(text) > maxPassText || strings.ContainsAny(text, "\r\n") {
		return Pass{}, ErrBadPass
	}
	var claims passClaims
	_, err := passParser.ParseWithClaims(text, &claims, func(token *jwt.Token) (any, error) {
		kid, _ := token.Header["kid"].(string)
		id, ok := parseKeyID(kid)
		if key := k.keys[id]; ok && key != nil {
			return key.public, nil
		}
		return nil, errors.New("no key of the ring signed it")
	})
	if err != nil {
		return Pass{}, fmt.Errorf("%w: %w", ErrBadPass, err)
	}
	number, err := strconv.ParseInt(claims.Subject, 10, 64)
	if err != nil || claims.Issuer != passIssuer || claims.ExpiresAt <= 0 {
		return Pass{}, fmt.Errorf("%w: its claims are not those of a pass", ErrBadPass)
	}
	return claims.pass(number), nil
}

func (c *passClaims) pass(number int64) Pass {
	p := Pass{
		Room: c.Room, Generation: c.Generation, Number: number, Epoch: c.Epoch,
		IssuedAt: time.UnixMilli(int64(c.IssuedAt)).UTC(), ExpiresAt: time.UnixMilli(int64(c.ExpiresAt)).UTC(), Proven: c.Proven,
		Fingerprint: c.Ticket,
	}
	client, _ := hex.DecodeString(c.Client) // it is signed
	copy(p.Client[:], client)
	return p
}

// jwtSeconds is a time of a JWT, in milliseconds since 1970.
type jwtSeconds int64

// MarshalJSON writes seconds, with decimals only if there are some.
func (s jwtSeconds) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, float64(s)/1000, 'f', -1, 64), nil
}

// UnmarshalJSON reads seconds.
func (s *jwtSeconds) UnmarshalJSON(text []byte) error {
	seconds, err := strconv.ParseFloat(string(text), 64)
	if err != nil || !(math.Abs(seconds) < 1<<40) {
		return fmt.Errorf("%.40s is not a time in seconds", text)
	}
	*s = jwtSeconds(math.Round(seconds * 1000))
	return nil
}

// The methods of jwt.Claims, which the parser does not use: see passParser.

// GetExpirationTime returns exp.
func (c passClaims) GetExpirationTime() (*jwt.NumericDate, error) { return c.ExpiresAt.date(), nil }

// GetIssuedAt returns iat.
func (c passClaims) GetIssuedAt() (*jwt.NumericDate, error) { return c.IssuedAt.date(), nil }

// GetNotBefore returns nothing: a pass holds at once.
func (c passClaims) GetNotBefore() (*jwt.NumericDate, error) { return nil, nil }

// GetIssuer returns iss.
func (c passClaims) GetIssuer() (string, error) { return c.Issuer, nil }

// GetSubject returns sub.
func (c passClaims) GetSubject() (string, error) { return c.Subject, nil }

// GetAudience returns nothing: a pass is for all who check it.
func (c passClaims) GetAudience() (jwt.ClaimStrings, error) { return nil, nil }

func (s jwtSeconds) date() *jwt.NumericDate { return &jwt.NumericDate{Time: time.UnixMilli(int64(s))} }
