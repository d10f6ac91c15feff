package gate

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
)

func TestNewcomer(t *testing.T) {
	s := newStand(t, nil)
	response := s.get("http://shop.test/cart?a=1", asPage)
	body := expect(t, response, http.StatusOK, "You are in line", `data-kind="waiting"`, `value="/cart?a=1"`, "about 1–2 minutes", "You are next.")
	if strings.Contains(body, "ticket-1") {
		t.Error("the page shows the ticket to scripts")
	}
	for name, want := range map[string]string{
		"Cache-Control": "no-store", "Retry-After": "4", "Content-Language": "en", "X-Robots-Tag": "noindex",
		"X-Content-Type-Options": "nosniff", "Content-Type": "text/html; charset=utf-8",
	} {
		if got := response.Header.Get(name); got != want {
			t.Errorf("%s = %q; want %q", name, got, want)
		}
	}
	c := cookieOf(response, "sluice_ticket_shop")
	if c == nil || c.Value != "ticket-1" || !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Path != "/" || c.Secure || c.MaxAge <= 0 {
		t.Errorf("cookie = %v", c)
	}
	if s.shop.requests != 0 || len(s.entered) != 1 || s.entered[0].Client != netip.MustParseAddr("192.0.2.1") {
		t.Errorf("%d requests reached the shop; entered: %v", s.shop.requests, s.entered)
	}
	// The policy allows exactly the parts of the page.
	policy := response.Header.Get("Content-Security-Policy")
	_, nonce, _ := strings.Cut(body, `<script nonce="`)
	nonce, _, _ = strings.Cut(nonce, `"`)
	if len(nonce) < 22 || !strings.Contains(policy, "script-src 'nonce-"+nonce+"';") || !strings.Contains(policy, "default-src 'none'") {
		t.Errorf("policy = %q for nonce %q", policy, nonce)
	}
	again := s.get("http://shop.test/", asPage, ticket(1)).body
	if strings.Contains(again, nonce) {
		t.Error("a nonce was used twice")
	}
	if len(s.entered) != 1 || s.claims != 2 {
		t.Errorf("reloading: %d entered, %d claims", len(s.entered), s.claims)
	}
}

func TestProgramGetsJSON(t *testing.T) {
	s := newStand(t, nil)
	response := s.get("http://shop.test/", asProgram)
	var got struct {
		Ticket, Pass *string
		Status       string
		Position     int
	}
	if err := json.Unmarshal([]byte(expect(t, response, http.StatusAccepted, `"ticket":null`)), &got); err != nil {
		t.Fatal(err)
	}
	if got.Ticket != nil || got.Pass != nil || got.Status != "waiting" || got.Position != 1 ||
		response.Header.Get("Cache-Control") != "no-store" || response.Header.Get("Retry-After") != "4" {
		t.Errorf("%+v, %v", got, response.Header)
	}
	// Scripts of a page could read a ticket in the answer: the cookie hides it from them.
	if c := cookieOf(response, "sluice_ticket_shop"); c == nil || c.Value != "ticket-1" || !c.HttpOnly {
		t.Errorf("cookie = %v", c)
	}
}

func TestPartsTakeNoPlace(t *testing.T) {
	s := newStand(t, nil)
	for _, askers := range [][]asker{
		{asImage}, {header("Sec-Fetch-Dest", "script")}, {header("Sec-Fetch-Dest", "empty")},
		{header("Upgrade", "websocket")}, {asPage, header("Sec-Purpose", "prefetch;prerender")},
	} {
		response := s.get("http://shop.test/", askers...)
		expect(t, response, http.StatusServiceUnavailable, "waiting room")
		if len(response.Cookies()) != 0 || response.Header.Get("Retry-After") == "" || response.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("header = %v", response.Header)
		}
	}
	if len(s.entered) != 0 {
		t.Errorf("%d entered", len(s.entered))
	}
	// An image of a forgotten page does not claim a called visitor's slot.
	s.set(1, room.Called)
	expect(t, s.get("http://shop.test/a.png", asImage, ticket(1)), http.StatusServiceUnavailable)
	if s.claims != 0 || s.shop.requests != 0 {
		t.Errorf("%d claims, %d requests", s.claims, s.shop.requests)
	}
	// A visitor inside gets subresources, and no cookie with them.
	s.set(1, room.Inside)
	response := s.get("http://shop.test/a.png", asImage, ticket(1))
	if expect(t, response, http.StatusOK) != "the shop" || len(response.Cookies()) != 0 {
		t.Errorf("cookies = %v", response.Cookies())
	}
}

func TestInside(t *testing.T) {
	s := newStand(t, nil)
	s.set(1, room.Called)
	response := s.get("http://shop.test/", asPage, ticket(1), header("Sluice-Pass", "forged"))
	expect(t, response, http.StatusOK, "the shop")
	c := cookieOf(response, "sluice_pass_shop")
	if c == nil || c.Value != "PASS-1" || !c.HttpOnly || c.MaxAge != 60 {
		t.Fatalf("cookie = %v", c)
	}
	if got := s.shop.last.Header.Get("Sluice-Pass"); got != "PASS-1" {
		t.Errorf("the shop saw the pass %q", got)
	}
	// With the pass alone, with an expired pass and a ticket, and by POST.
	for _, askers := range [][]asker{
		{pass(1)}, {holding("sluice_pass_shop", "old"), ticket(1)}, {pass(1), asImage}, {asProgram, ticket(1)},
	} {
		expect(t, s.ask(http.MethodPost, "http://shop.test/buy", "a=1", askers...), http.StatusOK, "the shop")
	}
	// The pass header that a client made up is removed from a request that needs no pass.
	s.settings.Bypass = []room.Rule{{Path: "/free/*"}}
	expect(t, s.get("http://shop.test/free/a", header("Sluice-Pass", "forged")), http.StatusOK)
	if _, there := s.shop.last.Header["Sluice-Pass"]; there {
		t.Error("a forged header reached the shop")
	}
}

func jwtThatEnds(at time.Time) string {
	payload := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"exp":%d}`, at.Unix()))
	return "e30." + payload + ".c2ln"
}

func TestPassesAreRenewedNearTheirEnd(t *testing.T) {
	for life, renewed := range map[time.Duration]bool{
		-time.Second: true, 20 * time.Second: true, 40 * time.Second: false, 60 * time.Second: false,
	} {
		s := newStand(t, nil)
		s.set(1, room.Inside)
		old := jwtThatEnds(time.Now().Add(life))
		s.gate.rooms = passAlias{s.fake, old}
		response := s.get("http://shop.test/", asPage, holding("sluice_pass_shop", old))
		expect(t, response, http.StatusOK, "the shop")
		if got := cookieOf(response, "sluice_pass_shop") != nil; got != renewed {
			t.Errorf("a pass with %v left was renewed: %v", life, got)
		}
	}
}

// passAlias accepts a text as the pass of visitor 1.
type passAlias struct {
	*fake
	text string
}

func (p passAlias) AskPass(ctx context.Context, name, pass string, client netip.Addr) (engine.Answer, error) {
	if pass == p.text {
		pass = "PASS-1"
	}
	return p.fake.AskPass(ctx, name, pass, client)
}

func TestFormsAreNotSentOn(t *testing.T) {
	s := newStand(t, nil)
	response := s.ask(http.MethodPost, "http://shop.test/buy?a=1", "card=1", asPage, asForm)
	body := expect(t, response, http.StatusOK, "was not received", `content="4; url=/buy?a=1"`)
	if strings.Contains(body, "card=1") || s.shop.requests != 0 {
		t.Error("the form went on")
	}
}

func TestGone(t *testing.T) {
	for _, reason := range []room.Reason{room.Left, room.Expired, room.Abandoned, room.Forgotten} {
		s := newStand(t, nil)
		s.goneFor(1, reason)
		response := s.get("http://shop.test/", asPage, ticket(1), pass(1))
		expect(t, response, http.StatusOK, "You are in line", english.Gone[reason])
		if c := cookieOf(response, "sluice_ticket_shop"); c == nil || c.Value != "ticket-2" {
			t.Errorf("%s: cookie = %v", reason, c)
		}
		note := cookieOf(response, "sluice_line_shop")
		if note == nil || !strings.HasPrefix(note.Value, "2."+string(reason)+".") {
			t.Fatalf("note = %v", note)
		}
		// The page says so for as long as the visitor waits.
		expect(t, s.get("http://shop.test/", asPage, ticket(2), holding("sluice_line_shop", note.Value)), http.StatusOK, english.Gone[reason])
	}
	for reason, want := range map[room.Reason]string{room.Revoked: `action="/.sluice/shop/join"`, room.Ended: "It is over"} {
		s := newStand(t, nil)
		s.goneFor(1, reason)
		expect(t, s.get("http://shop.test/", asPage, ticket(1)), http.StatusGone, want, english.Gone[reason])
		if len(s.entered) != 0 {
			t.Errorf("%s: joined again", reason)
		}
	}
	// A program in a forgotten tab does not join repeatedly.
	s := newStand(t, nil)
	s.goneFor(1, room.Expired)
	response := s.get("http://shop.test/", asProgram, ticket(1))
	expect(t, response, http.StatusGone, `"reason":"expired"`, `"code":"gone"`)
	if response.Header.Get("Content-Type") != "application/problem+json" || len(s.entered) != 0 || len(response.Cookies()) != 0 {
		t.Errorf("%v, %d entered", response.Header, len(s.entered))
	}
	// A pass alone gives the reason too.
	s.goneFor(2, room.Revoked)
	expect(t, s.get("http://shop.test/", asPage, pass(2)), http.StatusGone, english.Gone[room.Revoked])
}

func TestForgedCookies(t *testing.T) {
	s := newStand(t, nil)
	for _, value := range []string{"x", "ticket-9", "ticket--1", strings.Repeat("a", 4_000)} {
		before := len(s.entered)
		response := s.get("http://shop.test/", asPage, holding("sluice_ticket_shop", value), holding("sluice_pass_shop", value))
		expect(t, response, http.StatusOK, "You are in line")
		if len(s.entered) != before+1 || s.shop.requests != 0 {
			t.Errorf("%.20q: %d entered, %d requests", value, len(s.entered)-before, s.shop.requests)
		}
	}
}
