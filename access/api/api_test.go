package api_test

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/access/api"
	"github.com/sluice-project/sluice/access/storetest"
	"github.com/sluice-project/sluice/internal/edge"
	"github.com/sluice-project/sluice/internal/edge/edgetest"
)

var quiet = slog.New(slog.DiscardHandler)

// open returns accounts with their store and an API of them.
func open(t *testing.T) (*access.Accounts, *storetest.Memory, *edge.API) {
	t.Helper()
	store := &storetest.Memory{}
	accounts, err := access.New(store, "admin-secret-of-the-tests", access.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	to := edge.New()
	api.Register(to, accounts, quiet)
	return accounts, store, to
}

func ask(to http.Handler, method, path, body string) (*http.Request, *httptest.ResponseRecorder) {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	to.ServeHTTP(w, r)
	return r, w
}

// A secret is shown when it is made, and never again.
func TestTokens(t *testing.T) {
	accounts, store, to := open(t)
	document := edgetest.Read(t, to)
	var secrets []string
	for _, test := range []struct {
		method, path, body string
		status             int
		secret             bool
	}{
		{"GET", "/v1/tokens", "", 200, false},
		{"POST", "/v1/tokens", `{"name":"ci","roles":["submitter","worker"],"tenants":["acme","shop-*"],"types":["email"],"expires":"2999-01-01T00:00:00Z"}`, 201, true},
		{"POST", "/v1/tokens", `{"name":"ci","roles":["viewer"]}`, 409, false},
		{"POST", "/v1/tokens", `{"name":"b","roles":["root"]}`, 422, false},
		{"POST", "/v1/tokens", `{"name":"B","roles":["viewer"]}`, 422, false},
		{"POST", "/v1/tokens/ci/rotate", "", 200, true},
		{"POST", "/v1/tokens/b/rotate", "", 404, false},
		{"GET", "/v1/tokens", "", 200, false},
		{"DELETE", "/v1/tokens/b", "", 404, false},
		{"DELETE", "/v1/tokens/ci", "", 204, false},
	} {
		r, w := ask(to, test.method, test.path, test.body)
		if err := document.Conforms(r, w); err != nil {
			t.Error(err)
		}
		answer := struct{ Secret string }{}
		if w.Code != http.StatusNoContent && json.Unmarshal(w.Body.Bytes(), &answer) != nil || w.Code != test.status || (answer.Secret != "") != test.secret {
			t.Fatalf("%s %s %s: %d %s", test.method, test.path, test.body, w.Code, w.Body)
		}
		for _, secret := range secrets {
			if strings.Contains(w.Body.String(), secret) {
				t.Errorf("%s %s shows a secret that it did not make", test.method, test.path)
			}
		}
		if answer.Secret != "" {
			secrets = append(secrets, answer.Secret)
			p, err := accounts.Bearer(answer.Secret)
			if err != nil || p.Name != "ci" || !p.May(access.Submit|access.Known) || !p.May(access.Work) || p.Tenant("other") || !p.Type("email") || p.Expires.Year() != 2999 {
				t.Errorf("the token is %+v, %v", p, err)
			}
		}
	}
	store.Fail(errors.New("down"))
	r, w := ask(to, "POST", "/v1/tokens", `{"name":"c","roles":["viewer"]}`)
	if err := document.Conforms(r, w); err != nil || w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
		t.Errorf("without a store: %d %s, %v", w.Code, w.Body, err)
	}
}

// A server without accounts says how to have some.
func TestWithoutAccounts(t *testing.T) {
	to := edge.New()
	api.Register(to, nil, quiet)
	for _, route := range []string{"GET /v1/tokens", "DELETE /v1/tokens/a", "POST /v1/tokens/a/rotate", "POST /v1/tokens", "GET /v1/quotas"} {
		method, path, _ := strings.Cut(route, " ")
		body := ""
		if path == "/v1/tokens" && method == "POST" {
			body = `{"name":"a","roles":["viewer"]}`
		}
		if _, w := ask(to, method, path, body); w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), "access.admin_token") {
			t.Errorf("%s: %d %s", route, w.Code, w.Body)
		}
	}
}

// Quotas are set one by one, and 0 removes one; what cannot be is refused with what can.
func TestQuotas(t *testing.T) {
	accounts, _, to := open(t)
	document := edgetest.Read(t, to)
	for _, test := range []struct {
		method, body string
		status       int
		says         string
	}{
		{"GET", "", 200, `"quotas":[]`},
		{"PATCH", `{"user":"ada","values":{"max_topics":3,"max_rooms":2}}`, 200, `"values":{"max_rooms":2,"max_topics":3}`},
		{"PATCH", `{"user":"ada","values":{"max_topics":0}}`, 200, `"values":{"max_rooms":2}`},
		{"PATCH", `{"tenant":"<default>","values":{"requests_per_second":50}}`, 200, `"tenant":"`},
		{"PATCH", `{"tenant":"acme","values":{"max_rooms":5}}`, 422, "a user without a client-id"},
		{"PATCH", `{"values":{"max_rooms":5}}`, 422, "want a user"},
		{"PATCH", `{"user":"ada","values":{"max_cats":5}}`, 422, "max_partitions"},
		{"GET", "", 200, `"requests_per_second":50`},
		{"PATCH", `{"user":"ada","values":{"max_rooms":0}}`, 200, `"values":{}`},
	} {
		r, w := ask(to, test.method, "/v1/quotas", test.body)
		if err := document.Conforms(r, w); err != nil || w.Code != test.status || !strings.Contains(w.Body.String(), test.says) {
			t.Errorf("%s %s: %d %s, %v; want %d with %s", test.method, test.body, w.Code, w.Body, err, test.status, test.says)
		}
	}
	if all := accounts.Quotas(); len(all) != 1 || all[0].Tenant != access.DefaultEntity {
		t.Errorf("the quotas are %+v, want that of tenants alone", all)
	}
}
