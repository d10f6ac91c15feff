package gate

import (
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/sluice-project/sluice/room"
)

var hidden = regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)">`)

// A form with which a provider sends a visitor back reaches the shop, whole and with the visitor's
// cookies: the browser is given it again by a page of this site.
func TestReturns(t *testing.T) {
	s := newStand(t, func(o *Options) { o.Sites[0].Returns = []string{"/paid", "/saml/*"} })
	s.set(1, room.Inside)
	const form = `order=1&note=%22%3E%3Cscript%3E+%EA%B0%80&empty=&order=2&submit=x`
	response := s.ask(http.MethodPost, "http://shop.test/paid?a=1&b=2", form, asPage, asForm, header("Sec-Fetch-Site", "cross-site"))
	body := expect(t, response, http.StatusOK, `<form method="post" action="/paid?a=1&amp;b=2">`, "<button", "submit.call(")
	var again []string
	for _, found := range hidden.FindAllStringSubmatch(body, -1) {
		again = append(again, url.QueryEscape(html.UnescapeString(found[1]))+"="+url.QueryEscape(html.UnescapeString(found[2])))
	}
	if got := strings.Join(again, "&"); got != form {
		t.Errorf("the page sends %s; want %s", got, form)
	}
	_, nonce, _ := strings.Cut(body, `<script nonce="`)
	nonce, _, _ = strings.Cut(nonce, `"`)
	policy := response.Header.Get("Content-Security-Policy")
	if len(nonce) < 22 || !strings.Contains(policy, "default-src 'none'; script-src 'nonce-"+nonce+"';") || response.Header.Get("Cache-Control") != "no-store" ||
		response.Header.Get("Referrer-Policy") != "same-origin" || len(s.entered) != 0 || s.shop.requests != 0 {
		t.Errorf("%v, %d entered", response.Header, len(s.entered))
	}
	expect(t, s.ask(http.MethodPost, "http://shop.test/paid?a=1&b=2", form, asPage, asForm, pass(1)), http.StatusOK, "the shop")
}

// No other form is sent again: it is redirected as before.
func TestOtherFormsDoNotReturn(t *testing.T) {
	foreign := header("Sec-Fetch-Site", "cross-site")
	for name, test := range map[string]struct {
		path, form string
		askers     []asker
	}{
		"another path":    {"/cart", "a=1", nil},
		"another reading": {"/saml/../cart", "a=1", nil},
		"too long":        {"/paid", "a=" + strings.Repeat("x", MaxForm), nil},
		"another kind":    {"/paid", "a=1", []asker{header("Content-Type", "text/plain")}},
		"no text":         {"/paid", "a=%FF", nil},
		"no form":         {"/paid", "a=%zz", nil},
		"nothing":         {"/paid", "", nil},
	} {
		s := newStand(t, func(o *Options) { o.Sites[0].Returns = []string{"/paid", "/saml/*"} })
		response := s.ask(http.MethodPost, "http://shop.test"+test.path, test.form, append([]asker{asPage, asForm, foreign}, test.askers...)...)
		if response.StatusCode != http.StatusSeeOther || len(s.entered) != 0 {
			t.Errorf("%s: %d, %d entered", name, response.StatusCode, len(s.entered))
		}
	}
}
