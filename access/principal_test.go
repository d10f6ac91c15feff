package access_test

import (
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/access"
)

func TestLimits(t *testing.T) {
	p := &access.Principal{Roles: []access.Role{access.Consumer}, Tenants: []string{"acme", "shop-*"}, Topics: []string{"*"}}
	for name, within := range map[string]bool{
		"acme": true, "acme2": false, "": false, "shop-": true, "shop-1": true, "shop": false, "shop-*": true, "*": false,
	} {
		if p.Tenant(name) != within {
			t.Errorf("tenant %q: %v", name, p.Tenant(name))
		}
	}
	if !p.Topic("any") || !p.Topic("") || !p.Room("any") || !p.Type("any") || !p.Group("any") {
		t.Error("what is not limited is limited")
	}
	producer := &access.Principal{Name: "till", Roles: []access.Role{access.Producer}, Topics: []string{"orders*"}}
	for id, within := range map[string]bool{"orders-1": true, "till": true, "till-1": true, "tills": false, "payments": false, "": false} {
		if producer.Transaction(id) != within {
			t.Errorf("transactional id %q: %v", id, producer.Transaction(id))
		}
	}
	if producer.Group("any") || !p.Transaction("any") {
		t.Error("a producer with limits has groups, or a transactional id is limited without limits")
	}
	var nobody *access.Principal
	if !nobody.Tenant("a") || !nobody.Type("a") || !nobody.Room("a") || !nobody.Topic("a") || !nobody.Group("a") || !nobody.Transaction("a") || !nobody.May(access.ManageAccess) {
		t.Error("without accounts something is not allowed")
	}
}

func TestRoles(t *testing.T) {
	for _, right := range access.Rights() {
		roles := access.RolesWith(right)
		if !slices.Contains(roles, access.Admin) || right.String() == "" {
			t.Errorf("an admin lacks %v", right)
		}
		for _, role := range access.Roles() {
			p := &access.Principal{Roles: []access.Role{role}}
			if p.May(right) != slices.Contains(roles, role) || !p.May(access.Open) {
				t.Errorf("%s and %v: %v, of %v", role, right, p.May(right), roles)
			}
		}
	}
	both := &access.Principal{Roles: []access.Role{access.Worker, access.Submitter}}
	if !both.May(access.Work) || !both.May(access.Submit) || both.May(access.Produce) {
		t.Error("two roles together do not have the rights of both")
	}
}

// A client may fail some times at once, and then now and then; others are not concerned.
func TestAttemptsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		attempts := access.NewAttempts()
		one, same := netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2")
		for i := range access.Burst {
			if wait := attempts.Failed(one); wait != 0 {
				t.Fatalf("attempt %d waits %v", i, wait)
			}
		}
		if wait := attempts.Failed(same); wait != access.Pause {
			t.Errorf("after the burst an attempt waits %v", wait)
		}
		answered := 0
		for i := range 100 { // the places of others are random in each process
			if attempts.Failed(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})) == 0 {
				answered++
			}
		}
		if answered < 90 {
			t.Errorf("of 100 other clients %d were answered", answered)
		}
		time.Sleep(access.Pause)
		if attempts.Failed(one) != 0 || attempts.Failed(one) == 0 {
			t.Error("a pause is not good for one attempt")
		}
		if attempts.Failed(netip.Addr{}) != 0 {
			t.Error("a client without an address is not answered")
		}
	})
}
