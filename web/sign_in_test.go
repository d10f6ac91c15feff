package web

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
)

// fakeAccounts are the tokens by their secrets.
type fakeAccounts map[string]*access.Principal

func (f fakeAccounts) Bearer(secret string) (*access.Principal, error) {
	if p := f[secret]; p != nil {
		return p, nil
	}
	return nil, access.ErrUnknown
}

func (f fakeAccounts) List() (list []access.Token) {
	for _, name := range []string{"operator", "viewer", "tenant", "shop"} {
		if p := f[name]; p != nil {
			list = append(list, access.Token{Principal: *p, Created: time.Now().Add(-time.Hour)})
		}
	}
	return list
}

func (f fakeAccounts) Revoke(_ context.Context, name string) error {
	for secret, p := range f {
		if p.Name == name {
			delete(f, secret)
			return nil
		}
	}
	return access.ErrNotFound
}

var tokens = fakeAccounts{
	"operator": {Name: "ops", Roles: []access.Role{access.Operator}},
	"viewer":   {Name: "watcher", Roles: []access.Role{access.Viewer}},
	"tenant":   {Name: "acme", Roles: []access.Role{access.Viewer}, Tenants: []string{"acme"}},
	"shop":     {Name: "shop", Roles: []access.Role{access.Shop}},
}

// Without a token that may see everything, nothing is shown and nothing is done.
func TestPagesNeedASignIn(t *testing.T) {
	rooms := &fakeRooms{views: []engine.View{{Room: engine.Room{Name: "shop", Settings: room.Settings{Mode: room.Teller, Capacity: 1}}, Phase: room.Open}}}
	d := newTest(t, Options{Accounts: tokens, Rooms: rooms, Bulk: &fakeBulk{actions: []bulk.Action{{Spec: bulk.Spec{ID: "x"}}}}})
	for _, path := range []string{"", "bulk", "bulk/action?name=x", "bulk/tenants", "bulk/targets", "bulk/streams", "bulk/schedules", "bulk/schedule?name=x", "bulk/failures", "bulk/workers", "rooms", "rooms/room?name=shop", "topics", "topics/topic", "topics/records",
		"topics/groups", "topics/group", "topics/reset", "topics/tail", "cluster", "access", "access/audit", "settings", "act?do=pause_room&name=shop", "none"} {
		for _, cookie := range []string{"", "sluice-token=", "sluice-token=wrong", "sluice-token=tenant", "sluice-token=shop", "__Host-sluice=operator"} {
			w := ask(d, "GET", Prefix+path, "", "Cookie", cookie)
			if to := w.Header().Get("Location"); w.Code != http.StatusSeeOther || to != signInPath+"?to="+url.QueryEscape(Prefix+path) {
				t.Errorf("%s with %q: %d %q", path, cookie, w.Code, to)
			}
		}
		if w := ask(d, "GET", Prefix+path, "", "HX-Request", "true"); w.Code != http.StatusUnauthorized || w.Header().Get("HX-Refresh") != "true" || w.Body.Len() > 0 {
			t.Errorf("%s is loaded again without a token: %d %v", path, w.Code, w.Header())
		}
	}
	if w := ask(d, "POST", "/ui/act", "do=pause_room&name=shop"); w.Code != http.StatusSeeOther || len(rooms.did) > 0 {
		t.Errorf("an act without a token: %d, %v", w.Code, rooms.did)
	}
	if w := ask(d, "GET", "/ui/static/style.css", ""); w.Code != http.StatusOK {
		t.Errorf("the sign-in has no style: %d", w.Code)
	}
}

// Viewers read all but records, and see no button; operators act.
func TestRolesOnPages(t *testing.T) {
	rooms := &fakeRooms{views: []engine.View{{Room: engine.Room{Name: "shop", Settings: room.Settings{Mode: room.Teller, Capacity: 1}}, Phase: room.Open}}}
	d := newTest(t, Options{Accounts: tokens, Rooms: rooms, Bulk: &fakeBulk{actions: []bulk.Action{{Spec: bulk.Spec{ID: "x"}, Status: bulk.Running}}}})
	for _, test := range []struct {
		secret  string
		records int
		acts    bool
	}{{"viewer", http.StatusForbidden, false}, {"operator", http.StatusNotFound, true}} {
		rooms.did = nil
		cookie := "sluice-token=" + test.secret
		for _, path := range []string{"rooms/room?name=shop", "bulk/action?name=x"} {
			if page := ask(d, "GET", Prefix+path, "", "Cookie", cookie).Body.String(); strings.Contains(page, "/ui/act") != test.acts {
				t.Errorf("%s: %s has acts: %v", test.secret, path, !test.acts)
			}
		}
		for _, page := range []string{"records", "tail"} {
			if w := ask(d, "GET", "/ui/topics/"+page+"?name=none", "", "Cookie", cookie); w.Code != test.records {
				t.Errorf("%s: %s: %d", test.secret, page, w.Code)
			}
		}
		w := ask(d, "POST", "/ui/act", "do=pause_room&name=shop", "Cookie", cookie)
		if (w.Code == http.StatusForbidden) == test.acts || (len(rooms.did) == 1) != test.acts {
			t.Errorf("%s: an act: %d, %v", test.secret, w.Code, rooms.did)
		}
	}
	says(t, text(t, d, "/ui/rooms", "Cookie", "sluice-token=viewer"), "shop")
	if !strings.Contains(ask(d, "GET", "/ui/rooms", "", "Cookie", "sluice-token=viewer").Body.String(), "<span>watcher</span>") {
		t.Error("the page does not say who has signed in")
	}
}

func TestSignInKeepsTheTokenInACookie(t *testing.T) {
	d := newTest(t, Options{Accounts: tokens})
	for _, secure := range []bool{false, true} {
		for _, test := range []struct{ to, leads string }{
			{"/ui/bulk?status=", "/ui/bulk?status="}, {"", "/ui/"}, {"https://evil.example/ui/", "/ui/"}, {"//evil.example", "/ui/"}, {"/v1/actions", "/ui/"},
		} {
			request := httptest.NewRequest(http.MethodPost, signInPath, strings.NewReader(url.Values{"token": {" viewer\n"}, "to": {test.to}}.Encode()))
			request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			want := "sluice-token=viewer; Path=/; HttpOnly; SameSite=Strict"
			if secure {
				request.TLS, want = &tls.ConnectionState{}, "__Host-sluice=viewer; Path=/; HttpOnly; Secure; SameSite=Strict"
			}
			w := httptest.NewRecorder()
			d.ServeHTTP(w, request)
			if w.Code != http.StatusSeeOther || w.Header().Get("Location") != test.leads || w.Header().Get("Set-Cookie") != want {
				t.Errorf("to %q: %d %v", test.to, w.Code, w.Header())
			}
		}
	}
	if w := ask(d, "POST", signOutPath, "", "Cookie", "sluice-token=viewer"); !strings.Contains(w.Header().Get("Set-Cookie"), "Max-Age=0") {
		t.Errorf("signing out keeps the cookie: %v", w.Header())
	}
}

// Wrong tokens are refused without a cookie, and an address may try a few times only.
func TestSignInRefusesWrongTokens(t *testing.T) {
	d := newTest(t, Options{Accounts: tokens})
	for _, test := range []struct{ token, says string }{{"wrong", "token"}, {"shop", "sees a part of the server only"}, {"tenant", "sees a part of the server only"}} {
		w := ask(d, "POST", signInPath, "token="+test.token)
		if w.Code != http.StatusUnauthorized || !strings.Contains(w.Body.String(), test.says) || w.Header().Get("Set-Cookie") != "" || strings.Contains(w.Body.String(), "value=\""+test.token) {
			t.Errorf("%s: %d %v %s", test.token, w.Code, w.Header(), w.Body)
		}
	}
	last := 0
	for range access.Burst + 1 {
		last = ask(d, "POST", signInPath, "token=wrong").Code
	}
	if last != http.StatusTooManyRequests {
		t.Errorf("after many attempts: %d", last)
	}
	if w := ask(d, "POST", signInPath, "token=operator", "Sec-Fetch-Site", "cross-site"); w.Code != http.StatusForbidden {
		t.Errorf("another site signs somebody in: %d", w.Code)
	}
}
