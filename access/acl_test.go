package access_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/access/storetest"
)

func TestFiltersFindACLs(t *testing.T) {
	accounts := open(t, &storetest.Memory{}, nil)
	create(t, accounts,
		acl(access.Allow, "a", "read", "topic", access.Literal, "orders"), acl(access.Deny, "b", "write", "topic", access.Prefixed, "ord", "::ffff:10.0.0.1"),
		acl(access.Allow, "*", "all", "topic", access.Literal, "*"), acl(access.Allow, "a", "read", "group", access.Literal, "orders"))
	of := func(text string) *string { return &text }
	for want, filters := range map[string][]access.ACLFilter{
		"0123": {{}, {Pattern: access.Match}},
		"012":  {{Resource: "topic"}, {Resource: "topic", Pattern: access.Match, Name: of("orders")}},
		"03":   {{Name: of("orders")}, {Principal: of("User:a")}, {Operation: "read"}},
		"02":   {{Resource: "topic", Pattern: access.Literal}},
		"0":    {{Resource: "topic", Pattern: access.Literal, Name: of("orders")}},
		"1":    {{Pattern: access.Prefixed}, {Host: of("10.0.0.1")}, {Host: of("::ffff:10.0.0.1")}, {Permission: access.Deny}, {Name: of("ord")}},
		"12":   {{Pattern: access.Match, Name: of("ordinary")}},
		"2":    {{Pattern: access.Match, Name: of("or")}, {Name: of("*")}},
		"":     {{Pattern: access.Prefixed, Name: of("orders")}, {Principal: of("a")}},
	} {
		for _, filter := range filters {
			all, got := accounts.ACLs(access.ACLFilter{}), ""
			for _, l := range accounts.ACLs(filter) {
				got += fmt.Sprint(slices.Index(all, l))
			}
			if got != want {
				t.Errorf("%+v finds %s, want %s", filter, got, want)
			}
		}
	}
}

// ACLs that one instance creates and removes count at all of them after Follow.
func TestInstancesAgreeOnACLs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &storetest.Memory{}
		here, there := open(t, store, nil), open(t, store, nil)
		who := &access.Principal{Name: "till"}
		may := func() bool {
			time.Sleep(followed)
			return there.MayRequest(who, "10.0.0.1", produce, access.Topic, "orders")
		}
		allows := acl(access.Allow, "till", "write", "topic", access.Literal, "orders")
		create(t, here, allows, allows)
		create(t, here, allows)
		if all := there.ACLs(access.ACLFilter{}); !may() || len(here.ACLs(access.ACLFilter{})) != 1 || len(all) > 1 {
			t.Errorf("an ACL that was created does not count, or more than once: %v", all)
		}
		denies := acl(access.Deny, "*", "all", "topic", access.Prefixed, "o")
		create(t, here, denies)
		if may() {
			t.Error("a denial does not count")
		}
		removed, err := here.DeleteACLs(t.Context(), []access.ACLFilter{{Resource: "group"}, {Permission: access.Deny}, {Operation: "all"}})
		if err != nil || len(removed) != 3 || !slices.Equal(removed[1], []access.ACL{denies}) || len(removed[0])+len(removed[2]) > 0 || !may() {
			t.Errorf("a removed denial counts: %v, %v", removed, err)
		}
	})
}

func TestACLsThatCannotBeAreRefused(t *testing.T) {
	accounts := open(t, &storetest.Memory{}, nil)
	good := acl(access.Allow, "till", "write", "topic", access.Literal, "orders")
	all := []access.ACL{good}
	var fields []string
	for _, test := range []struct {
		field  string
		change func(*access.ACL)
	}{
		{"resource", func(l *access.ACL) { l.Resource = "delegation_token" }},
		{"pattern", func(l *access.ACL) { l.Pattern = access.Match }},
		{"name", func(l *access.ACL) { l.Name = "" }},
		{"name", func(l *access.ACL) { l.Name = strings.Repeat("a", 257) }},
		{"name", func(l *access.ACL) { l.Pattern, l.Name = access.Prefixed, "*" }},
		{"name", func(l *access.ACL) { l.Resource, l.Operation = "cluster", "create" }},
		{"principal", func(l *access.ACL) { l.Principal = "Group:a" }},
		{"principal", func(l *access.ACL) { l.Principal = access.UserPrefix }},
		{"host", func(l *access.ACL) { l.Host = "example.com" }},
		{"host", func(l *access.ACL) { l.Host = "" }},
		{"operation", func(l *access.ACL) { l.Operation = "any" }},
		{"operation", func(l *access.ACL) { l.Operation = "idempotent_write" }},
		{"operation", func(l *access.ACL) { l.Resource, l.Operation = "group", "write" }},
		{"permission", func(l *access.ACL) { l.Permission = "any" }},
	} {
		bad := good
		test.change(&bad)
		all, fields = append(all, bad), append(fields, test.field)
	}
	refused, err := accounts.CreateACLs(t.Context(), all)
	if err != nil || refused[0] != nil || len(accounts.ACLs(access.ACLFilter{})) != 1 {
		t.Fatal(refused, err)
	}
	for i, field := range fields {
		if invalid, ok := errors.AsType[*access.InvalidError](refused[i+1]); !ok || invalid.Field != field {
			t.Errorf("%+v: %v, want an error of %s", all[i+1], refused[i+1], field)
		}
	}
	var many []access.ACL
	for i := range access.MaxACLs {
		good.Name = fmt.Sprint("topic-", i)
		many = append(many, good)
	}
	if _, err := accounts.CreateACLs(t.Context(), many); !errors.Is(err, access.ErrFull) || len(accounts.ACLs(access.ACLFilter{})) != 1 {
		t.Errorf("one ACL too many: %v", err)
	}
	if _, err := accounts.CreateACLs(t.Context(), many[1:]); err != nil {
		t.Errorf("as many ACLs as there may be: %v", err)
	}
}

// An ACL of any texts is refused, or is read again as it was written and found by its own words.
func FuzzACL(f *testing.F) {
	f.Add("topic", access.Literal, "orders", "User:till", "::ffff:10.0.0.1", "write", access.Allow)
	f.Add("cluster", access.Literal, access.ClusterName, "User:*", "*", "all", access.Deny)
	accounts := open(f, &storetest.Memory{}, nil)
	f.Fuzz(func(t *testing.T, resource, pattern, name, principal, host, operation, permission string) {
		replace(t, accounts)
		l := access.ACL{Resource: resource, Pattern: pattern, Name: name, Principal: principal, Host: host, Operation: operation, Permission: permission}
		refused, err := accounts.CreateACLs(t.Context(), []access.ACL{l})
		if err != nil {
			t.Fatal(err)
		}
		if refused[0] != nil {
			return
		}
		found := accounts.ACLs(access.ACLFilter{
			Resource: resource, Pattern: pattern, Name: &name, Principal: &principal, Host: &host, Operation: operation, Permission: permission,
		})
		if len(found) != 1 || found[0].Name != name || found[0].Principal != principal {
			text, _ := json.Marshal(found)
			t.Errorf("%+v was kept as %s", l, text)
		}
	})
}
