package access_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/access/storetest"
	"github.com/sluice-project/sluice/internal/testkit/rapidtest"
)

const adminSecret = "admin-secret-of-the-tests"

// followed is when all instances have followed.
const followed = access.Follow + time.Millisecond

// open returns accounts that are started, until the test ends.
func open(t testing.TB, store access.Store, log *slog.Logger) *access.Accounts {
	t.Helper()
	accounts, err := access.New(store, adminSecret, access.Options{Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	if err := accounts.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := accounts.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return accounts
}

// step is a step of a history of two instances.
type step struct {
	do, name string
	instance int
	expires  time.Duration // 0: never
}

var drawStep = rapid.Custom(func(t *rapid.T) step {
	return step{
		do:       rapid.SampledFrom([]string{"create", "revoke", "rotate", "wait"}).Draw(t, "do"),
		name:     rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name"),
		instance: rapid.IntRange(0, 1).Draw(t, "instance"),
		expires:  time.Duration(rapid.IntRange(0, 9).Draw(t, "seconds")) * time.Second,
	}
})

// model is what all instances know, sooner or later.
type model struct {
	tokens map[string]modelled
	ended  []string // secrets
}

type modelled struct {
	secret  string
	expires time.Time // zero: never
}

// Two instances share a store. After Follow both know exactly the tokens that were created and neither revoked nor
// rotated nor expired since; the instance that changes one knows it at once.
func TestInstancesAgreeOnTheTokens(t *testing.T) {
	defer rapidtest.Checks(30, 300)()
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(drawStep, 1, 12).Draw(rt, "steps")
		var err error
		synctest.Test(t, func(t *testing.T) {
			store := &storetest.Memory{}
			instances := []*access.Accounts{open(t, store, nil), open(t, store, nil)}
			m := model{tokens: map[string]modelled{}, ended: []string{access.Prefix + "never-made"}}
			for i, s := range steps {
				at := instances[s.instance]
				if err = m.step(t.Context(), at, s); err == nil {
					err = m.agrees(at)
				}
				if s.do == "wait" && err == nil {
					err = m.agrees(instances[1-s.instance])
				}
				if err != nil {
					err = fmt.Errorf("step %d: %w", i, err)
					return
				}
			}
		})
		if err != nil {
			rt.Fatal(err)
		}
	})
}

// step makes a step at an instance and in the model.
func (m *model) step(ctx context.Context, at *access.Accounts, s step) error {
	was, exists := m.tokens[s.name]
	now, done := modelled{}, exists
	var err error
	switch s.do {
	case "wait":
		time.Sleep(followed)
		return nil
	case "create":
		if s.expires > 0 {
			now.expires = time.Now().Add(s.expires)
		}
		_, now.secret, err = at.Create(ctx, access.Principal{Name: s.name, Roles: []access.Role{access.Viewer}, Expires: now.expires})
		done = !exists
	case "revoke":
		err = at.Revoke(ctx, s.name)
	case "rotate":
		now.expires = was.expires
		_, now.secret, err = at.Rotate(ctx, s.name)
	}
	switch refused := errors.Is(err, access.ErrExists) || errors.Is(err, access.ErrNotFound); {
	case refused != !done || err != nil && !refused:
		return fmt.Errorf("%s %s, which exists: %v: %w", s.do, s.name, exists, err)
	case refused:
		return nil
	}
	delete(m.tokens, s.name)
	if now.secret != "" {
		m.tokens[s.name] = now
	}
	if was.secret != "" {
		m.ended = append(m.ended, was.secret)
	}
	return nil
}

// agrees returns an error if accounts know others than the tokens of the model.
func (m *model) agrees(accounts *access.Accounts) error {
	if listed := accounts.List(); len(listed) != len(m.tokens) {
		return fmt.Errorf("%d tokens are listed, want %d", len(listed), len(m.tokens))
	}
	for name, token := range m.tokens {
		p, err := accounts.Bearer(token.secret)
		switch over := !token.expires.IsZero() && !time.Now().Before(token.expires); {
		case over && !errors.Is(err, access.ErrExpired):
			return fmt.Errorf("%s is over, and known: %w", name, err)
		case !over && (err != nil || p.Name != name || !accounts.Valid(p)):
			return fmt.Errorf("%s is %v: %w", name, p, err)
		}
	}
	for _, secret := range m.ended {
		if p, err := accounts.Bearer(secret); !errors.Is(err, access.ErrUnknown) {
			return fmt.Errorf("an ended secret is that of %v: %w", p, err)
		}
	}
	return nil
}

// Somebody who is connected is asked for again and again: they end with their token, their secret or their time.
func TestValidEndsWithTheToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &storetest.Memory{}
		here, there := open(t, store, nil), open(t, store, nil)
		known := func(name string, expires time.Time) *access.Principal {
			_, secret, err := there.Create(t.Context(), access.Principal{Name: name, Roles: []access.Role{access.Worker}, Expires: expires})
			time.Sleep(followed)
			p, unknown := here.Bearer(secret)
			if err != nil || unknown != nil || !here.Valid(p) {
				t.Fatalf("%s: %v, %v", name, err, unknown)
			}
			return p
		}
		revoked, rotated, over := known("revoked", time.Time{}), known("rotated", time.Time{}), known("over", time.Now().Add(time.Hour))
		stays := known("stays", time.Now().Add(2*time.Hour))
		_, _, err := there.Rotate(t.Context(), "rotated")
		if err := errors.Join(err, there.Revoke(t.Context(), "revoked")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(followed)
		if here.Valid(revoked) || here.Valid(rotated) || !here.Valid(over) || !here.Valid(stays) {
			t.Error("after Follow another instance has cut others than those that were revoked and rotated")
		}
		time.Sleep(time.Hour)
		if here.Valid(over) || !here.Valid(stays) {
			t.Error("after an hour others ended than the one that had an hour")
		}
		admin, err := here.Bearer(adminSecret)
		if err != nil || admin.Name != access.AdminName || !admin.May(access.ManageAccess) {
			t.Fatalf("the admin token is %v, %v", admin, err)
		}
		if err := here.SetAdmin("another-admin-secret"); err != nil || here.Valid(admin) {
			t.Errorf("an admin token is valid after it was replaced: %v", err)
		}
	})
}

// While the store does not answer, all that was known stays known, and one line says so.
func TestTokensHoldWhileTheStoreIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		store := &storetest.Memory{}
		accounts := open(t, store, slog.New(slog.NewTextHandler(&log, nil)))
		_, secret, err := accounts.Create(t.Context(), access.Principal{Name: "a", Roles: []access.Role{access.Viewer}})
		if err != nil {
			t.Fatal(err)
		}
		down := errors.New("the store is down")
		store.Fail(down)
		time.Sleep(time.Minute)
		if _, err := accounts.Bearer(secret); err != nil {
			t.Error(err)
		}
		if err := accounts.Revoke(t.Context(), "a"); !errors.Is(err, down) {
			t.Errorf("a revocation that nobody keeps: %v", err)
		}
		store.Fail(nil)
		time.Sleep(followed)
		synctest.Wait() // the line may be written at this moment
		if text := log.String(); strings.Count(text, "cannot be read") != 1 || strings.Count(text, "can be read again") != 1 {
			t.Errorf("the log has\n%s", text)
		}
	})
}

// The keys of a token are those that RFC 5802 computes of its secret, and the document has no secret.
func TestScramKeysAndTheDocument(t *testing.T) {
	store := &storetest.Memory{}
	accounts := open(t, store, nil)
	_, secret, err := accounts.Create(t.Context(), access.Principal{Name: "a", Roles: []access.Role{access.Producer}})
	if err != nil {
		t.Fatal(err)
	}
	for name, secret := range map[string]string{"a": secret, access.AdminName: adminSecret} {
		p, keys, err := accounts.Scram(name, access.ScramSHA256)
		if err != nil || p.Name != name {
			t.Fatalf("%s: %v, %v", name, p, err)
		}
		salted, err := pbkdf2.Key(sha256.New, secret, keys.Salt, keys.Iterations, sha256.Size)
		if err != nil {
			t.Fatal(err)
		}
		sign := func(text string) []byte {
			mac := hmac.New(sha256.New, salted)
			mac.Write([]byte(text))
			return mac.Sum(nil)
		}
		stored := sha256.Sum256(sign("Client Key"))
		if !bytes.Equal(keys.Stored, stored[:]) || !bytes.Equal(keys.Server, sign("Server Key")) {
			t.Errorf("the keys of %s are not of its secret", name)
		}
		if _, keys, err := accounts.Scram(name, access.ScramSHA512); err != nil || len(keys.Stored) != 64 || len(keys.Server) != 64 {
			t.Errorf("%s: %+v, %v", name, keys, err)
		}
	}
	_, first, err := accounts.Scram("b", access.ScramSHA256)
	_, again, _ := open(t, store, slog.New(slog.DiscardHandler)).Scram("b", access.ScramSHA256) // by another instance
	_, other, _ := accounts.Scram("c", access.ScramSHA256)
	if !errors.Is(err, access.ErrUnknown) || len(first.Salt) != 16 || len(first.Stored) != 32 || !reflect.DeepEqual(first, again) || bytes.Equal(first.Salt, other.Salt) {
		t.Errorf("names that nobody has: %+v, %+v, %+v, %v", first, again, other, err)
	}
	document, _, err := store.Read(t.Context())
	if err != nil || bytes.Contains(document, []byte(strings.TrimPrefix(secret, access.Prefix))) {
		t.Errorf("the document has the secret, or cannot be read: %v", err)
	}
}

// The bounds of the document fit each other: as many tokens as there may be, each with names of the usual length.
func TestThereMayBeManyTokens(t *testing.T) {
	store := &storetest.Memory{}
	accounts := open(t, store, nil)
	_, _, err := accounts.Create(t.Context(), access.Principal{
		Name: strings.Repeat("n", 64), Roles: []access.Role{access.Submitter, access.Worker}, Tenants: []string{strings.Repeat("t", 64)},
	})
	if err != nil {
		t.Fatal(err)
	}
	document, version, err := store.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var decoded struct {
		Format int              `json:"format"`
		Tokens []map[string]any `json:"tokens"`
	}
	if err := json.Unmarshal(document, &decoded); err != nil {
		t.Fatal(err)
	}
	one := decoded.Tokens[0]
	decoded.Tokens = nil
	for i := range access.MaxTokens {
		token := map[string]any{}
		for key, value := range one {
			token[key] = value
		}
		token["name"] = fmt.Sprintf("%s-%04d", strings.Repeat("n", 59), i)
		decoded.Tokens = append(decoded.Tokens, token)
	}
	if document, err = json.Marshal(decoded); err != nil || len(document) > access.MaxDocument {
		t.Fatalf("%d tokens have %d bytes, %v", access.MaxTokens, len(document), err)
	}
	if _, err = store.Write(t.Context(), document, version); err != nil {
		t.Fatal(err)
	}
	if _, _, err := accounts.Create(t.Context(), access.Principal{Name: "one-more", Roles: []access.Role{access.Viewer}}); !errors.Is(err, access.ErrFull) {
		t.Errorf("one token more: %v", err)
	}
	if err := accounts.Revoke(t.Context(), decoded.Tokens[0]["name"].(string)); err != nil || len(accounts.List()) != access.MaxTokens-1 {
		t.Errorf("%d tokens, %v", len(accounts.List()), err)
	}
}

// A document that this release does not know ends the start, and changes nothing later.
func TestUnknownDocumentsAreRefused(t *testing.T) {
	const newer = `{"format":5}`
	for _, document := range []string{"", "[]", newer, `{"format":1,"tokens":[{"name":"a","sha256":"AAAA"}]}`} {
		store := &storetest.Memory{}
		if _, err := store.Write(t.Context(), []byte(document), ""); err != nil {
			t.Fatal(err)
		}
		accounts, err := access.New(store, adminSecret, access.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := accounts.Start(t.Context()); err == nil || document == newer && !strings.Contains(err.Error(), "run the release that wrote it") {
			t.Errorf("a server starts with the document %q: %v", document, err)
		}
	}
}

func TestTokensThatCannotBeAreRefused(t *testing.T) {
	accounts := open(t, &storetest.Memory{}, nil)
	viewer := []access.Role{access.Viewer}
	for _, test := range []struct {
		field string
		p     access.Principal
	}{
		{"name", access.Principal{Name: "", Roles: viewer}},
		{"name", access.Principal{Name: "Upper", Roles: viewer}},
		{"name", access.Principal{Name: strings.Repeat("a", 65), Roles: viewer}},
		{"name", access.Principal{Name: access.AdminName, Roles: viewer}},
		{"roles", access.Principal{Name: "a"}},
		{"roles", access.Principal{Name: "a", Roles: []access.Role{"root"}}},
		{"roles", access.Principal{Name: "a", Roles: []access.Role{access.Viewer, access.Viewer}}},
		{"expires", access.Principal{Name: "a", Roles: viewer, Expires: time.Now().Add(-time.Second)}},
		{"tenants", access.Principal{Name: "a", Roles: viewer, Tenants: []string{"acme"}}},
		{"tenants", access.Principal{Name: "a", Roles: []access.Role{access.Submitter}, Tenants: []string{"*acme"}}},
		{"tenants", access.Principal{Name: "a", Roles: []access.Role{access.Submitter}, Tenants: make([]string, 101)}},
		{"types", access.Principal{Name: "a", Roles: []access.Role{access.Worker}, Types: []string{""}}},
		{"rooms", access.Principal{Name: "a", Roles: []access.Role{access.Shop, access.Operator}, Rooms: []string{"sale"}}},
		{"topics", access.Principal{Name: "a", Roles: []access.Role{access.Producer}, Topics: []string{strings.Repeat("a", 257)}}},
		{"groups", access.Principal{Name: "a", Roles: []access.Role{access.Producer}, Groups: []string{"g"}}},
	} {
		_, _, err := accounts.Create(t.Context(), test.p)
		if invalid, ok := errors.AsType[*access.InvalidError](err); !ok || invalid.Field != test.field {
			t.Errorf("%+v: %v, want an error of %s", test.p, err, test.field)
		}
	}
	if _, err := access.New(&storetest.Memory{}, strings.Repeat("a", access.LeastAdmin-1), access.Options{}); err == nil {
		t.Error("a short admin token was accepted")
	}
}

func BenchmarkBearer(b *testing.B) {
	accounts := open(b, &storetest.Memory{}, nil)
	_, secret, err := accounts.Create(b.Context(), access.Principal{Name: "a", Roles: []access.Role{access.Shop}})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if p, err := accounts.Bearer(secret); err != nil || !p.May(access.KeepRoom) {
			b.Fatal(err)
		}
	}
}
