package ops

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/access/storetest"
	"github.com/sluice-project/sluice/internal/edge"
)

const adminSecret = "admin-secret-of-the-tests"

// accounts returns accounts, and a function that makes tokens of roles.
func accounts(t *testing.T) (*access.Accounts, func(name string, roles ...access.Role) string) {
	t.Helper()
	known, err := access.New(&storetest.Memory{}, adminSecret, access.Options{Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	return known, func(name string, roles ...access.Role) string {
		_, secret, err := known.Create(t.Context(), access.Principal{Name: name, Roles: roles})
		if err != nil {
			t.Fatal(err)
		}
		return secret
	}
}

// ask sends a request with a value of Authorization, "" for none.
func ask(s *Server, method, path, authorization string, body io.Reader) *httptest.ResponseRecorder {
	request := httptest.NewRequest(method, path, body)
	if authorization != "" {
		request.Header.Set("Authorization", authorization)
	}
	w := httptest.NewRecorder()
	s.streams.wrap(s.handler).ServeHTTP(w, request)
	return w
}

func TestRequestsShowATokenWithTheRight(t *testing.T) {
	known, token := accounts(t)
	s := NewServer(Options{Pprof: true, Accounts: known, Logger: quiet()})
	var sender *access.Principal
	edge.Handle[struct{ Body struct{} }, struct{}](s.API().Part("test", edge.PartOptions{Logger: quiet()}),
		edge.Operation{ID: "put-room", Route: "PUT /v1/rooms", Summary: "Put"}, func(e *edge.Exchange) error {
			sender = access.From(e.R.Context())
			return e.NoContent(nil)
		})
	viewer, operator := "Bearer "+token("viewer", access.Viewer), "bearer "+token("operator", access.Worker, access.Operator)
	for _, test := range []struct {
		method, path, authorization string
		status                      int
		says                        string
	}{
		{"GET", "/healthz", "", 200, ""},
		{"GET", "/readyz", "", 200, ""},
		{"GET", "/metrics", "", 401, "Authorization: Bearer"},
		{"GET", "/metrics", "Bearer sluice_unknown", 401, "revoked"},
		{"GET", "/metrics", "Basic " + strings.TrimPrefix(viewer, "Bearer "), 401, "Authorization: Bearer"},
		{"GET", "/metrics", viewer, 200, "sluice_http_refused_total"},
		{"GET", "/metrics", "Bearer " + adminSecret, 200, ""},
		{"GET", "/debug/pprof/cmdline", viewer, 403, "profile"},
		{"GET", "/debug/pprof/cmdline", operator, 200, ""},
		{"GET", "/openapi.json", "", 401, ""},
		{"GET", "/openapi.json", viewer, 200, ""},
		{"PUT", "/v1/rooms", "", 401, ""},
		{"PUT", "/v1/rooms", viewer, 403, "the token viewer lacks the right manage-rooms: want one of the roles admin, operator"},
	} {
		w := ask(s, test.method, test.path, test.authorization, iotest.ErrReader(io.ErrUnexpectedEOF))
		if w.Code != test.status || !strings.Contains(w.Body.String(), test.says) {
			t.Errorf("%s %s with %q: %d %s, want %d and %q", test.method, test.path, test.authorization, w.Code, w.Body, test.status, test.says)
		}
		if challenge := w.Header().Get("WWW-Authenticate"); (challenge == "Bearer") != (test.status == 401) {
			t.Errorf("%s with %q: the challenge is %q", test.path, test.authorization, challenge)
		}
	}
	if w := ask(s, "PUT", "/v1/rooms", operator, strings.NewReader("{}")); w.Code != 204 || sender == nil || sender.Name != "operator" {
		t.Errorf("%d %s, sent by %v", w.Code, w.Body, sender)
	}
}

// Everybody may send what is for the public; the handler knows whether somebody is known.
func TestThePublicNeedsNoToken(t *testing.T) {
	known, token := accounts(t)
	s := NewServer(Options{Accounts: known, Logger: quiet()})
	edge.Handle[struct{}, struct{}](s.API().Part("test", edge.PartOptions{Logger: quiet()}),
		edge.Operation{ID: "keys", Route: "GET /v1/keys", Summary: "Keys", Audience: edge.Everybody}, func(e *edge.Exchange) error {
			return e.AnswerValue(200, "of "+access.From(e.R.Context()).Name)
		})
	for authorization, want := range map[string]string{"": `"of "`, "Bearer the-ticket-of-a-visitor": `"of "`, "Bearer " + token("shop", access.Shop): `"of shop"`} {
		for range access.Burst + 1 {
			if w := ask(s, "GET", "/v1/keys", authorization, nil); w.Code != 200 || strings.TrimSpace(w.Body.String()) != want {
				t.Fatalf("with %q: %d %s, want %s", authorization, w.Code, w.Body, want)
			}
		}
	}
}

// An address that fails again and again has to wait. Those with a token at the same address, as behind a proxy, do not.
func TestFailedAttemptsAreBounded(t *testing.T) {
	known, token := accounts(t)
	s := NewServer(Options{Accounts: known, Logger: quiet()})
	refused := 0
	for range 2 * access.Burst {
		w := ask(s, "GET", "/metrics", "Bearer guessed", nil)
		if w.Code == http.StatusTooManyRequests && w.Header().Get("Retry-After") == "1" {
			refused++
		} else if w.Code != http.StatusUnauthorized {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	if refused == 0 {
		t.Error("no attempt was refused")
	}
	if w := ask(s, "GET", "/metrics", "Bearer "+token("viewer", access.Viewer), nil); w.Code != http.StatusOK {
		t.Errorf("with a token: %d %s", w.Code, w.Body)
	}
}

// An account may send as many requests in a second as the setting says, within 5 % over ten seconds, and learns when to come
// back; neither the admin token nor what is for the public is counted.
func TestRequestsOfAnAccountAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		known, err := access.New(&storetest.Memory{}, adminSecret, access.Options{Logger: quiet(), RequestsPerSecond: 50})
		if err != nil {
			t.Fatal(err)
		}
		s := NewServer(Options{Pprof: true, Accounts: known, Logger: quiet()})
		passed := map[string]int{"a": 0, "b": 0}
		secrets := map[string]string{}
		for name := range passed {
			_, secret, err := known.Create(t.Context(), access.Principal{Name: name, Roles: []access.Role{access.Operator}})
			if err != nil {
				t.Fatal(err)
			}
			secrets[name] = "Bearer " + secret
		}
		for range 1000 {
			for name, secret := range secrets {
				switch w := ask(s, "GET", "/debug/pprof/cmdline", secret, nil); {
				case w.Code == http.StatusOK:
					passed[name]++
				case w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), "access.requests_per_second"):
					t.Fatalf("%d %v %s", w.Code, w.Header(), w.Body)
				}
			}
			for _, free := range []*httptest.ResponseRecorder{ask(s, "GET", "/debug/pprof/cmdline", "Bearer "+adminSecret, nil), ask(s, "GET", "/healthz", secrets["a"], nil)} {
				if free.Code != http.StatusOK {
					t.Fatalf("%d %s", free.Code, free.Body)
				}
			}
			time.Sleep(10 * time.Millisecond)
		}
		for name, n := range passed {
			if n < 475 || n > 525 {
				t.Errorf("%s: %d requests in 10 s, want 500 within 5 %%", name, n)
			}
		}
	})
}

// Tokens of one tenant share the requests of its quota; who has to wait learns which quota that is.
func TestRequestsOfATenantAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		known, err := access.New(&storetest.Memory{}, adminSecret, access.Options{Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		refused, err := known.ChangeQuotas(t.Context(), []access.Quota{{Tenant: "acme", Rates: map[string]float64{access.RequestRate: 50}}}, false)
		if err := errors.Join(append(refused, err)...); err != nil {
			t.Fatal(err)
		}
		s := NewServer(Options{Accounts: known, Logger: quiet()})
		passed := 0
		var secrets []string
		for _, name := range []string{"a", "b"} {
			_, secret, err := known.Create(t.Context(), access.Principal{Name: name, Roles: []access.Role{access.Submitter, access.Viewer}, Tenants: []string{"acme"}})
			if err != nil {
				t.Fatal(err)
			}
			secrets = append(secrets, "Bearer "+secret)
		}
		for range 1000 {
			for _, secret := range secrets {
				switch w := ask(s, "GET", "/metrics", secret, nil); {
				case w.Code == http.StatusOK:
					passed++
				case w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), "the tenant acme sends more requests in a second than its quota requests_per_second allows"):
					t.Fatalf("%d %v %s", w.Code, w.Header(), w.Body)
				}
			}
			time.Sleep(10 * time.Millisecond)
		}
		if passed < 475 || passed > 525 {
			t.Errorf("%d requests in 10 s, want 500 within 5 %%", passed)
		}
	})
}

// A revocation ends the requests that run, event streams and others, and no others.
func TestRevocationEndsRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		known, token := accounts(t)
		s := NewServer(Options{Accounts: known, Logger: quiet()})
		for path, kind := range map[string]string{"/watch": "text/event-stream", "/poll": "text/plain"} {
			s.mux.Handle(path, s.guard.wrap("GET /metrics", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", kind)
				<-r.Context().Done()
				_, _ = io.WriteString(w, "ended")
			})))
		}
		client := startInMemory(t, s)
		as := func(name string) *http.Client {
			secret := token(name, access.Viewer)
			return &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
				r.Header.Set("Authorization", "Bearer "+secret)
				return client.Transport.RoundTrip(r)
			})}
		}
		revoked, stays := as("revoked"), as("stays")
		ending := []<-chan string{fetch(t, revoked, "/watch"), fetch(t, revoked, "/poll")}
		going := fetch(t, stays, "/watch")
		time.Sleep(time.Hour)
		if err := known.Revoke(t.Context(), "revoked"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		for i, answer := range ending {
			if len(answer) == 0 {
				t.Errorf("request %d goes on", i)
			}
		}
		if len(going) > 0 {
			t.Error("the stream of another token has ended")
		}
		if _, err := stop(t, s, time.Minute); err != nil {
			t.Error(err)
		}
		if got := <-going; got != "ended" {
			t.Errorf("the other stream got %q", got)
		}
	})
}

// Without accounts nobody is asked.
func TestWithoutAccountsEverythingIsOpen(t *testing.T) {
	if w := ask(NewServer(Options{Pprof: true, Logger: quiet()}), "GET", "/debug/pprof/cmdline", "", nil); w.Code != http.StatusOK {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// A path is not served before somebody has decided who may call it.
func TestPathsNeedARow(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a path without a row was accepted")
		}
	}()
	NewServer(Options{Logger: quiet()}).Handle("/new", http.NotFoundHandler())
}

func BenchmarkAdmit(b *testing.B) {
	known, err := access.New(&storetest.Memory{}, adminSecret, access.Options{Logger: quiet()})
	if err != nil {
		b.Fatal(err)
	}
	g := newGuard(known, nil)
	request := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/v1/rooms/sale", nil)
	request.Header.Set("Authorization", "Bearer "+adminSecret)
	w := httptest.NewRecorder()
	b.ReportAllocs()
	for b.Loop() {
		if _, refusal := g.Admit(w, request, "show-room", access.ReadRooms); refusal != nil {
			b.Fatal(refusal)
		}
	}
}
