package gate

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-project/sluice/room"
)

// keep makes an answer of the shop cacheable.
func keep(w http.ResponseWriter) {
	w.Header().Set("Cache-Control", "public, max-age=3600, s-maxage=86400")
	w.Header().Set("Surrogate-Control", "max-age=3600")
	w.Header().Set("X-Accel-Expires", "3600")
	_, _ = io.WriteString(w, "the shop")
}

// A cache in front of the gate never stores a ticket, whatever the shop's headers.
func TestNoCacheKeepsCookies(t *testing.T) {
	newcomer, known := []asker{asPage}, []asker{asPage, ticket(1), pass(1)}
	for name, askers := range map[string][]asker{"who just came": newcomer, "whose pass is old": known, "who leaves": known} {
		s := newStand(t, nil)
		if name == "who just came" {
			s.enterInside = true
		} else {
			s.set(1, room.Inside)
		}
		s.shop.answer = func(w http.ResponseWriter, _ *http.Request) {
			if name == "who leaves" {
				w.Header().Set("Sluice-Release", "pass")
			}
			keep(w)
		}
		response := s.get("http://shop.test/", askers...)
		expect(t, response, http.StatusOK, "the shop")
		header := response.Header
		if len(response.Cookies()) == 0 || header.Get("Cache-Control") != "no-store" || header.Get("Surrogate-Control") != "" || header.Get("X-Accel-Expires") != "" {
			t.Errorf("%s: %v", name, header)
		}
	}
}

// An answer without a cookie of the gate is the shop's.
func TestCachesKeepTheRest(t *testing.T) {
	s := newStand(t, nil)
	s.set(1, room.Inside)
	s.shop.answer = func(w http.ResponseWriter, _ *http.Request) { keep(w) }
	response := s.get("http://shop.test/a.png", asImage, ticket(1), pass(1))
	if got := response.Header.Get("Cache-Control"); len(response.Cookies()) != 0 || !strings.HasPrefix(got, "public") {
		t.Errorf("Cache-Control %q, cookies %v", got, response.Cookies())
	}
}

// Early hints do not drop the answer's cookies: a visitor without them would join again with each
// page.
func TestCookiesComeAfterHints(t *testing.T) {
	s, address := front(t, ProxyOptions{}, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		_, _ = io.WriteString(w, "the shop")
	})
	s.enterInside = true
	response := fetch(t, http.MethodGet, address+"/", "", asPage)
	if cookieOf(response, "sluice_ticket_shop") == nil || cookieOf(response, "sluice_pass_shop") == nil {
		t.Errorf("header = %v", response.Header)
	}
}

// A pass ends at a fraction of a second.
func TestPassEnds(t *testing.T) {
	// The payload is {"exp":1795279144.129}.
	if got := passEnds("e30.eyJleHAiOjE3OTUyNzkxNDQuMTI5fQ.x"); !got.Equal(time.UnixMilli(1795279144129)) {
		t.Errorf("%v", got)
	}
	for _, text := range []string{"", ".", "e30.e30.x", "e30.eyJleHAiOi0xfQ.x", "e30.?.x"} {
		if got := passEnds(text); !got.IsZero() {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// A client controls neither whether the shop receives the pass, nor the other headers of the gate.
func TestPassReachesTheShop(t *testing.T) {
	var got http.Header
	_, address := front(t, ProxyOptions{}, func(_ http.ResponseWriter, r *http.Request) { got = r.Header.Clone() })
	fetch(t, http.MethodGet, address+"/", "", pass(1), header("Connection", "Sluice-Pass"), func(r *http.Request) {
		r.Header["Sluice_Pass"] = []string{"forged"}
		r.Header["sluice_pass"] = []string{"forged"}
	})
	for name, values := range got {
		if strings.Contains(name, "_") || name == "Sluice-Pass" && !slices.Equal(values, []string{"PASS-1"}) {
			t.Errorf("%s = %v", name, values)
		}
	}
	if got.Get("Sluice-Pass") == "" {
		t.Error("the shop did not get the pass")
	}
}

// The gate would not see requests within a connection that was upgraded to another version of HTTP.
func TestProxyUpgradesToNoOtherHTTP(t *testing.T) {
	for _, protocol := range []string{"h2c", "H2C", "websocket, h2c", "HTTP/2.0", "TLS/1.0"} {
		var got http.Header
		s, address := front(t, ProxyOptions{}, func(_ http.ResponseWriter, r *http.Request) { got = r.Header.Clone() })
		s.settings.Bypass = []room.Rule{{Path: "/about"}}
		fetch(t, http.MethodGet, address+"/about", "", header("Connection", "Upgrade, HTTP2-Settings"), header("Upgrade", protocol), header("HTTP2-Settings", "AAMAAABk"))
		if got == nil || got.Get("Upgrade") != "" || got.Get("Connection") != "" || got.Get("HTTP2-Settings") != "" {
			t.Errorf("%s: header = %v", protocol, got)
		}
	}
}

// The page for a shop that does not answer links back to the requested page, also if the shop is
// below a path.
func TestFailedLeadsBack(t *testing.T) {
	s := newStand(t, nil)
	s.set(1, room.Inside)
	address := serveProxy(t, s, ProxyOptions{}, "http://127.0.0.1:1/behind?")
	expect(t, fetch(t, http.MethodGet, address+"/cart?a=1", "", asPage, pass(1)), http.StatusBadGateway, `href="/cart?a=1"`)
}
