package gate

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/text/language"
)

func TestOptions(t *testing.T) {
	for want, options := range map[string]Options{
		"room":     {Room: "Not a name"},
		`"de"`:     {Room: "shop", Languages: append(Languages(), language.German)},
		"template": {Room: "shop", Template: mustParse(t, "{{.No}}")},
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
		if c := cookieOf(response, "sluice_ticket_shop"); c == nil || c.Secure != test.want {
			t.Errorf("%s: cookie = %v", test.name, c)
		}
	}
}

func TestLanguages(t *testing.T) {
	for accept, want := range map[string]string{
		"": "en", "ko": "ko", "ko-KR,ko;q=0.9,en;q=0.8": "ko", "en-GB,ko;q=0.5": "en", "de": "en", "de,ko;q=0.3": "ko",
		"en;q=0.1,ko;q=0.9": "ko", ";;;": "en", strings.Repeat("ko,", 1_000): "en",
	} {
		s := newStand(t, nil)
		response := s.get("http://shop.test/", asPage, header("Accept-Language", accept))
		if got := response.Header.Get("Content-Language"); got != want {
			t.Errorf("%.30q: %q; want %q", accept, got, want)
		}
		expect(t, response, http.StatusOK, `<html lang="`+want+`">`)
	}
	s := newStand(t, func(o *Options) { o.Languages = Languages()[1:] })
	if got := s.get("http://shop.test/", asPage, header("Accept-Language", "en")).Header.Get("Content-Language"); got != "ko" {
		t.Errorf("the only language is ko, and the page is in %q", got)
	}
}
