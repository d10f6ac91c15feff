package access_test

import (
	"bytes"
	"crypto/pbkdf2"
	"crypto/sha256"
	"crypto/sha512"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/access/storetest"
)

// credential returns what sets the password of a user, as clients compute it.
func credential(t *testing.T, user, mechanism, password string) access.ScramChange {
	t.Helper()
	change := access.ScramChange{User: user, Mechanism: mechanism, Iterations: access.MinIterations, Salt: []byte("salt of " + user)}
	var err error
	if mechanism == access.ScramSHA256 {
		change.Salted, err = pbkdf2.Key(sha256.New, password, change.Salt, change.Iterations, sha256.Size)
	} else {
		change.Salted, err = pbkdf2.Key(sha512.New, password, change.Salt, change.Iterations, sha512.Size)
	}
	if err != nil {
		t.Fatal(err)
	}
	return change
}

// A user is known by its credentials at all instances, has what the grants give to its name, and ends with the
// credential that it has proved.
func TestUsersOfScram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &storetest.Memory{}
		here, there := open(t, store, nil), open(t, store, nil)
		there.SetGrants([]access.Grant{{Name: "Till@shop", Principal: access.Principal{Roles: []access.Role{access.Producer}, Topics: []string{"orders"}}}})
		change := func(changes ...access.ScramChange) {
			t.Helper()
			if refused, err := here.ChangeUsers(t.Context(), changes); err != nil || len(refused) > 0 {
				t.Fatal(refused, err)
			}
			time.Sleep(followed)
		}
		both := []access.ScramChange{credential(t, "Till@shop", access.ScramSHA256, "one"), credential(t, "Till@shop", access.ScramSHA512, "two")}
		change(append(both, credential(t, "other", access.ScramSHA256, "three"))...)
		small, keys, err := there.Scram("Till@shop", access.ScramSHA256)
		large, _, failed := there.Scram("Till@shop", access.ScramSHA512)
		if err != nil || failed != nil || !small.May(access.Produce) || small.Topic("other") || small.Name != "Till@shop" || !there.Valid(small) || !there.Valid(large) {
			t.Fatalf("%+v, %v, %v", small, err, failed)
		}
		if len(keys.Stored) != sha256.Size || !bytes.Equal(keys.Salt, both[0].Salt) || keys.Iterations != access.MinIterations {
			t.Errorf("keys %+v", keys)
		}
		if other, _, err := there.Scram("other", access.ScramSHA256); err != nil || other.May(access.Known) {
			t.Errorf("without a grant a user has roles: %+v, %v", other, err)
		}
		if _, _, err := there.Scram("other", access.ScramSHA512); !errors.Is(err, access.ErrUnknown) {
			t.Errorf("a user is known by a mechanism for which it has no credential: %v", err)
		}
		want := []access.ScramUser{{"Till@shop", map[string]int{access.ScramSHA256: 4096, access.ScramSHA512: 4096}}, {"other", map[string]int{access.ScramSHA256: 4096}}}
		if got := there.Users(); !reflect.DeepEqual(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		change(credential(t, "Till@shop", access.ScramSHA256, "another"))
		if there.Valid(small) || !there.Valid(large) {
			t.Error("another password ends others than those who have proved the one before")
		}
		remove := access.ScramChange{User: "Till@shop", Mechanism: access.ScramSHA512, Remove: true}
		change(remove)
		if _, _, err := there.Scram("Till@shop", access.ScramSHA512); there.Valid(large) || !errors.Is(err, access.ErrUnknown) {
			t.Errorf("a removed credential is known: %v", err)
		}
		remove.Mechanism = access.ScramSHA256
		change(remove)
		if left := there.Users(); len(left) != 1 {
			t.Errorf("a user without credentials is left: %v", left)
		}
	})
}

func TestUsersThatCannotBeAreRefused(t *testing.T) {
	accounts := open(t, &storetest.Memory{}, nil)
	if _, _, err := accounts.Create(t.Context(), access.Principal{Name: "token", Roles: []access.Role{access.Viewer}}); err != nil {
		t.Fatal(err)
	}
	good := credential(t, "good", access.ScramSHA256, "password")
	for _, test := range []struct {
		field  string // "": ErrNoCredential
		change func(*access.ScramChange)
	}{
		{"user", func(c *access.ScramChange) { c.User = "" }},
		{"user", func(c *access.ScramChange) { c.User = "jwt:alice" }},
		{"user", func(c *access.ScramChange) { c.User = "$node" }},
		{"user", func(c *access.ScramChange) { c.User = strings.Repeat("a", 65) }},
		{"user", func(c *access.ScramChange) { c.User = access.AdminName }},
		{"user", func(c *access.ScramChange) { c.User = "token" }},
		{"mechanism", func(c *access.ScramChange) { c.Mechanism = "PLAIN" }},
		{"iterations", func(c *access.ScramChange) { c.Iterations = access.MinIterations - 1 }},
		{"iterations", func(c *access.ScramChange) { c.Iterations = access.MaxIterations + 1 }},
		{"salt", func(c *access.ScramChange) { c.Salt = make([]byte, access.MinSalt-1) }},
		{"salt", func(c *access.ScramChange) { c.Salt = make([]byte, access.MaxSalt+1) }},
		{"salted password", func(c *access.ScramChange) { c.Mechanism = access.ScramSHA512 }},
		{"", func(c *access.ScramChange) { c.Remove = true }},
	} {
		bad := good
		test.change(&bad)
		also := good
		also.User = bad.User // the changes of one user go together
		refused, err := accounts.ChangeUsers(t.Context(), []access.ScramChange{bad, also})
		why := refused[bad.User]
		invalid, is := errors.AsType[*access.InvalidError](why)
		if err != nil || is != (test.field != "") || is && invalid.Field != test.field || !is && !errors.Is(why, access.ErrNoCredential) {
			t.Errorf("%+v: %v, %v, want an error of %s", bad, why, err, test.field)
		}
	}
	if left := accounts.Users(); len(left) != 0 {
		t.Fatalf("refused users exist: %v", left)
	}
	bad := good
	bad.User, bad.Iterations = "bad", 1
	refused, err := accounts.ChangeUsers(t.Context(), []access.ScramChange{good, bad})
	if err != nil || !slices.Equal(slices.Collect(maps.Keys(refused)), []string{"bad"}) || len(accounts.Users()) != 1 {
		t.Errorf("beside one that is refused, another: %v, %v", refused, err)
	}
	if _, _, err := accounts.Create(t.Context(), access.Principal{Name: "good", Roles: []access.Role{access.Viewer}}); err == nil {
		t.Error("a token has the name of a user")
	}
	var many []access.ScramChange
	for i := range access.MaxTokens - 1 { // one token and one user are there
		good.User = fmt.Sprint("user-", i)
		many = append(many, good)
	}
	if _, err := accounts.ChangeUsers(t.Context(), many); !errors.Is(err, access.ErrFull) || len(accounts.Users()) != 1 {
		t.Errorf("too many users: %v", err)
	}
	if _, err := accounts.ChangeUsers(t.Context(), many[1:]); err != nil || len(accounts.Users()) != access.MaxTokens-1 {
		t.Errorf("as many users as there may be: %v", err)
	}
}
