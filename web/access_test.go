package web

import (
	"maps"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/access/audit"
)

// Admins see the tokens and the audit trail, and revoke; others are not even led there.
func TestAccessIsForAdmins(t *testing.T) {
	known := maps.Clone(tokens)
	known["root"] = &access.Principal{Name: "root", Roles: []access.Role{access.Admin}}
	known["viewer"] = &access.Principal{Name: "watcher", Roles: []access.Role{access.Viewer}, Expires: time.Now().Add(-time.Hour)}
	trail := audit.New(audit.Options{})
	d := newTest(t, Options{Accounts: known, Audit: trail})
	const admin, operator = "sluice-token=root", "sluice-token=operator"
	says(t, text(t, d, "/ui/access", "Cookie", admin), "ops operator 60 min ago – Revoke ops", "watcher viewer 60 min ago 60 min ago", "acme viewer tenants: acme")
	if page := ask(d, "GET", "/ui/", "", "Cookie", admin).Body.String(); !strings.Contains(page, `href="/ui/access"`) {
		t.Error("admins are not led to the tokens")
	}
	if page := ask(d, "GET", "/ui/", "", "Cookie", operator).Body.String(); strings.Contains(page, `href="/ui/access"`) {
		t.Error("operators are led to the tokens")
	}
	for _, path := range []string{"access", "access/audit", "act?do=revoke_token&name=shop"} {
		if w := ask(d, "GET", Prefix+path, "", "Cookie", operator); w.Code != http.StatusForbidden {
			t.Errorf("an operator: %s: %d", path, w.Code)
		}
	}
	if w := ask(d, "POST", "/ui/act", "do=revoke_token&name=shop", "Cookie", operator); w.Code != http.StatusForbidden || known["shop"] == nil {
		t.Errorf("an operator revokes: %d", w.Code)
	}
	says(t, text(t, d, "/ui/act?do=revoke_token&name=shop", "Cookie", admin), "Token shop with the roles shop is unknown from now on")
	if w := ask(d, "POST", "/ui/act", "do=revoke_token&name=shop", "Cookie", admin, "Sec-Fetch-Site", "cross-site"); w.Code != http.StatusForbidden || known["shop"] == nil {
		t.Errorf("another site revokes: %d", w.Code)
	}
	if w := ask(d, "POST", "/ui/act", "do=revoke_token&name=shop", "Cookie", admin); w.Code != http.StatusSeeOther || known["shop"] != nil {
		t.Errorf("an admin revokes: %d", w.Code)
	}
	if w := ask(d, "GET", "/ui/act?do=revoke_token&name=shop", "", "Cookie", admin); w.Code != http.StatusNotFound {
		t.Errorf("a token that does not exist: %d", w.Code)
	}
	page := text(t, d, "/ui/access/audit", "Cookie", admin)
	says(t, page, "ops 192.0.2.1 dashboard revoke_token shop refused 403", "root 192.0.2.1 dashboard revoke_token shop allowed")
	page = text(t, d, "/ui/access/audit?find=root", "Cookie", admin)
	if says(t, page, "allowed"); strings.Contains(page, "refused") {
		t.Errorf("the filter shows all: %s", page)
	}
	says(t, text(t, newTest(t, Options{}), "/ui/access"), "This server has no accounts")
	says(t, text(t, newTest(t, Options{}), "/ui/access/audit"), "keeps no audit trail")
}

// The records of the audit trail are for those who may see it.
func TestAuditTopicIsForAdmins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		create(t, b, access.AuditTopic, 1)
		known := maps.Clone(tokens)
		known["root"] = &access.Principal{Name: "root", Roles: []access.Role{access.Admin}}
		d := newTest(t, Options{Accounts: known, Topics: b})
		for secret, want := range map[string]int{"operator": http.StatusForbidden, "root": http.StatusOK} {
			if w := ask(d, "GET", recordsPath(access.AuditTopic, 0), "", "Cookie", "sluice-token="+secret); w.Code != want {
				t.Errorf("%s: %d, want %d", secret, w.Code, want)
			}
		}
	})
}
