package room

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"pgregory.net/rapid"
)

func signPass(t testing.TB, ring *Keyring, r *Room, p Pass) string {
	t.Helper()
	text, err := ring.SignPass(r, p)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func testPass(r *Room) Pass {
	return Pass{r.Name, r.Generation, 42, r.Epoch, keyTime, keyTime.Add(time.Minute)}
}

func TestPassRoundTrip(t *testing.T) {
	r := testRoom("shop", "generation")
	old, both := testRing(t, testKey(1)), testRing(t, testKey(1), testKey(2))
	rapid.Check(t, func(t *rapid.T) {
		pass := Pass{r.Name, r.Generation, rapid.Int64().Draw(t, "number"), rapid.Int64().Draw(t, "epoch"), drawTime(t, "from"), drawTime(t, "to").Add(time.Millisecond)}
		for _, ring := range []*Keyring{old, both} {
			text, err := ring.SignPass(r, pass)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := both.verifyPass(text); err != nil || got != pass {
				t.Fatalf("%+v is verified to be %+v, %v", pass, got, err)
			}
			for range 2 { // the second time it is remembered
				if got, err := both.ParsePass(r, text, pass.ExpiresAt.Add(-time.Millisecond)); err != nil || got != pass {
					t.Fatalf("%+v became %+v, %v", pass, got, err)
				}
				if got, err := both.ParsePass(r, text, pass.ExpiresAt); !errors.Is(err, ErrBadPass) {
					t.Fatalf("%+v holds when it has expired: %+v, %v", pass, got, err)
				}
				if got, err := both.ParsePass(r, text, time.Time{}); err != nil || got != pass {
					t.Fatalf("%+v at no time is %+v, %v", pass, got, err)
				}
			}
		}
	})
}

// What other services see: the claims of the contract, and a signature that the
// published keys verify.
func TestPassClaims(t *testing.T) {
	ring, r := testRing(t, testKey(1), testKey(2)), testRoom("shop", "generation")
	text := signPass(t, ring, r, testPass(r))
	parts := strings.Split(text, ".")
	var header, claims map[string]any
	for i, into := range []*map[string]any{&header, &claims} {
		raw, err := base64.RawURLEncoding.DecodeString(parts[i])
		if err != nil || json.Unmarshal(raw, into) != nil {
			t.Fatal(parts[i], err)
		}
	}
	if want := map[string]any{"alg": "EdDSA", "typ": "JWT", "kid": testKey(2).ID}; fmt.Sprint(header) != fmt.Sprint(want) {
		t.Errorf("the header is %v, want %v", header, want)
	}
	raw, _ := base64.RawURLEncoding.DecodeString(parts[1])
	const want = `{"iss":"sluice","sub":"42","room":"shop","gen":"generation","epoch":3,"iat":1900000000.123,"exp":1900000060.123}`
	if string(raw) != want {
		t.Errorf("the claims are %s, want %s", raw, want)
	}

	var set struct{ Keys []struct{ Kid, X string } }
	if err := json.Unmarshal(ring.JWKS(), &set); err != nil {
		t.Fatal(err)
	}
	_, err := jwt.Parse(text, func(token *jwt.Token) (any, error) {
		for _, key := range set.Keys {
			if key.Kid == token.Header["kid"] {
				x, err := base64.RawURLEncoding.DecodeString(key.X)
				return ed25519.PublicKey(x), err
			}
		}
		return nil, errors.New("unknown key")
	}, jwt.WithIssuer("sluice"), jwt.WithTimeFunc(func() time.Time { return keyTime.Add(time.Second) }))
	if err != nil {
		t.Errorf("another service refuses it: %v", err)
	}
}

func TestPassRefused(t *testing.T) {
	ring, r := testRing(t, testKey(1), testKey(2)), testRoom("shop", "generation")
	text := signPass(t, ring, r, testPass(r))
	signing := ring.newest
	// forge signs claims as somebody else may.
	forge := func(method jwt.SigningMethod, key any, kid any, claims jwt.Claims) string {
		token := jwt.NewWithClaims(method, claims)
		token.Header["kid"] = kid
		forged, err := token.SignedString(key)
		if err != nil {
			t.Fatal(err)
		}
		return forged
	}
	claims := passClaims{"sluice", "42", r.Name, r.Generation, 3, jwtSeconds(keyTime.UnixMilli()), jwtSeconds(keyTime.Add(time.Minute).UnixMilli())}
	with := func(change func(*passClaims)) jwt.Claims {
		changed := claims
		change(&changed)
		return changed
	}
	signed := func(claims jwt.Claims) string {
		return forge(jwt.SigningMethodEdDSA, signing.private, signing.text, claims)
	}
	_, foreign, _ := ed25519.GenerateKey(nil)
	if _, err := ring.ParsePass(r, signed(claims), keyTime); err != nil {
		t.Fatalf("the claims as they are: %v", err)
	}

	for name, test := range map[string]struct {
		ring *Keyring
		room *Room
		text string
	}{
		"another room":              {ring, testRoom("shops", "generation"), text},
		"the room made anew":        {ring, testRoom("shop", "generation2"), text},
		"an unknown key":            {testRing(t, testKey(1)), r, text},
		"a key of that ID":          {testRing(t, SigningKey{ID: testKey(2).ID, Secret: testKey(3).Secret}), r, text},
		"alg none":                  {ring, r, forge(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, signing.text, claims)},
		"HS256 with the public key": {ring, r, forge(jwt.SigningMethodHS256, []byte(signing.public), signing.text, claims)},
		"another's key":             {ring, r, forge(jwt.SigningMethodEdDSA, foreign, signing.text, claims)},
		"no kid":                    {ring, r, forge(jwt.SigningMethodEdDSA, signing.private, nil, claims)},
		"a kid that is a number":    {ring, r, forge(jwt.SigningMethodEdDSA, signing.private, 5, claims)},
		"a kid in capitals":         {ring, r, forge(jwt.SigningMethodEdDSA, signing.private, strings.ToUpper(signing.text), claims)},
		"another issuer":            {ring, r, signed(with(func(c *passClaims) { c.Issuer = "slice" }))},
		"no number":                 {ring, r, signed(with(func(c *passClaims) { c.Subject = "me" }))},
		"no end":                    {ring, r, signed(jwt.MapClaims{"iss": "sluice", "sub": "42", "room": "shop", "gen": "generation"})},
		"an end in words":           {ring, r, signed(jwt.MapClaims{"iss": "sluice", "sub": "42", "room": "shop", "gen": "generation", "exp": "never"})},
		"an end out of all bounds":  {ring, r, signed(jwt.MapClaims{"iss": "sluice", "sub": "42", "room": "shop", "gen": "generation", "exp": 1e30})},
		"empty":                     {ring, r, ""},
		"two parts":                 {ring, r, text[:strings.LastIndexByte(text, '.')]},
		"no signature":              {ring, r, text[:strings.LastIndexByte(text, '.')+1]},
		"with a line end":           {ring, r, text + "\n"},
		"a ticket":                  {ring, r, ring.SignTicket(r, Ticket{Number: 42})},
		"very long":                 {ring, r, strings.Repeat("a", 1<<20) + ".b.c"},
	} {
		if got, err := test.ring.ParsePass(test.room, test.text, keyTime); !errors.Is(err, ErrBadPass) || got != (Pass{}) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		// What was verified before does not help it.
		if got, err := test.ring.ParsePass(test.room, test.text, time.Time{}); !errors.Is(err, ErrBadPass) {
			t.Errorf("%s, again: %+v, %v", name, got, err)
		}
	}
}

// No pass with one bit changed is a pass, also when the pass itself is remembered.
func TestPassForged(t *testing.T) {
	ring, r := testRing(t, testKey(1)), testRoom("shop", "generation")
	text := signPass(t, ring, r, testPass(r))
	if _, err := ring.ParsePass(r, text, keyTime); err != nil {
		t.Fatal(err)
	}
	for bit := range len(text) * 8 {
		forged := []byte(text)
		forged[bit/8] ^= 1 << (bit % 8)
		if got, err := ring.ParsePass(r, string(forged), keyTime); !errors.Is(err, ErrBadPass) {
			t.Fatalf("with bit %d changed: %+v, %v", bit, got, err)
		}
	}
	for length := range len(text) {
		if got, err := ring.ParsePass(r, text[:length], keyTime); !errors.Is(err, ErrBadPass) {
			t.Fatalf("%d bytes of it: %+v, %v", length, got, err)
		}
	}
	if n := ring.verified.passes.recent.Len(); n != 1 {
		t.Errorf("%d passes are remembered, want the good one", n)
	}
}

// Only the longest possible room and generation are signed, not any.
func TestPassIsBounded(t *testing.T) {
	ring := testRing(t, testKey(1))
	r := testRoom(strings.Repeat("n", maxName), strings.Repeat("g", 64))
	pass := testPass(r)
	pass.Number, pass.Epoch = -1<<63, -1<<63
	if _, err := ring.ParsePass(r, signPass(t, ring, r, pass), keyTime); err != nil {
		t.Error(err)
	}
	if text, err := ring.SignPass(testRoom("shop", strings.Repeat("g", 1000)), pass); err == nil {
		t.Errorf("a pass of %d bytes was signed", len(text))
	}
}

func FuzzParsePass(f *testing.F) {
	ring, r := testRing(f, testKey(1)), testRoom("shop", "generation")
	text := signPass(f, ring, r, testPass(r))
	f.Add(text)
	f.Add("eyJhbGciOiJub25lIn0.e30.")
	f.Add("a.b.c")
	f.Fuzz(func(t *testing.T, forged string) {
		if got, err := ring.ParsePass(r, forged, keyTime); forged != text && !errors.Is(err, ErrBadPass) {
			t.Fatalf("%q is %+v, %v", forged, got, err)
		}
	})
}

// Seconds are those that were written, to the millisecond.
func FuzzJWTSeconds(f *testing.F) {
	f.Add("1900000000.123")
	f.Add("-1e9")
	f.Add("NaN")
	f.Add("Infinity")
	f.Fuzz(func(t *testing.T, text string) {
		var s, again jwtSeconds
		if s.UnmarshalJSON([]byte(text)) != nil {
			return
		}
		written, err := s.MarshalJSON()
		if err != nil || !json.Valid(written) || again.UnmarshalJSON(written) != nil || again != s {
			t.Fatalf("%q is %d, written %s, then %d, %v", text, s, written, again, err)
		}
	})
}

func TestLRU(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 5).Draw(t, "limit")
		cache := newLRU[int, int](limit)
		var model []int // keys, the last used last; the value is the key's double
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			key := rapid.IntRange(0, 8).Draw(t, "key")
			at := -1
			for i, k := range model {
				if k == key {
					at = i
				}
			}
			got := cache.get(key)
			if (got != nil) != (at >= 0) || got != nil && *got != 2*key {
				t.Fatalf("key %d of %v is %v", key, model, got)
			}
			if at >= 0 {
				model = append(append(model[:at:at], model[at+1:]...), key)
			} else if rapid.Bool().Draw(t, "add") {
				*cache.getOrAdd(key) = 2 * key
				if model = append(model, key); len(model) > limit {
					model = model[1:]
				}
			}
			if len(cache.byKey) != len(model) || cache.recent.Len() != len(model) {
				t.Fatalf("it has %d and %d, want %v", len(cache.byKey), cache.recent.Len(), model)
			}
		}
	})
}

func BenchmarkSignPass(b *testing.B) {
	ring, r := testRing(b, testKey(1)), testRoom("black-friday", "0123456789abcdef0123456789abcdef")
	for b.Loop() {
		signPass(b, ring, r, testPass(r))
	}
}

func BenchmarkParsePass(b *testing.B) {
	ring, r := testRing(b, testKey(1)), testRoom("black-friday", "0123456789abcdef0123456789abcdef")
	text := signPass(b, ring, r, testPass(r))
	b.Run("new", func(b *testing.B) {
		for b.Loop() {
			if _, err := ring.verifyPass(text); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("remembered", func(b *testing.B) {
		for b.Loop() {
			if _, err := ring.ParsePass(r, text, keyTime); err != nil {
				b.Fatal(err)
			}
		}
	})
}
