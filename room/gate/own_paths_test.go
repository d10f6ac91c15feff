package gate

import (
	"context"
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

// riddle is a challenge whose answer is 42.
type riddle struct{}

func (riddle) Passed(_ context.Context, r *http.Request, _ Newcomer) (bool, error) {
	return r.PostFormValue("answer") == "42", nil
}

func (riddle) Widget(context.Context, Newcomer) (*Widget, error) { return &Widget{}, nil }

// A script enters as a page does: it gets a place, or the pass, in cookies that it does not see.
func TestEnterByScript(t *testing.T) {
	const path = "http://shop.test/.sluice/shop/enter"
	s := newStand(t, nil)
	response := s.ask(http.MethodPost, path, "", asProgram, asForm)
	expect(t, response, http.StatusAccepted, `"status":"waiting"`, `"position":1`, `"ticket":null`)
	if c := cookieOf(response, "sluice_ticket_shop"); c == nil || !c.HttpOnly {
		t.Errorf("cookies %v", response.Cookies())
	}
	s.set(1, room.Waiting)
	expect(t, s.ask(http.MethodPost, path, "", asProgram, asForm, ticket(1)), http.StatusAccepted, `"position":1`)
	s.set(1, room.Called)
	response = s.ask(http.MethodPost, path, "", asProgram, asForm, ticket(1))
	expect(t, response, http.StatusOK, `"status":"inside"`, `"pass":null`)
	if c := cookieOf(response, "sluice_pass_shop"); c == nil || c.Value != "PASS-1" {
		t.Errorf("cookies %v", response.Cookies())
	}
	expect(t, s.ask(http.MethodPost, path, "", asProgram, asForm, pass(1)), http.StatusOK, `"status":"inside"`, `"pass":null`)
	if len(s.entered) != 1 || !s.entered[0].Provisional {
		t.Errorf("entered %+v, want one newcomer, provisionally", s.entered)
	}
	s.goneFor(2, room.Expired)
	expect(t, s.ask(http.MethodPost, path, "", asProgram, asForm, ticket(2)), http.StatusGone, `"reason":"expired"`)
	s.enter = room.ErrLineFull
	expect(t, s.ask(http.MethodPost, path, "", asProgram, asForm), http.StatusServiceUnavailable, `"code":"line_full"`)
	s.away = room.ErrUnavailable
	expect(t, s.ask(http.MethodPost, path, "", asProgram, asForm), http.StatusServiceUnavailable, `"code":"unavailable"`)
	s.settings.OnStoreFailure = room.FailOpen
	expect(t, s.ask(http.MethodPost, path, "", asProgram, asForm), http.StatusOK, `"status":"inside"`)
	if s.shop.requests != 0 {
		t.Error("the shop saw the gate's own path")
	}
}

// Scripts have the rules of pages: no other site joins for a visitor, and a challenge has to be passed.
func TestScriptsHaveTheRulesOfPages(t *testing.T) {
	const path = "http://shop.test/.sluice/shop/enter"
	for _, foreign := range []asker{header("Sec-Fetch-Site", "cross-site"), header("Sec-Fetch-Site", "same-site"), header("Origin", "https://evil.test")} {
		s := newStand(t, nil)
		response := s.ask(http.MethodPost, path, "", asProgram, foreign)
		expect(t, response, http.StatusForbidden)
		if len(s.entered) != 0 || len(response.Cookies()) != 0 {
			t.Errorf("entered %v, cookies %v", s.entered, response.Cookies())
		}
	}
	s := newStand(t, func(o *Options) { o.Challenge = riddle{} })
	s.set(1, room.Inside)
	expect(t, s.ask(http.MethodPost, path, "", asProgram, asForm), http.StatusForbidden, `"code":"challenge"`)
	expect(t, s.ask(http.MethodPost, path, "", asProgram, asForm, ticket(1)), http.StatusForbidden, `"code":"challenge"`)
	if len(s.entered) != 0 {
		t.Errorf("entered %v without the challenge", s.entered)
	}
	expect(t, s.ask(http.MethodPost, path, "answer=42", asProgram, asForm), http.StatusAccepted, `"position":2`)
}

// Scripts see by a header that the gate has held a request, and only then.
func TestHeldRequestsSaySo(t *testing.T) {
	s := newStand(t, nil)
	s.set(1, room.Inside)
	for name, as := range map[string]asker{"page": asPage, "program": asProgram, "part": asImage} {
		if got := s.get("http://shop.test/", as).Header.Get(WaitHeader); got != "shop" {
			t.Errorf("%s: %q", name, got)
		}
		if got := s.get("http://shop.test/", as, pass(1)).Header.Get(WaitHeader); got != "" {
			t.Errorf("%s inside: %q", name, got)
		}
	}
	s.known = room.ErrUnavailable
	if got := s.get("http://shop.test/", asProgram).Header.Get(WaitHeader); got != "shop" {
		t.Errorf("without a store: %q", got)
	}
}

func TestAppScript(t *testing.T) {
	response := newStand(t, nil).get("http://any.test/.sluice/sluice.js")
	body := expect(t, response, http.StatusOK, "sluice.room")
	if len(body) > 6<<10 || !strings.Contains(response.Header.Get("Cache-Control"), "public") {
		t.Errorf("%d bytes, %v", len(body), response.Header)
	}
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
