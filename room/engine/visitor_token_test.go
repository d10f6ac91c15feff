package engine

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"

	"github.com/sluice-project/sluice/room"
)

var (
	shopSecret  = strings.Repeat("s", 32)
	otherSecret = strings.Repeat("o", 512)
	shopKey     = ed25519.NewKeyFromSeed([]byte(strings.Repeat("k", 32)))
	shopPublic  = base64.StdEncoding.EncodeToString(shopKey.Public().(ed25519.PublicKey))
)

func tokenKeys(t testing.TB, texts ...string) *TokenKeys {
	t.Helper()
	keys, err := ParseTokenKeys(texts)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func signToken(t testing.TB, method jwt.SigningMethod, key any, claims jwt.MapClaims, header ...string) string {
	t.Helper()
	token := jwt.NewWithClaims(method, claims)
	for i := 0; i < len(header); i += 2 {
		token.Header[header[i]] = header[i+1]
	}
	text, err := token.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// claimsOf returns valid claims, with changes: names and values, nil removes.
func claimsOf(changes ...any) jwt.MapClaims {
	claims := jwt.MapClaims{"sub": "alice", "room": "shop", "exp": keyTime.Unix() + 60}
	for i := 0; i < len(changes); i += 2 {
		claims[changes[i].(string)] = changes[i+1]
		if changes[i+1] == nil {
			delete(claims, changes[i].(string))
		}
	}
	return claims
}

func TestVisitorToken(t *testing.T) {
	keys := tokenKeys(t, "HS256:"+otherSecret, "EdDSA:"+shopPublic, "HS256:"+shopSecret)
	now := keyTime.Unix()
	hs256 := func(changes ...any) string {
		return signToken(t, jwt.SigningMethodHS256, []byte(shopSecret), claimsOf(changes...))
	}
	for _, test := range []struct{ name, token, why string }{
		{"HS256", hs256(), ""},
		{"the other secret", signToken(t, jwt.SigningMethodHS256, []byte(otherSecret), claimsOf()), ""},
		{"EdDSA", signToken(t, jwt.SigningMethodEdDSA, shopKey, claimsOf()), ""},
		{"for any room, with more claims", hs256("room", nil, "name", "Alice", "aud", []string{"shop"}, "iat", now, "nbf", now), ""},
		{"a clock that is behind", hs256("exp", now-29), ""},
		{"a clock that is ahead", hs256("exp", now+24*3600+29, "iat", now+29), ""},
		{"the longest key", hs256("sub", strings.Repeat("a", room.MaxVisitorKey)), ""},

		{"expired", hs256("exp", now-30), "it has expired"},
		{"no end", hs256("exp", nil), "it has no exp"},
		{"an end that is no time", hs256("exp", "tomorrow"), "not a time in seconds"},
		{"a far end", hs256("exp", now+24*3600+31), "its exp is more than 24 hours away"},
		{"from the future", hs256("iat", now+31), "it is from the future"},
		{"not yet", hs256("nbf", now+31), "it is from the future"},
		{"another room", hs256("room", "fair"), "it is for another room"},
		{"nobody", hs256("sub", nil), "it has no sub"},
		{"a number", hs256("sub", 7), "cannot unmarshal number"},
		{"a long key", hs256("sub", strings.Repeat("a", room.MaxVisitorKey+1)), "has 257 bytes: a key has at most 256"},
		{"another's signature", signToken(t, jwt.SigningMethodHS256, []byte(strings.Repeat("x", 32)), claimsOf()), "signature is invalid"},
		{"the public key as a secret", signToken(t, jwt.SigningMethodHS256, []byte(shopKey.Public().(ed25519.PublicKey)), claimsOf()), "signature is invalid"},
		{"its text as a secret", signToken(t, jwt.SigningMethodHS256, []byte(shopPublic), claimsOf()), "signature is invalid"},
		{"no signature", signToken(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, claimsOf()), "signing method none is invalid"},
		{"another hash", signToken(t, jwt.SigningMethodHS512, []byte(shopSecret), claimsOf()), "signing method HS512 is invalid"},
		{"critical extension", signToken(t, jwt.SigningMethodHS256, []byte(shopSecret), claimsOf(), "crit", "exp"), "crit"},
		{"two lines", hs256() + "\n", "it has line ends"},
		{"too long", hs256("pad", strings.Repeat("a", maxTokenText)), "at most 2048"},
		{"no token", "a.b.c", "malformed"},
		{"null", signText(t, "null"), "it has no sub"},
	} {
		visitor, _, err := keys.Verify(test.token, "shop", keyTime)
		if test.why == "" {
			if err != nil || !strings.HasPrefix(visitor, "a") {
				t.Errorf("%s: %q, %v", test.name, visitor, err)
			}
			continue
		}
		if visitor != "" || !errors.Is(err, ErrBadToken) || !strings.Contains(err.Error(), test.why) {
			t.Errorf("%s: %q, %v; want ErrBadToken: %s", test.name, visitor, err, test.why)
		}
	}
	// A key verifies by its own algorithm only.
	if _, _, err := tokenKeys(t, "EdDSA:"+shopPublic).Verify(hs256(), "shop", keyTime); err == nil || !strings.Contains(err.Error(), "no key for HS256") {
		t.Error(err)
	}
	if _, _, err := (*TokenKeys)(nil).Verify(hs256(), "shop", keyTime); !errors.Is(err, ErrBadToken) || !strings.Contains(err.Error(), "room.token_keys") {
		t.Error(err)
	}
}

// signText returns a signed token whose claims are any text.
func signText(t testing.TB, claims string) string {
	t.Helper()
	text := "eyJhbGciOiJIUzI1NiJ9." + base64.RawURLEncoding.EncodeToString([]byte(claims))
	signature, err := jwt.SigningMethodHS256.Sign(text, []byte(shopSecret))
	if err != nil {
		t.Fatal(err)
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

func TestParseTokenKeys(t *testing.T) {
	der, err := x509.MarshalPKIXPublicKey(shopKey.Public())
	if err != nil {
		t.Fatal(err)
	}
	token := signToken(t, jwt.SigningMethodEdDSA, shopKey, claimsOf())
	for _, text := range []string{shopPublic, strings.TrimRight(shopPublic, "="), base64.RawURLEncoding.EncodeToString(shopKey.Public().(ed25519.PublicKey)), base64.StdEncoding.EncodeToString(der)} {
		if _, _, err := tokenKeys(t, "EdDSA:"+text).Verify(token, "shop", keyTime); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	if keys := tokenKeys(t); keys != nil {
		t.Errorf("no keys are %v", keys)
	}
	for _, test := range []struct{ text, why string }{
		{shopSecret, "want HS256:SECRET or EdDSA:PUBLIC-KEY"},
		{"RS256:" + shopSecret, "want HS256:SECRET or EdDSA:PUBLIC-KEY"},
		{"HS256:" + shopSecret[1:], "a secret of 31 bytes: want HS256: and 32 to 512"},
		{"HS256:" + otherSecret + "o", "a secret of 513 bytes"},
		{"EdDSA:" + shopPublic[4:], "want EdDSA: and an Ed25519 public key"},
		{"EdDSA:" + shopSecret, "want EdDSA: and an Ed25519 public key"},
		{"EdDSA:!", "want EdDSA: and an Ed25519 public key"},
	} {
		_, err := ParseTokenKeys([]string{"HS256:" + otherSecret, test.text})
		if err == nil || !strings.HasPrefix(err.Error(), "number 2: "+test.why) || strings.Contains(err.Error(), "sss") {
			t.Errorf("%s: %v", test.text, err)
		}
	}
	if _, err := ParseTokenKeys(make([]string, MaxTokenKeys+1)); err == nil {
		t.Error("nine keys were accepted")
	}
}

// Only what was signed is accepted, and nothing panics.
func FuzzVisitorToken(f *testing.F) {
	keys := tokenKeys(f, "HS256:"+shopSecret, "EdDSA:"+shopPublic)
	good := map[string]bool{
		signToken(f, jwt.SigningMethodHS256, []byte(shopSecret), claimsOf()): true,
		signToken(f, jwt.SigningMethodEdDSA, shopKey, claimsOf()):            true,
	}
	for text := range good {
		f.Add(text)
	}
	f.Add(signToken(f, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, claimsOf()))
	f.Add(signText(f, "null"))
	f.Fuzz(func(t *testing.T, text string) {
		visitor, _, err := keys.Verify(text, "shop", keyTime)
		if good[text] != (err == nil) || err != nil && (visitor != "" || !errors.Is(err, ErrBadToken)) {
			t.Fatalf("%q is %q, %v", text, visitor, err)
		}
	})
}

// Claims of any form are refused, or within the bounds.
func FuzzTokenClaims(f *testing.F) {
	keys := tokenKeys(f, "HS256:"+shopSecret)
	for _, claims := range []string{
		`{"sub":"alice","exp":1900000060}`, `{"sub":"a","exp":1e308}`, `{"sub":"a","exp":NaN}`, `[]`, `{"sub":{},"exp":"1"}`, `{"exp":1,"exp":2}`,
	} {
		f.Add(claims)
	}
	f.Fuzz(func(t *testing.T, claims string) {
		token := signText(t, claims)
		visitor, _, err := keys.Verify(token, "shop", keyTime)
		if err == nil && (visitor == "" || len(visitor) > room.MaxVisitorKey) || err != nil && !errors.Is(err, ErrBadToken) {
			t.Fatalf("%q is %q, %v", claims, visitor, err)
		}
		if err != nil {
			return
		}
		if _, _, err := keys.Verify(token, "shop", keyTime.Add(MaxTokenLife+2*tokenSkew)); err == nil {
			t.Fatalf("%q is valid for longer than a day", claims)
		}
	})
}
