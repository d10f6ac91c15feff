package engine

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

	"github.com/sluice-project/sluice/room"
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
	return Pass{Room: r.Name, Generation: r.Generation, Number: 42, Epoch: r.Epoch, IssuedAt: keyTime, ExpiresAt: keyTime.Add(time.Minute)}
}

func TestPassRoundTrip(t *testing.T) {
	r := testRoom("shop", "generation")
	old, both := testRing(t, testKey(1)), testRing(t, testKey(1), testKey(2))
	rapid.Check(t, func(t *rapid.T) {
		pass := Pass{
			r.Name, r.Generation, rapid.Int64().Draw(t, "number"), rapid.Int64().Draw(t, "epoch"), anyTime(t, "from"), anyTime(t, "to").Add(time.Millisecond),
			[4]byte{rapid.Byte().Draw(t, "client")}, room.Fingerprint(rapid.Uint16().Draw(t, "fingerprint")), rapid.Bool().Draw(t, "proven"),
		}
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

// Other services see the claims of the contract, and a signature that the
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

// forgePass signs claims as an attacker may.
func forgePass(t *testing.T, method jwt.SigningMethod, key, kid any, claims jwt.Claims) string {
	t.Helper()
	token := jwt.NewWithClaims(method, claims)
	token.Header["kid"] = kid
	forged, err := token.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return forged
}

// refusePass fails if a ring accepts a text, the first time or again.
func refusePass(t *testing.T, name string, ring *Keyring, r *Room, text string) {
	t.Helper()
	for _, now := range []time.Time{keyTime, {}} {
		if got, err := ring.ParsePass(r, text, now); !errors.Is(err, ErrBadPass) || got != (Pass{}) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestPassForgedSignature(t *testing.T) {
	ring, r := testRing(t, testKey(1), testKey(2)), testRoom("shop", "generation")
	claims := passClaims{"sluice", "42", r.Name, r.Generation, 3, jwtSeconds(keyTime.UnixMilli()), jwtSeconds(keyTime.Add(time.Minute).UnixMilli()), "", false, 0}
	signing := ring.newest
	_, foreign, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ring.ParsePass(r, forgePass(t, jwt.SigningMethodEdDSA, signing.private, signing.text, claims), keyTime); err != nil {
		t.Fatalf("signed as it should be: %v", err)
	}
	for name, text := range map[string]string{
		"alg none":                  forgePass(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, signing.text, claims),
		"HS256 with the public key": forgePass(t, jwt.SigningMethodHS256, []byte(signing.public), signing.text, claims),
		"HS256 with its text":       forgePass(t, jwt.SigningMethodHS256, []byte(signing.jwk().X), signing.text, claims),
		"another's key":             forgePass(t, jwt.SigningMethodEdDSA, foreign, signing.text, claims),
		"the key of another ID":     forgePass(t, jwt.SigningMethodEdDSA, signing.private, testKey(1).ID, claims),
		"no kid":                    forgePass(t, jwt.SigningMethodEdDSA, signing.private, nil, claims),
		"a kid that is a number":    forgePass(t, jwt.SigningMethodEdDSA, signing.private, 5, claims),
		"a kid in capitals":         forgePass(t, jwt.SigningMethodEdDSA, signing.private, strings.ToUpper(signing.text), claims),
	} {
		refusePass(t, name, ring, r, text)
	}
}

func TestPassOfAnotherRoomOrRing(t *testing.T) {
	ring, r := testRing(t, testKey(1), testKey(2)), testRoom("shop", "generation")
	text := signPass(t, ring, r, testPass(r))
	refusePass(t, "another room", ring, testRoom("shops", "generation"), text)
	refusePass(t, "the room made again", ring, testRoom("shop", "generation2"), text)
	refusePass(t, "an unknown key", testRing(t, testKey(1)), r, text)
	refusePass(t, "a key of that ID", testRing(t, room.SigningKey{ID: testKey(2).ID, Secret: testKey(3).Secret}), r, text)
}

func TestPassRefused(t *testing.T) {
	ring, r := testRing(t, testKey(1)), testRoom("shop", "generation")
	text := signPass(t, ring, r, testPass(r))
	with := func(name string, value any) string {
		claims := jwt.MapClaims{"iss": "sluice", "sub": "42", "room": "shop", "gen": "generation", "exp": 1.95e9}
		claims[name] = value
		return forgePass(t, jwt.SigningMethodEdDSA, ring.newest.private, ring.newest.text, claims)
	}
	if _, err := ring.ParsePass(r, with("and", "more"), keyTime); err != nil {
		t.Fatalf("with another claim: %v", err)
	}
	for name, text := range map[string]string{
		"another issuer":           with("iss", "slice"),
		"no issuer":                with("iss", nil),
		"no number":                with("sub", "me"),
		"no end":                   with("exp", nil),
		"an end in words":          with("exp", "never"),
		"an end out of all bounds": with("exp", 1e30),
		"an end before all":        with("exp", -1),
		"empty":                    "",
		"two parts":                text[:strings.LastIndexByte(text, '.')],
		"no signature":             text[:strings.LastIndexByte(text, '.')+1],
		"with a line end":          text + "\n",
		"a ticket":                 ring.SignTicket(r, Ticket{Number: 42}),
		"very long":                strings.Repeat("a", 1<<20) + ".b.c",
	} {
		refusePass(t, name, ring, r, text)
	}
}

// A pass with one changed bit is refused, also when the pass itself is cached.
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

// Rooms and generations up to the maximum length are signed, longer ones are not.
func TestPassIsBounded(t *testing.T) {
	ring := testRing(t, testKey(1))
	r := testRoom(strings.Repeat("n", 64), strings.Repeat("g", 64))
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

// Seconds are parsed as written, to the millisecond.
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
