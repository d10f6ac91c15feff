package gate

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
)

// shop is the service behind the gate: it counts requests, and keeps the last one.
type shop struct {
	requests int
	last     *http.Request
	answer   http.HandlerFunc
}

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.requests++
	s.last = r
	if s.answer != nil {
		s.answer(w, r)
		return
	}
	_, _ = io.WriteString(w, "the shop")
}

// stand is a gate with its room and its shop.
type stand struct {
	*fake
	shop    *shop
	streams *streams
	handler http.Handler
	gate    *Gate
}

func newStand(t *testing.T, change func(*Options)) *stand {
	t.Helper()
	s := &stand{fake: newFake(), shop: &shop{}, streams: &streams{}}
	options := Options{Sites: []Site{{Room: "shop"}}, Logger: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&options)
	}
	g, err := New(s.fake, s.streams, options)
	if err != nil {
		t.Fatal(err)
	}
	s.gate, s.handler = g, g.Middleware(s.shop)
	return s
}

// asker changes a request.
type asker func(*http.Request)

func header(name, value string) asker { return func(r *http.Request) { r.Header.Set(name, value) } }

func holding(name, value string) asker {
	return func(r *http.Request) { r.AddCookie(&http.Cookie{Name: name, Value: value}) }
}

func ticket(n int) asker { return holding("sluice_ticket_shop", "ticket-"+strconv.Itoa(n)) }
func pass(n int) asker   { return holding("sluice_pass_shop", "PASS-"+strconv.Itoa(n)) }

var (
	asPage    = header("Accept", "text/html,application/xhtml+xml,*/*;q=0.8")
	asProgram = header("Accept", "application/json")
	asImage   = header("Accept", "image/avif,image/webp,*/*;q=0.8")
	asForm    = func(r *http.Request) {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
)

func (s *stand) ask(method, target, body string, askers ...asker) *reply {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	for _, change := range askers {
		change(r)
	}
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	return replyOf(w)
}

func (s *stand) get(target string, askers ...asker) *reply {
	return s.ask(http.MethodGet, target, "", askers...)
}

// reply is an answer that was read completely.
type reply struct {
	StatusCode int
	Header     http.Header
	body       string
}

// replyOf takes the header as it was sent, not as it was changed afterwards.
func replyOf(w *httptest.ResponseRecorder) *reply {
	result := w.Result()
	defer result.Body.Close()
	return &reply{StatusCode: result.StatusCode, Header: result.Header, body: w.Body.String()}
}

// Cookies returns the cookies that the answer sets.
func (r *reply) Cookies() []*http.Cookie { return (&http.Response{Header: r.Header}).Cookies() }

// cookieOf returns a cookie that an answer sets, or nil.
func cookieOf(response *reply, name string) *http.Cookie {
	for _, c := range response.Cookies() {
		if c.Name == name {
			return c
		}
	}
	return nil
}

func expect(t *testing.T, response *reply, status int, parts ...string) string {
	t.Helper()
	body := response.body
	if response.StatusCode != status {
		t.Fatalf("status = %d; want %d\n%s", response.StatusCode, status, body)
	}
	for _, part := range parts {
		if !strings.Contains(body, part) {
			t.Errorf("the answer has no %q:\n%s", part, body)
		}
	}
	return body
}

// visitOf returns the visit of a request without answering it.
func (s *stand) visitOf(r *http.Request) *visit {
	at := s.gate.siteOf(r.Host)
	return s.gate.visit(at, at.main, nil, r)
}
