package gate

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/sluice-project/sluice/room"
)

// provide starts a provider's server, and returns a challenge that uses it.
func provide(t *testing.T, options SiteverifyOptions, answer http.HandlerFunc) *Siteverify {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	options.URL, options.Transport, options.SiteKey, options.Secret = server.URL+"/siteverify", transport, "site", "secret"
	if options.Provider == "" {
		options.Provider = Turnstile
	}
	challenge, err := NewSiteverify(options)
	if err != nil {
		t.Fatal(err)
	}
	return challenge
}

func proof(field, value string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/", http.NoBody)
	r.PostForm = url.Values{field: {value}}
	return r
}

func TestSiteverify(t *testing.T) {
	for answer, want := range map[string]struct {
		passed, failed bool
	}{
		`{"success":true,"hostname":"shop.test"}`:                  {passed: true},
		`{"success":false,"error-codes":["timeout-or-duplicate"]}`: {},
		`{"success":true,"hostname":"other.test"}`:                 {},
		`{"success":false,"error-codes":["invalid-input-secret"]}`: {failed: true},
		`{}`:                {failed: true},
		`<html>`:            {failed: true},
		`{"success":"yes"}`: {failed: true},
		`{"success":true,"x":"` + strings.Repeat("a", maxVerdict) + `"}`: {failed: true},
	} {
		var got url.Values
		challenge := provide(t, SiteverifyOptions{Hostname: "shop.test"}, func(w http.ResponseWriter, r *http.Request) {
			_ = r.ParseForm()
			got = r.PostForm
			_, _ = io.WriteString(w, answer)
		})
		passed, err := challenge.Passed(t.Context(), proof("cf-turnstile-response", "proof"), Newcomer{Client: netip.MustParseAddr("192.0.2.7")})
		if passed != want.passed || (err != nil) != want.failed {
			t.Errorf("%.60s: %v, %v", answer, passed, err)
		}
		if got.Get("secret") != "secret" || got.Get("response") != "proof" || got.Get("remoteip") != "192.0.2.7" {
			t.Errorf("sent %v", got)
		}
		if err != nil && strings.Contains(err.Error(), "secret\"") {
			t.Errorf("the secret is in %v", err)
		}
	}
}

func TestSiteverifyAsksOnlyWithAProof(t *testing.T) {
	challenge := provide(t, SiteverifyOptions{}, func(http.ResponseWriter, *http.Request) { t.Error("asked") })
	for _, r := range []*http.Request{
		httptest.NewRequest(http.MethodGet, "/", http.NoBody), proof("cf-turnstile-response", strings.Repeat("x", maxProof+1)),
	} {
		if passed, err := challenge.Passed(t.Context(), r, Newcomer{}); passed || err != nil {
			t.Errorf("%v, %v", passed, err)
		}
	}
}

// Where the provider is away its widget makes no proof: a form without one asks, now and then,
// whether it answers.
func TestFormsWithoutAProofAskForTheProvider(t *testing.T) {
	away, asked := false, 0
	challenge := provide(t, SiteverifyOptions{}, func(w http.ResponseWriter, _ *http.Request) {
		if asked++; away {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		_, _ = io.WriteString(w, `{"success":false}`)
	})
	for _, test := range []struct {
		away, later bool
		failed      bool
		asked       int
	}{
		{asked: 1}, {away: true, asked: 1}, {away: true, later: true, failed: true, asked: 2}, {failed: true, asked: 2}, {later: true, asked: 3},
	} {
		if away = test.away; test.later {
			challenge.probed = challenge.probed.Add(-reachEvery)
		}
		passed, err := challenge.Passed(t.Context(), proof("cf-turnstile-response", ""), Newcomer{})
		if passed || (err != nil) != test.failed || asked != test.asked {
			t.Errorf("%+v: %v, %v, asked %d times", test, passed, err, asked)
		}
	}
}

func TestSilentProviderIsLeft(t *testing.T) {
	stop := make(chan struct{})
	challenge := provide(t, SiteverifyOptions{}, func(http.ResponseWriter, *http.Request) { <-stop })
	defer close(stop)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := challenge.Passed(ctx, proof("cf-turnstile-response", "x"), Newcomer{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("err = %v", err)
	}
}

func TestSiteverifyOptions(t *testing.T) {
	for want, options := range map[string]SiteverifyOptions{
		"turnstile, hcaptcha or recaptcha": {Provider: "x", SiteKey: "a", Secret: "b"},
		"site key":                         {Provider: HCaptcha, Secret: "b"},
		"the secret":                       {Provider: HCaptcha, SiteKey: "a"},
		"http://":                          {Provider: HCaptcha, SiteKey: "a", Secret: "b", URL: "ftp://x"},
	} {
		if _, err := NewSiteverify(options); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %s", err, want)
		}
	}
}

func TestChallenge(t *testing.T) {
	challenge := provide(t, SiteverifyOptions{}, func(w http.ResponseWriter, r *http.Request) {
		switch r.PostFormValue("response") {
		case "good":
			_, _ = io.WriteString(w, `{"success":true}`)
		case "broken":
			w.WriteHeader(http.StatusBadGateway)
		default:
			_, _ = io.WriteString(w, `{"success":false}`)
		}
	})
	s := newStand(t, func(o *Options) { o.Challenge = challenge })
	response := s.get("http://shop.test/cart", asPage)
	expect(t, response, http.StatusForbidden, `data-sitekey="site"`, `action="/.sluice/shop/enter"`, `value="/cart"`,
		`src="https://challenges.cloudflare.com/turnstile/v0/api.js"`)
	if policy := response.Header.Get("Content-Security-Policy"); !strings.Contains(policy, "frame-src 'self' https://challenges.cloudflare.com") {
		t.Errorf("policy = %q", policy)
	}
	expect(t, s.get("http://shop.test/cart", asProgram), http.StatusForbidden, `"code":"challenge"`)
	send := func(value string, askers ...asker) *reply {
		form := url.Values{"to": {"/cart"}, "cf-turnstile-response": {value}}.Encode()
		return s.ask(http.MethodPost, "http://shop.test/.sluice/shop/enter", form, append(askers, asPage, asForm)...)
	}
	for value, status := range map[string]int{"bad": http.StatusSeeOther, "": http.StatusSeeOther, "broken": http.StatusServiceUnavailable} {
		response := send(value)
		expect(t, response, status)
		if len(s.entered) != 0 || cookieOf(response, "sluice_ticket_shop") != nil {
			t.Errorf("%q joined", value)
		}
	}
	response = send("good")
	expect(t, response, http.StatusSeeOther)
	c := cookieOf(response, "sluice_ticket_shop")
	if c == nil || response.Header.Get("Location") != "/cart" || len(s.entered) != 1 {
		t.Fatalf("cookie = %v, %d entered", c, len(s.entered))
	}
	// A visitor with a place keeps it, and gets no second challenge.
	expect(t, s.get("http://shop.test/cart", asPage, ticket(1)), http.StatusOK, "You are in line")
	expect(t, send("good", ticket(1)), http.StatusSeeOther)
	if len(s.entered) != 1 {
		t.Errorf("%d entered", len(s.entered))
	}
	checkPlaceOfAPI(t, s, send)
	// Without the provider, visitors of a room that fails open join.
	s.settings.OnStoreFailure = room.FailOpen
	if response := send("broken"); len(s.entered) != 2 || cookieOf(response, "sluice_ticket_shop") == nil {
		t.Errorf("%d entered, want one more without the provider", len(s.entered))
	}
	// The page for a visitor who has passed, and may not join, leads to where the visitor wanted to go.
	s.enter = room.ErrLineFull
	if body := expect(t, send("good"), http.StatusServiceUnavailable, `href="/cart"`); strings.Contains(body, english.NotSent) {
		t.Error("the form of the challenge is said to be lost")
	}
	s.enter = nil
	// Another site cannot make a visitor join.
	expect(t, s.ask(http.MethodPost, "http://shop.test/.sluice/shop/enter", "", asPage, header("Sec-Fetch-Site", "cross-site")), http.StatusForbidden)
}

// A client that hangs up while the provider is asked does not make it seem away, which would give
// everybody the backup.
func TestClientsThatHangUpDecideNothing(t *testing.T) {
	challenge := provide(t, SiteverifyOptions{}, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"success":false}`) })
	s := newStand(t, func(o *Options) {
		o.Challenge = WithBackup(challenge, &told{name: "backup"}, slog.New(slog.DiscardHandler))
	})
	for _, proof := range []string{"bad", ""} {
		form := url.Values{"cf-turnstile-response": {proof}}.Encode()
		s.ask(http.MethodPost, "http://shop.test/.sluice/shop/enter", form, asPage, asForm, func(r *http.Request) {
			gone, cancel := context.WithCancel(r.Context())
			cancel()
			*r = *r.WithContext(gone)
		})
		expect(t, s.get("http://shop.test/", asPage), http.StatusForbidden, `data-sitekey="site"`)
	}
}

func TestEachProviderHasAWidget(t *testing.T) {
	for name, p := range providers {
		challenge, err := NewSiteverify(SiteverifyOptions{Provider: name, SiteKey: `"><b>`, Secret: "b"})
		if err != nil {
			t.Fatal(err)
		}
		widget, err := challenge.Widget(t.Context(), Newcomer{Words: korean})
		if err != nil || !strings.Contains(string(widget.HTML), `class="`+p.class+`"`) || strings.Contains(string(widget.HTML), "<b>") || widget.Script == "" || len(widget.Origins) == 0 {
			t.Errorf("%s: %+v", name, widget)
		}
	}
}

// checkPlaceOfAPI checks that a place of the API lets nobody through who has not passed: neither its
// ticket nor its pass. The visitor keeps it by passing.
func checkPlaceOfAPI(t *testing.T, s *stand, send func(value string, askers ...asker) *reply) {
	t.Helper()
	s.set(2, room.Inside)
	expect(t, s.get("http://shop.test/cart", asPage, ticket(2), pass(2)), http.StatusForbidden, `data-sitekey="site"`)
	expect(t, s.get("http://shop.test/cart", asPage, pass(2)), http.StatusForbidden)
	if s.shop.requests != 0 {
		t.Error("a place of the API is let through")
	}
	expect(t, send("bad", ticket(2)), http.StatusSeeOther)
	expect(t, s.get("http://shop.test/cart", asPage, ticket(2)), http.StatusForbidden)
	expect(t, send("good", ticket(2)), http.StatusSeeOther)
	expect(t, s.get("http://shop.test/cart", asPage, ticket(2), pass(2)), http.StatusOK)
	if s.shop.requests != 1 || len(s.entered) != 1 {
		t.Errorf("%d requests, %d entered", s.shop.requests, len(s.entered))
	}
}
