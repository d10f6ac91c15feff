package gate

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/text/language"

	"github.com/sluice-project/sluice/room"
)

func TestOptions(t *testing.T) {
	for want, options := range map[string]Options{
		"room":     {Sites: []Site{{Room: "Not a name"}}},
		`"de"`:     {Sites: []Site{{Room: "shop"}}, Languages: append(Languages(), language.German)},
		"template": {Sites: []Site{{Room: "shop", Template: mustParse(t, "{{.No}}")}}},
	} {
		if _, err := New(newFake(), nil, options); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %s", err, want)
		}
	}
}
func TestSecureCookies(t *testing.T) {
	proxies := func(o *Options) { o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")} }
	https := header("X-Forwarded-Proto", "https")
	for _, test := range []struct {
		name   string
		change func(*Options)
		target string
		askers []asker
		want   bool
	}{
		{"plain", nil, "http://shop.test/", nil, false},
		{"TLS", nil, "https://shop.test/", nil, true},
		{"a client says so", nil, "http://shop.test/", []asker{https}, false},
		{"a trusted proxy says so", proxies, "http://shop.test/", []asker{https}, true},
		{"a trusted proxy says http", proxies, "http://shop.test/", []asker{header("X-Forwarded-Proto", "http")}, false},
		{"always", func(o *Options) { o.SecureCookies = true }, "http://shop.test/", nil, true},
	} {
		response := newStand(t, test.change).get(test.target, append(test.askers, asPage)...)
		prefix := ""
		if test.want {
			prefix = "__Host-"
		}
		for _, name := range []string{"sluice_ticket_shop", "sluice_line_shop"} {
			if c := cookieOf(response, prefix+name); c == nil || c.Secure != test.want || c.Path != "/" || c.Domain != "" || len(response.Cookies()) != 2 {
				t.Errorf("%s: %s = %v of %v", test.name, name, c, response.Cookies())
			}
		}
	}
}

// Over TLS, a cookie that another host of the domain may have set is read only if there is none
// that only this host can set.
func TestHostCookies(t *testing.T) {
	const secure, plain = "https://shop.test/", "http://shop.test/"
	own := holding("__Host-sluice_ticket_shop", "ticket-1")
	s := newStand(t, nil)
	s.set(1, room.Waiting)
	s.set(2, room.Waiting)
	if response := s.get(secure, asPage, ticket(2), own, holding("__Host-sluice_line_shop", "1.")); len(response.Cookies()) != 0 || !strings.Contains(response.body, "You are next.") {
		t.Errorf("another host's ticket counts: cookies %v", response.Cookies())
	}
	for name, value := range map[string]string{"empty": "", "not valid": "x"} {
		response := s.get(secure, asPage, ticket(2), holding("__Host-sluice_ticket_shop", value))
		if c := cookieOf(response, "__Host-sluice_ticket_shop"); c == nil || c.Value == "ticket-2" {
			t.Errorf("%s: the ticket is %v", name, c)
		}
	}
	// A ticket that an earlier release set is kept, under the new name.
	entered := len(s.entered)
	response := s.get(secure, asPage, ticket(2))
	if c := cookieOf(response, "__Host-sluice_ticket_shop"); c == nil || c.Value != "ticket-2" || len(s.entered) != entered {
		t.Errorf("the ticket is %v, %d entered", c, len(s.entered)-entered)
	}
	if c := cookieOf(response, "sluice_ticket_shop"); c == nil || c.MaxAge >= 0 {
		t.Errorf("the old cookie is %v", c)
	}
	s.set(2, room.Inside)
	response = s.get(secure, asPage, ticket(2), pass(2))
	expect(t, response, http.StatusOK, "the shop")
	// Leaving removes the cookies of both names.
	response = s.ask(http.MethodPost, secure+".sluice/shop/leave", "", asPage, asForm, ticket(2), own)
	for _, name := range []string{"__Host-sluice_ticket_shop", "sluice_ticket_shop"} {
		if c := cookieOf(response, name); c == nil || c.MaxAge >= 0 {
			t.Errorf("after leaving, %s = %v", name, c)
		}
	}
	// Without TLS, browsers keep and send no such cookie: one is not the visitor's.
	entered = len(s.entered)
	s.get(plain, asPage, own)
	if len(s.entered) != entered+1 {
		t.Error("a cookie with __Host- counts without TLS")
	}
}

func TestLanguages(t *testing.T) {
	for accept, want := range map[string]string{
		"": "en", "ko": "ko", "ko-KR,ko;q=0.9,en;q=0.8": "ko", "en-GB,ko;q=0.5": "en", "de": "en", "de,ko;q=0.3": "ko",
		"en;q=0.1,ko;q=0.9": "ko", "ja-JP,en;q=0.5": "ja", "zh-CN,zh;q=0.9,en;q=0.8": "zh-Hans", "zh": "zh-Hans",
		";;;": "en", strings.Repeat("ko,", 1_000): "en",
	} {
		s := newStand(t, nil)
		response := s.get("http://shop.test/", asPage, header("Accept-Language", accept))
		if got := response.Header.Get("Content-Language"); got != want {
			t.Errorf("%.30q: %q; want %q", accept, got, want)
		}
		expect(t, response, http.StatusOK, `<html lang="`+want+`" dir="ltr">`)
	}
	s := newStand(t, func(o *Options) { o.Languages = Languages()[1:2] })
	if got := s.get("http://shop.test/", asPage, header("Accept-Language", "en")).Header.Get("Content-Language"); got != "ko" {
		t.Errorf("the only language is ko, and the page is in %q", got)
	}
}

func TestLanguagesAreThoseWritten(t *testing.T) {
	for tag, want := range map[string]string{"en-GB": "en", "ko": "ko", "ja-JP": "ja", "zh": "zh-Hans", "zh-CN": "zh-Hans", "zh-TW": "", "zh-Hant": "", "ja-Latn": "", "de": ""} {
		c, err := newChooser([]language.Tag{language.MustParse(tag)}, nil)
		switch {
		case want == "" && (err == nil || !strings.Contains(err.Error(), "en ko ja zh-Hans")):
			t.Errorf("%s: %v; want an error that lists the languages", tag, err)
		case want != "" && (err != nil || c.words[0].Lang != want):
			t.Errorf("%s: %v; want %s", tag, err, want)
		}
	}
}
