package access_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/access/jwks"
	"github.com/sluice-project/sluice/access/storetest"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

// signer is a key of an identity provider.
type signer struct {
	kid    string
	method jwt.SigningMethod
	key    any
}

func (s signer) sign(t testing.TB, claims jwt.MapClaims) string {
	t.Helper()
	token := jwt.NewWithClaims(s.method, claims)
	token.Header["kid"] = s.kid
	text, err := token.SignedString(s.key)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func (s signer) jwk() map[string]string {
	raw := base64.RawURLEncoding.EncodeToString
	key := map[string]string{"kid": s.kid, "use": "sig"}
	switch public := s.key.(crypto.Signer).Public().(type) {
	case *rsa.PublicKey:
		key["kty"], key["n"], key["e"] = "RSA", raw(public.N.Bytes()), raw(big.NewInt(int64(public.E)).Bytes())
	case *ecdsa.PublicKey:
		point, _ := public.Bytes()
		key["kty"], key["crv"], key["x"], key["y"] = "EC", "P-256", raw(point[1:33]), raw(point[33:])
	case ed25519.PublicKey:
		key["kty"], key["crv"], key["x"] = "OKP", "Ed25519", raw(public)
	}
	return key
}

// signers returns a key for each algorithm.
func signers(t testing.TB) []signer {
	t.Helper()
	rs, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return []signer{{"rs", jwt.SigningMethodRS256, rs}, newES(t), newEd(t, "ed")}
}

func newES(t testing.TB) signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return signer{"es", jwt.SigningMethodES256, key}
}

func newEd(t testing.TB, kid string) signer {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return signer{kid, jwt.SigningMethodEdDSA, key}
}

// publish writes a key set to a file.
func publish(t testing.TB, path string, keys ...signer) {
	t.Helper()
	var set struct {
		Keys []map[string]string `json:"keys"`
	}
	for _, key := range keys {
		set.Keys = append(set.Keys, key.jwk())
	}
	text, err := json.Marshal(set)
	if err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// withProvider returns accounts with the provider of a key set.
func withProvider(t testing.TB, path string, grants ...string) *access.Accounts {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	options := access.Options{Logger: log, Provider: access.NewProvider(access.ProviderOptions{
		Issuer: "https://login.test", Audience: "sluice", Keys: jwks.New(path, log), NameClaim: "sub", GrantClaim: "realm.roles",
	})}
	options.Grants = grantsOf(t, grants...)
	accounts, err := access.New(&storetest.Memory{}, adminSecret, options)
	if err == nil {
		err = accounts.Start(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := accounts.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return accounts
}

// claims returns valid claims, with some changed; nil removes one.
func claims(changed jwt.MapClaims) jwt.MapClaims {
	all := jwt.MapClaims{
		"iss": "https://login.test", "aud": "sluice", "sub": "alice", "exp": time.Now().Add(time.Hour).Unix(),
		"realm": map[string]any{"roles": []string{"other", "tills"}},
	}
	for name, value := range changed {
		if all[name] = value; value == nil {
			delete(all, name)
		}
	}
	return all
}

// A JWT makes somebody known if it is signed by a key of the provider, for this service, and in time; and nothing else
// does. The first grant that matches counts.
func TestJWTs(t *testing.T) {
	keys, path := signers(t), filepath.Join(t.TempDir(), "keys.json")
	publish(t, path, keys...)
	rsaPublic, err := x509.MarshalPKIXPublicKey(keys[0].key.(crypto.Signer).Public())
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		accounts := withProvider(t, path, "name:jwt:boss admin", "claim:tills producer topic=orders*", "claim:other viewer")
		synctest.Wait()
		for _, key := range keys {
			p, err := accounts.Bearer(key.sign(t, claims(nil)))
			if err != nil || p.Name != "jwt:alice" || !p.May(access.Produce) || p.May(access.ReadBulk) || !p.Topic("orders-1") || p.Topic("other") || !accounts.Valid(p) {
				t.Errorf("%s: %+v, %v", key.kid, p, err)
			}
		}
		if p, err := accounts.Bearer(keys[1].sign(t, claims(jwt.MapClaims{"sub": "boss", "realm": nil}))); err != nil || !p.May(access.ManageAccess) {
			t.Errorf("by name: %+v, %v", p, err)
		}
		if p, err := accounts.Bearer(keys[1].sign(t, claims(jwt.MapClaims{"realm": nil}))); err != nil || len(p.Roles) > 0 || p.May(access.Known) {
			t.Errorf("without a grant: %+v, %v", p, err)
		}
		now := time.Now()
		changed := func(change jwt.MapClaims) string { return keys[2].sign(t, claims(change)) }
		valid := changed(nil)
		for name, text := range map[string]string{
			"another issuer":   changed(jwt.MapClaims{"iss": "https://login.test/"}),
			"no issuer":        changed(jwt.MapClaims{"iss": nil}),
			"another audience": changed(jwt.MapClaims{"aud": []string{"others"}}),
			"no audience":      changed(jwt.MapClaims{"aud": nil}),
			"no expiry":        changed(jwt.MapClaims{"exp": nil}),
			"not yet valid":    changed(jwt.MapClaims{"nbf": now.Add(access.ClockSkew + time.Second).Unix()}),
			"no name":          changed(jwt.MapClaims{"sub": nil}),
			"a line end":       changed(jwt.MapClaims{"sub": "alice\n"}),
			"a wrong key":      newEd(t, "ed").sign(t, claims(nil)),
			"a key of another": newEd(t, "rs").sign(t, claims(nil)),
			"unknown kid":      newEd(t, "new").sign(t, claims(nil)),
			"alg none":         signer{"rs", jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType}.sign(t, claims(nil)),
			"HS256":            signer{"rs", jwt.SigningMethodHS256, rsaPublic}.sign(t, claims(nil)),
			"PS256":            signer{"rs", jwt.SigningMethodPS256, keys[0].key}.sign(t, claims(nil)),
			"cut":              valid[:len(valid)-4],
			"long":             changed(jwt.MapClaims{"more": strings.Repeat("A", access.MaxJWT)}),
		} {
			if p, err := accounts.Bearer(text); !errors.Is(err, access.ErrBadJWT) || p != nil {
				t.Errorf("%s: %+v, %v, want %v", name, p, err, access.ErrBadJWT)
			}
		}
		if _, err := accounts.Bearer(changed(jwt.MapClaims{"exp": now.Add(-access.ClockSkew - time.Second).Unix()})); !errors.Is(err, access.ErrExpired) {
			t.Errorf("expired: %v", err)
		}
		p, err := accounts.Bearer(changed(jwt.MapClaims{"exp": now.Add(time.Minute).Unix()}))
		if err != nil || !accounts.Valid(p) {
			t.Fatalf("a minute before it expires: %v", err)
		}
		if time.Sleep(time.Minute + access.ClockSkew); accounts.Valid(p) {
			t.Error("somebody is valid after the JWT has expired")
		}
	})
}

// Keys that vanish are dropped, a new one is known soon after it was asked for, and the last set survives an outage
// for its time.
func TestKeysAreFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "keys.json")
		first, second := newEd(t, "1"), newEd(t, "2")
		publish(t, path, first)
		accounts := withProvider(t, path, "claim:tills viewer")
		synctest.Wait()
		long := claims(jwt.MapClaims{"exp": time.Now().Add(99 * time.Hour).Unix()})
		of := func(s signer) error { _, err := accounts.Bearer(s.sign(t, long)); return err }
		p, err := accounts.Bearer(first.sign(t, long))
		if err != nil {
			t.Fatal(err)
		}
		publish(t, path, second)
		if of(second) == nil || !accounts.Valid(p) {
			t.Error("the keys were read before anybody asked")
		}
		time.Sleep(jwks.Pause)
		synctest.Wait()
		if err := of(second); err != nil || accounts.Valid(p) || of(first) == nil {
			t.Errorf("after the keys changed: %v", err)
		}
		if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(jwks.Survive - jwks.Refresh)
		if err := of(second); err != nil {
			t.Errorf("the last set does not survive: %v", err)
		}
		if time.Sleep(2 * jwks.Refresh); of(second) == nil {
			t.Error("the last set survives for ever")
		}
	})
}

// A JWT that was verified is remembered no longer than it holds: until it expires, its key is replaced, also by one with
// its kid, or the grants give something else.
func TestVerifiedJWTsAreRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "keys.json")
		first, second := newEd(t, "1"), newEd(t, "1")
		publish(t, path, first)
		accounts := withProvider(t, path, "claim:tills viewer")
		synctest.Wait()
		text := first.sign(t, claims(jwt.MapClaims{"exp": time.Now().Add(time.Minute).Unix()}))
		once, err := accounts.Bearer(text)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := accounts.Bearer(text); err != nil || again != once {
			t.Errorf("%p, %v, want the same as before, %p", again, err, once)
		}
		accounts.SetGrants(grantsOf(t, "claim:tills producer"))
		if p, err := accounts.Bearer(text); err != nil || !p.May(access.Produce) || p.May(access.ReadBulk) || accounts.Valid(once) {
			t.Errorf("after the grants changed: %+v, %v", p, err)
		}
		if time.Sleep(time.Minute + access.ClockSkew); !errors.Is(func() error { _, err := accounts.Bearer(text); return err }(), access.ErrExpired) {
			t.Error("a JWT is accepted after it has expired")
		}
		long := first.sign(t, claims(jwt.MapClaims{"exp": time.Now().Add(time.Hour).Unix()}))
		if _, err := accounts.Bearer(long); err != nil {
			t.Fatal(err)
		}
		publish(t, path, second)
		time.Sleep(jwks.Refresh)
		synctest.Wait()
		if p, err := accounts.Bearer(long); !errors.Is(err, access.ErrBadJWT) {
			t.Errorf("after its key was replaced: %+v, %v", p, err)
		}
	})
}

// BenchmarkJWT is what a JWT costs at each request: the first time, and then.
func BenchmarkJWT(b *testing.B) {
	for _, key := range signers(b) {
		path := filepath.Join(b.TempDir(), "keys.json")
		publish(b, path, key)
		accounts := withProvider(b, path, "claim:tills viewer")
		first := key.sign(b, claims(nil))
		until.Succeeds(b, "the keys are read", func() error { _, err := accounts.Bearer(first); return err })
		b.Run(key.kid+"/first", func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				text := key.sign(b, claims(jwt.MapClaims{"jti": rand.Text()}))
				b.StartTimer()
				if _, err := accounts.Bearer(text); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(key.kid+"/then", func(b *testing.B) {
			for b.Loop() {
				if _, err := accounts.Bearer(first); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Grants that say nothing, or too much, are refused.
func TestGrantsAreChecked(t *testing.T) {
	for _, text := range []string{"", "tills producer", "claim:", "name:jwt:a", "claim:a chief", "claim:a viewer topic=x", "claim:a producer shelf=x", "claim:a producer topic=", "claim:a admin tenant=x"} {
		if g, err := access.ParseGrant(text); err == nil {
			t.Errorf("%q: %+v", text, g)
		}
	}
}
