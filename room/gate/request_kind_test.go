package gate

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
)

func TestKindOf(t *testing.T) {
	const (
		chrome = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"
		image  = "image/avif,image/webp,image/apng,*/*;q=0.8"
	)
	for _, test := range []struct {
		name, path, accept, dest string
		want                     kind
	}{
		{"a browser over TLS", "/", chrome, "document", navigation},
		{"a browser without TLS", "/", chrome, "", navigation},
		{"a frame", "/", chrome, "iframe", part},
		{"a page whose path looks like a file", "/a.json", chrome, "", navigation},
		{"an image", "/a", image, "image", part},
		{"an image without TLS", "/a", image, "", part},
		{"a style without TLS", "/a", "text/css,*/*;q=0.1", "", part},
		{"a script without TLS", "/a.js", "*/*", "", part},
		{"a script of another case", "/a.JS", "*/*", "", part},
		{"a font", "/a", "*/*", "font", part},
		{"a fetch of anything", "/api", "*/*", "empty", part},
		{"a fetch of JSON", "/api", "application/json", "empty", program},
		{"a fetch of JSON, as axios has it", "/api", "application/json, text/plain, */*", "empty", program},
		{"a fetch of a page", "/a", "text/html, application/xhtml+xml", "empty", navigation},
		{"curl", "/", "*/*", "", navigation},
		{"curl for an image", "/a.png", "*/*", "", part},
		{"no Accept", "/", "", "", navigation},
		{"a program", "/", "application/json", "", program},
		{"a program that prefers JSON", "/", "text/html;q=0.5, application/json", "", program},
		{"as good", "/", "application/json, text/html", "", navigation},
		{"no JSON, please", "/", "application/json;q=0, */*", "", navigation},
		{"not well formed", "/", "application/json;q=x, ,;;=, */*", "", navigation},
		{"text alone", "/", "text/plain", "", part},
		{"events", "/", "text/event-stream", "empty", part},
		{"upper case", "/", "TEXT/HTML", "", navigation},
	} {
		r := httptest.NewRequest(http.MethodGet, test.path, http.NoBody)
		if test.accept != "" {
			r.Header.Set("Accept", test.accept)
		}
		if test.dest != "" {
			r.Header.Set("Sec-Fetch-Dest", test.dest)
		}
		if got := kindOf(r); got != test.want {
			t.Errorf("%s: %d; want %d", test.name, got, test.want)
		}
	}
}

// A page of another site takes no place by its visitors' browsers, and HEAD none for anybody.
func TestWhoTakesNoPlace(t *testing.T) {
	for _, test := range []struct {
		name, method string
		header       map[string]string
		want         kind
	}{
		{"a link from another site", http.MethodGet, map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, navigation},
		{"a form of another site, such as a payment's", http.MethodPost, map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, navigation},
		{"a script of another site", http.MethodGet, map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "empty"}, part},
		{"a script of another site that may read", http.MethodGet, map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}, part},
		{"a script of the site", http.MethodGet, map[string]string{"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}, navigation},
		{"a frame of another site", http.MethodGet, map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}, part},
		{"HEAD", http.MethodHead, nil, part},
	} {
		r := httptest.NewRequest(test.method, "/", http.NoBody)
		r.Header.Set("Accept", "text/html")
		for name, value := range test.header {
			r.Header.Set(name, value)
		}
		if got := kindOf(r); got != test.want {
			t.Errorf("%s: %d; want %d", test.name, got, test.want)
		}
	}
}

func FuzzAccept(f *testing.F) {
	for _, seed := range []string{"", "*/*", "text/html;q=0.5,application/json", "a;q=NaN", "a;q=1e400", ";q=,,", "text/html;q=-0"} {
		f.Add(seed, "en,ko;q=0.5")
	}
	words, err := newChooser(nil, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, accept, languages string) {
		html, json := accepted([]string{accept})
		// The negation also catches NaN.
		if !(html >= 0 && html <= 1 && json >= 0 && json <= 1) {
			t.Errorf("html %v, json %v", html, json)
		}
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		r.Header.Set("Accept", accept)
		if html > 0 && html > json && kindOf(r) != navigation {
			t.Errorf("%q wants a page", accept)
		}
		if words.choose(languages) == nil {
			t.Errorf("no words for %q", languages)
		}
	})
}

// For any cookies, a request without a place does not reach the shop, and every cookie that the
// gate sets has one of its own values.
func FuzzCookies(f *testing.F) {
	f.Add("ticket-1", "PASS-1", "3.expired", "/cart")
	f.Add("ticket-2", "a.eyJleHAiOjF9.b", "99999999999999999999.", "//evil")
	f.Add("", "..", "-1.left", "/\x00")
	f.Fuzz(func(t *testing.T, ticket, pass, note, to string) {
		s := newStand(t, nil)
		s.set(1, room.Waiting)
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		asPage(r)
		r.Header.Set("Cookie", "sluice_ticket_shop="+ticket+"; sluice_pass_shop="+pass+"; sluice_line_shop="+note)
		_, bad := s.number(s.visitOf(r).cookie("sluice_ticket_shop"), "ticket-", engine.ErrBadTicket)
		w := httptest.NewRecorder()
		s.handler.ServeHTTP(w, r)
		if s.shop.requests != 0 || w.Code != http.StatusOK || (len(s.entered) == 1) != (bad != nil) {
			t.Errorf("%d requests, status %d, %d entered", s.shop.requests, w.Code, len(s.entered))
		}
		if n := parseLineNote(note, english); n.start < 0 || n.start > 1<<40 || (n.lost != "" && english.Gone[n.lost] == "") {
			t.Errorf("note = %+v", n)
		}
		if got := localPath(to); got[0] != '/' || (len(got) > 1 && (got[1] == '/' || got[1] == '\\')) {
			t.Errorf("%q leads to %q", to, got)
		}
		passEnds(pass)
	})
}
