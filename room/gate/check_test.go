package gate

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/sluice-project/sluice/room"
)

// newChecked returns a gate that the proxies of httptest's address may ask. Visitor 1 is inside.
func newChecked(t *testing.T) *stand {
	t.Helper()
	s := newStand(t, func(o *Options) { o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")} })
	s.settings.Bypass = []room.Rule{{Path: "/about"}, {Host: "static.test"}, {Method: "OPTIONS"}}
	s.set(1, room.Inside)
	return s
}

const checkURL = "http://gate.internal" + CheckPath

// Whatever a proxy is, its gate judges the request that the client sent.
func TestCheckReadsTheRequest(t *testing.T) {
	for name, test := range map[string]struct {
		method, url string
		askers      []asker
		permitted   bool
	}{
		"Traefik and Caddy": {"GET", checkURL, []asker{header("X-Forwarded-Uri", "/about?a=1"), header("X-Forwarded-Method", "POST"), header("X-Forwarded-Host", "shop.test")}, true},
		"auth_request":      {"GET", checkURL, []asker{header("X-Original-URI", "/about")}, true},
		"an Ingress":        {"GET", checkURL, []asker{header("X-Original-URL", "https://shop.test/about?x"), header("X-Original-Method", "GET")}, true},
		"Envoy":             {"GET", checkURL + "/about?on=status", nil, true},
		"another path":      {"GET", checkURL, []asker{header("X-Forwarded-Uri", "/cart")}, false},
		"Envoy's own path":  {"GET", checkURL + "/", nil, false},
		"by host":           {"GET", checkURL, []asker{header("X-Forwarded-Uri", "/"), header("X-Forwarded-Host", "static.test")}, true},
		"by host of a URL":  {"GET", checkURL, []asker{header("X-Original-URL", "https://static.test/")}, true},
		"by method":         {"GET", checkURL, []asker{header("X-Forwarded-Uri", "/"), header("X-Forwarded-Method", "OPTIONS")}, true},
		"of the proxy":      {"OPTIONS", checkURL + "/cart", nil, true},
		"a hidden path":     {"GET", checkURL, []asker{header("X-Forwarded-Uri", "/about/../cart")}, false},
	} {
		s := newChecked(t)
		response := s.ask(test.method, test.url, "", append(test.askers, asPage)...)
		want := http.StatusTooManyRequests
		if test.permitted {
			want = http.StatusOK
		}
		expect(t, response, want)
		if response.Header.Get("Cache-Control") != "no-store" || s.shop.requests != 0 || test.permitted != (len(response.Cookies()) == 0) {
			t.Errorf("%s: %v", name, response.Header)
		}
	}
}

// A proxy passes on what a client writes into headers, so a second opinion on the request is an
// error; only trusted proxies are answered.
func TestCheckIsNotFooled(t *testing.T) {
	asked := header("X-Original-URI", "/cart")
	for name, test := range map[string]struct {
		askers []asker
		status int
		want   string
	}{
		"another address":     {[]asker{asked, func(r *http.Request) { r.RemoteAddr = "203.0.113.9:1" }}, http.StatusForbidden, "gate.trusted_proxies"},
		"another path":        {[]asker{asked, header("X-Forwarded-Uri", "/about")}, http.StatusBadRequest, "more than one path"},
		"twice":               {[]asker{asked, func(r *http.Request) { r.Header.Add("X-Original-URI", "/about") }}, http.StatusBadRequest, "more than one path"},
		"another URL":         {[]asker{asked, header("X-Original-URL", "http://shop.test/about")}, http.StatusBadRequest, "more than one path"},
		"another host":        {[]asker{header("X-Forwarded-Host", "static.test"), header("X-Original-URL", "http://shop.test/cart")}, http.StatusBadRequest, "more than one host"},
		"another method":      {[]asker{asked, header("X-Original-Method", "POST"), header("X-Forwarded-Method", "OPTIONS")}, http.StatusBadRequest, "more than one method"},
		"nothing":             {nil, http.StatusBadRequest, "X-Forwarded-Uri or X-Original-URI"},
		"no path":             {[]asker{header("X-Original-URI", "cart")}, http.StatusBadRequest, "begins with /"},
		"no URL":              {[]asker{header("X-Original-URL", "/cart")}, http.StatusBadRequest, "with a host"},
		"a tunnel":            {[]asker{asked, header("X-Original-Method", "CONNECT")}, http.StatusMethodNotAllowed, "tunnel"},
		"the page to a guest": {[]asker{asked, func(r *http.Request) { r.RemoteAddr, r.URL.Path = "203.0.113.9:1", PagePath }}, http.StatusForbidden, "gate.trusted_proxies"},
	} {
		s := newChecked(t)
		expect(t, s.ask("GET", checkURL, "", append(test.askers, asPage)...), test.status, test.want)
		if len(s.entered) != 0 {
			t.Errorf("%s: a place was taken", name)
		}
	}
	// Headers that a visitor forges do not come back as those of the gate.
	s := newChecked(t)
	response := s.get(checkURL, header("X-Original-URI", "/about"), header(PassHeader, "forged"), header(VisitorHeader, "7"), header(RoomHeader, "vip"))
	expect(t, response, http.StatusOK)
	for _, name := range visitorHeaders {
		if response.Header.Get(name) != "" {
			t.Errorf("%s: %q", name, response.Header.Get(name))
		}
	}
}

// Visitors inside are named to the proxy, with their cookies; the others get their answer.
func TestCheckAnswers(t *testing.T) {
	s := newChecked(t)
	asked := header("X-Forwarded-Uri", "/cart")
	response := s.get(checkURL, asked, asPage, ticket(1))
	expect(t, response, http.StatusOK)
	for name, want := range map[string]string{PassHeader: "PASS-1", VisitorHeader: "1", RoomHeader: "shop"} {
		if got := response.Header.Get(name); got != want {
			t.Errorf("%s = %q; want %q", name, got, want)
		}
	}
	if cookie := response.Header.Get(CookieHeader + "1"); cookieOf(response, "sluice_pass_shop") == nil || !strings.HasPrefix(cookie, "sluice_pass_shop=PASS-1;") {
		t.Errorf("the cookies are %v", response.Header)
	}
	response = s.get(checkURL, asked, asPage)
	expect(t, response, http.StatusTooManyRequests, "You are in line", `value="/cart"`)
	if cookieOf(response, "sluice_ticket_shop") == nil || response.Header.Get("Retry-After") != "4" || response.Header.Get(CookieHeader+"1") != "" {
		t.Errorf("the page comes with %v", response.Header)
	}
	expect(t, s.get(checkURL, asked, asProgram, ticket(2)), http.StatusTooManyRequests, `"position":2`)
	expect(t, s.get(checkURL, asked, asImage), http.StatusServiceUnavailable, "waiting room")
	s.goneFor(2, room.Revoked)
	expect(t, s.get(checkURL, asked, asPage, ticket(2)), http.StatusGone, `data-kind="gone"`)
}

// A check by GET about a HEAD, whose answer has no body, keeps the proxy's connection whole.
func TestCheckOfHead(t *testing.T) {
	s := newStand(t, func(o *Options) { o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} })
	server := httptest.NewServer(s.handler)
	t.Cleanup(server.Close)
	response := fetch(t, "GET", server.URL+CheckPath, "", header("X-Forwarded-Uri", "/"), header("X-Forwarded-Method", "HEAD"))
	expect(t, response, http.StatusServiceUnavailable)
}

// A proxy that cannot send a page on asks for a status, and then for the page: together they are
// one visit.
func TestStatusThenPage(t *testing.T) {
	s := newChecked(t)
	asked := header("X-Original-URI", "/cart?a=1")
	response := s.get(checkURL+"?on=status", asked, asPage)
	if body := expect(t, response, http.StatusUnauthorized); body != "" || response.Header.Get("Content-Type") != "" || len(s.entered) != 1 {
		t.Errorf("%q, %v, %d entered", body, response.Header, len(s.entered))
	}
	handed := header(CookieHeader+"1", response.Header.Get(CookieHeader+"1"))
	note := header(CookieHeader+"2", response.Header.Get(CookieHeader+"2"))
	page := s.get("http://gate.internal"+PagePath, asked, asPage, handed, note)
	expect(t, page, http.StatusOK, "You are in line", `value="/cart?a=1"`)
	if c := cookieOf(page, "sluice_ticket_shop"); c == nil || c.Value != "ticket-2" || cookieOf(page, "sluice_line_shop") == nil || len(s.entered) != 1 {
		t.Errorf("the cookies are %v; %d entered", page.Cookies(), len(s.entered))
	}
	// The visitor is called before the page is made.
	s.set(2, room.Called)
	page = s.get("http://gate.internal"+PagePath, asked, asPage, handed)
	expect(t, page, http.StatusSeeOther)
	if page.Header.Get("Location") != "/cart?a=1" || cookieOf(page, "sluice_pass_shop") == nil {
		t.Errorf("called: %v", page.Header)
	}
	expect(t, s.get(checkURL+"?on=status", asked, asPage, pass(2)), http.StatusOK)
	s.goneFor(2, room.Revoked)
	expect(t, s.get(checkURL+"?on=status", asked, asPage, ticket(2)), http.StatusUnauthorized)
}
