package gate

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/watch"
)

func TestOwnPaths(t *testing.T) {
	s := newStand(t, nil)
	s.set(1, room.Waiting)
	s.set(2, room.Called)
	response := s.get("http://shop.test/.sluice/shop/status", ticket(1))
	expect(t, response, http.StatusOK, `"position":1`, `"status":"waiting"`, `"ticket":null`)
	if response.Header.Get("Content-Type") != "application/json" || response.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("header = %v", response.Header)
	}
	expect(t, s.get("http://shop.test/.sluice/shop/status", ticket(2)), http.StatusOK, `"status":"called"`)
	if s.claims != 0 {
		t.Error("the status claimed the slot")
	}
	expect(t, s.get("http://shop.test/.sluice/shop/status"), http.StatusUnauthorized, `"code":"bad_ticket"`)
	// The ticket is of an earlier room of that name: the page has to load again, and joins. A browser
	// that refuses cookies brings none.
	expect(t, s.get("http://shop.test/.sluice/shop/status", ticket(7)), http.StatusGone, `"reason":"forgotten"`)
	s.goneFor(3, room.Abandoned)
	expect(t, s.get("http://shop.test/.sluice/shop/status", ticket(3)), http.StatusGone, `"reason":"abandoned"`)

	expect(t, s.get("http://shop.test/.sluice/shop/watch", ticket(1)), http.StatusOK, `"ticket":null`)
	if got := s.streams.specs; len(got) != 1 || got[0].Claim || got[0].Room != "shop" || got[0].Ticket.Number != 1 {
		t.Errorf("streams = %+v", got)
	}
	expect(t, s.get("http://shop.test/.sluice/shop/watch"), http.StatusUnauthorized)
	s.streams.err = watch.ErrTooMany
	expect(t, s.get("http://shop.test/.sluice/shop/watch", ticket(1)), http.StatusServiceUnavailable, "too_many_streams")
	s.away = room.ErrUnavailable
	expect(t, s.get("http://shop.test/.sluice/shop/status", ticket(1)), http.StatusServiceUnavailable, `"code":"unavailable"`)

	expect(t, s.get("http://shop.test/.sluice/shop/nothing"), http.StatusNotFound)
	expect(t, s.get("http://shop.test/.sluice/shop/leave"), http.StatusMethodNotAllowed)
	expect(t, s.get("http://shop.test/.sluice/shop/release.js"), http.StatusOK, "sluice.release")
	if s.shop.requests != 0 {
		t.Error("the shop saw the gate's own paths")
	}
	// Paths of another gate are for the shop.
	s.away = nil
	s.set(4, room.Inside)
	expect(t, s.get("http://shop.test/.sluice/other/status", pass(4)), http.StatusOK, "the shop")
}

// A page renews its visitor's fixed pass, with the ticket that no script sees.
func TestRenew(t *testing.T) {
	const path = "http://shop.test/.sluice/shop/renew"
	s := newStand(t, nil)
	s.set(1, room.Inside)
	expect(t, s.ask(http.MethodPost, path, "", asForm, ticket(1)), http.StatusConflict, `"code":"not_renewable"`)
	s.settings.Renewals = 1
	response := s.ask(http.MethodPost, path, "", asForm, ticket(1))
	expect(t, response, http.StatusOK, `"status":"inside"`, `"ticket":null`, `"pass":null`)
	if c := cookieOf(response, "sluice_pass_shop"); c == nil || c.Value != "PASS-1" {
		t.Errorf("cookies %v", response.Cookies())
	}
	expect(t, s.ask(http.MethodPost, path, "", header("Sec-Fetch-Site", "cross-site"), ticket(1)), http.StatusForbidden)
	expect(t, s.ask(http.MethodPost, path, "", asForm), http.StatusUnauthorized, `"code":"bad_ticket"`)
	s.away = room.ErrUnavailable
	expect(t, s.ask(http.MethodPost, path, "", asForm, ticket(1)), http.StatusServiceUnavailable)
}

func TestLeave(t *testing.T) {
	form := url.Values{"to": {"/cart?a=1"}}.Encode()
	s := newStand(t, nil)
	s.set(1, room.Waiting)
	response := s.ask(http.MethodPost, "http://shop.test/.sluice/shop/leave", form, asPage, asForm, ticket(1), holding("sluice_line_shop", "1."))
	expect(t, response, http.StatusSeeOther)
	if got := response.Header.Get("Location"); got != "/.sluice/shop/left?to=%2Fcart%3Fa%3D1" {
		t.Errorf("Location = %q", got)
	}
	for _, name := range []string{"sluice_ticket_shop", "sluice_line_shop"} {
		if c := cookieOf(response, name); c == nil || c.MaxAge >= 0 {
			t.Errorf("%s = %v", name, c)
		}
	}
	if len(s.left) != 1 || s.left[0] != "ticket-1" {
		t.Errorf("left = %v", s.left)
	}
	expect(t, s.get("http://shop.test/.sluice/shop/left?to=%2Fcart%3Fa%3D1", asPage), http.StatusOK, "You have left", `value="/cart?a=1"`)
	if len(s.entered) != 0 {
		t.Error("the page that says so has joined again")
	}
	response = s.ask(http.MethodPost, "http://shop.test/.sluice/shop/join", form, asPage, asForm, ticket(1))
	expect(t, response, http.StatusSeeOther)
	if c := cookieOf(response, "sluice_ticket_shop"); c == nil || c.MaxAge >= 0 || response.Header.Get("Location") != "/cart?a=1" {
		t.Errorf("%v, Location %q", c, response.Header.Get("Location"))
	}

	// A beacon, with a pass alone, from a page of the shop.
	s.set(2, room.Inside)
	expect(t, s.ask(http.MethodPost, "http://shop.test/.sluice/shop/leave", "", pass(2), header("Accept", "*/*"), header("Sec-Fetch-Dest", "empty"),
		header("Sec-Fetch-Site", "same-origin")), http.StatusNoContent)
	if len(s.left) != 2 || s.left[1] != "PASS-2" {
		t.Errorf("left = %v", s.left)
	}
	// Without a place, leaving has no effect; while the store is away the place stays.
	expect(t, s.ask(http.MethodPost, "http://shop.test/.sluice/shop/leave", "", header("Sec-Fetch-Dest", "empty")), http.StatusNoContent)
	s.set(3, room.Waiting)
	s.away = room.ErrUnavailable
	response = s.ask(http.MethodPost, "http://shop.test/.sluice/shop/leave", "", asPage, ticket(3))
	expect(t, response, http.StatusServiceUnavailable)
	if len(response.Cookies()) != 0 {
		t.Error("the ticket was thrown away though the place is kept")
	}
}

func TestOtherSitesCannotLeave(t *testing.T) {
	for name, askers := range map[string][]asker{
		"cross-site": {header("Sec-Fetch-Site", "cross-site")},
		"same-site":  {header("Sec-Fetch-Site", "same-site")},
		"origin":     {header("Origin", "https://evil.test")},
	} {
		for _, path := range []string{"leave", "join"} {
			s := newStand(t, nil)
			s.set(1, room.Waiting)
			response := s.ask(http.MethodPost, "http://shop.test/.sluice/shop/"+path, "", append(askers, asPage, ticket(1))...)
			expect(t, response, http.StatusForbidden, `data-kind="refused"`)
			if len(s.left) != 0 || len(response.Cookies()) != 0 {
				t.Errorf("%s: left = %v, cookies = %v", name, s.left, response.Cookies())
			}
		}
	}
	s := newStand(t, nil)
	s.set(1, room.Waiting)
	expect(t, s.ask(http.MethodPost, "http://shop.test/.sluice/shop/leave", "", asPage, ticket(1), header("Origin", "http://shop.test")), http.StatusSeeOther)
}

func TestReturnStaysHere(t *testing.T) {
	for to, want := range map[string]string{
		"/a?b=c": "/a?b=c", "": "/", "https://evil.test/": "/", "//evil.test": "/", `/\evil.test`: "/", "/a\r\nX: 1": "/", "javascript:alert(1)": "/",
		"/" + strings.Repeat("a", MaxForm): "/",
	} {
		if got := localPath(to); got != want {
			t.Errorf("%.30q: %q; want %q", to, got, want)
		}
	}
}

func TestBodiesAreBounded(t *testing.T) {
	s := newStand(t, nil)
	s.set(1, room.Waiting)
	response := s.ask(http.MethodPost, "http://shop.test/.sluice/shop/join", "to=/"+strings.Repeat("a", MaxForm), asPage, asForm, ticket(1))
	if got := response.Header.Get("Location"); got != "/" {
		t.Errorf("Location has %d bytes", len(got))
	}
}
