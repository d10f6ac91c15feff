package gate

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	template "github.com/DataDog/datadog-agent/pkg/template/html"

	"github.com/sluice-project/sluice/room"
)

func mustParse(t *testing.T, text string) *template.Template {
	t.Helper()
	parsed, err := ParseTemplate("own.html", text)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func TestReleaseByTheShop(t *testing.T) {
	ways := map[string]http.HandlerFunc{
		"status": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) },
		"body":   func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "thanks") },
		"file": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.(io.ReaderFrom).ReadFrom(strings.NewReader("thanks"))
		},
		"flush":   func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush() },
		"nothing": func(http.ResponseWriter, *http.Request) {},
	}
	for name, write := range ways {
		for _, by := range []string{"ticket", "pass"} {
			s := newStand(t, nil)
			s.set(1, room.Inside)
			s.shop.answer = func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Sluice-Release", "pass")
				w.Header().Add("Set-Cookie", "own=1")
				write(w, r)
			}
			have := pass(1)
			if by == "ticket" {
				have = ticket(1)
			}
			response := s.get("http://shop.test/thanks", asPage, have)
			if _, there := response.Header["Sluice-Release"]; there {
				t.Errorf("%s: the header reached the visitor", name)
			}
			if len(s.left) != 1 {
				t.Errorf("%s by %s: left = %v", name, by, s.left)
			}
			for _, c := range []string{"sluice_ticket_shop", "sluice_pass_shop"} {
				if got := cookieOf(response, c); got == nil || got.MaxAge >= 0 {
					t.Errorf("%s by %s: %s = %v", name, by, c, got)
				}
			}
			if cookieOf(response, "own") == nil || len(response.Cookies()) != 3 {
				t.Errorf("%s: cookies = %v", name, response.Cookies())
			}
		}
	}
}

func TestOtherAnswersReleaseNothing(t *testing.T) {
	for _, value := range []string{"", "nothing", "pass, pass"} {
		s := newStand(t, nil)
		s.set(1, room.Inside)
		s.shop.answer = func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Sluice-Release", value) }
		response := s.get("http://shop.test/", asPage, pass(1))
		if _, there := response.Header["Sluice-Release"]; there || len(s.left) != 0 {
			t.Errorf("%q: left = %v", value, s.left)
		}
	}
}

// A page that needs no pass may end the visit too: for example the page after the payment.
func TestReleaseOnAPageOfAll(t *testing.T) {
	s := newStand(t, nil)
	s.settings.Bypass = []room.Rule{{Path: "/thanks"}}
	s.set(1, room.Inside)
	s.shop.answer = func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Sluice-Release", "pass") }
	s.get("http://shop.test/thanks", asPage, ticket(1), pass(1))
	if len(s.left) != 1 {
		t.Errorf("left = %v", s.left)
	}
	s.get("http://shop.test/thanks", asPage)
	if len(s.left) != 1 {
		t.Errorf("nobody has left: %v", s.left)
	}
}

func TestReleaseWhileTheStoreIsAway(t *testing.T) {
	s := newStand(t, nil)
	s.set(1, room.Inside)
	s.shop.answer = func(w http.ResponseWriter, _ *http.Request) {
		s.away = room.ErrUnavailable
		w.Header().Set("Sluice-Release", "pass")
		_, _ = io.WriteString(w, "thanks")
	}
	response := s.get("http://shop.test/", asPage, pass(1))
	expect(t, response, http.StatusOK, "thanks")
}

func TestControllersReachTheConnection(t *testing.T) {
	s := newStand(t, nil)
	s.set(1, room.Inside)
	s.shop.answer = func(w http.ResponseWriter, _ *http.Request) {
		conn, buffer, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = buffer.WriteString("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
		_ = buffer.Flush()
	}
	server := httptest.NewServer(s.handler)
	defer server.Close()
	expect(t, fetch(t, http.MethodGet, server.URL, "", pass(1)), http.StatusOK, "hi")
}
