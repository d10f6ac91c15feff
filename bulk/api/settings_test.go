package api_test

import (
	"strings"
	"testing"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api"
	"github.com/sluice-project/sluice/bulk/api/wire"
)

func TestSettings(t *testing.T) {
	f := newFixture(t, api.WithConfig(bulk.Config{RequestsPerSecond: 500, Types: map[string]bulk.TypeConfig{"slow": {Workers: 2}}}))
	steps := []struct{ method, path, body, want string }{
		{"GET", "/v1/tenants/acme", "", `{"base_priority":0,"weight":1,"requests_per_second":0}`},
		{"PUT", "/v1/tenants/acme", `{"base_priority":-60000,"weight":2.5,"requests_per_second":0.5}`, `{"base_priority":-60000,"weight":2.5,"requests_per_second":0.5}`},
		{"GET", "/v1/tenants/acme", "", `{"base_priority":-60000,"weight":2.5,"requests_per_second":0.5}`},
		{"PUT", "/v1/tenants/acme", `{"requests_per_second":10}`, `{"base_priority":0,"weight":1,"requests_per_second":10}`},
		{"GET", "/v1/tenants/acme", "", `{"base_priority":0,"weight":1,"requests_per_second":10}`},
		{"PUT", "/v1/tenants/a%2Fb%20%C3%A9", `{"weight":3}`, `{"base_priority":0,"weight":3,"requests_per_second":0}`},
		{"GET", "/v1/targets/api.example.com:443", "", `{"requests_per_second":0,"concurrency":0}`},
		{"PUT", "/v1/targets/api.example.com:443", `{"requests_per_second":100}`, `{"requests_per_second":100,"concurrency":0}`},
		{"PUT", "/v1/targets/other", `{"concurrency":4}`, `{"requests_per_second":0,"concurrency":4}`},
		{"GET", "/v1/targets/api.example.com:443", "", `{"requests_per_second":100,"concurrency":0}`},
		{"PUT", "/v1/targets/dead", `{"requests_per_second":5}`, `{"requests_per_second":5,"concurrency":0,"found_concurrency":16,"down_since":"2001-09-09T01:46:40Z"}`},
		{"PUT", "/v1/targets/found", `{"requests_per_second":"auto","concurrency":6}`, `{"requests_per_second":"auto","concurrency":6,"found_requests_per_second":41.5}`},
		{"GET", "/v1/targets/found", "", `{"requests_per_second":"auto","concurrency":6,"found_requests_per_second":41.5}`},
		{"PUT", "/v1/targets/found", `{"requests_per_second":"auto","concurrency":7,"found_requests_per_second":12}`, `{"requests_per_second":"auto","concurrency":7,"found_requests_per_second":41.5}`},
		{"PUT", "/v1/targets/found", `{"concurrency":2}`, `{"requests_per_second":0,"concurrency":2}`},
		{"PUT", "/v1/tenants/keyed", `{"keys":{"payload.customer":{"concurrency":2,"requests_per_second":0.5,"pacing":"smooth","cost":"payload.tokens"},"type":{}}}`,
			`{"base_priority":0,"weight":1,"requests_per_second":0,"keys":{"payload.customer":{"requests_per_second":0.5,"concurrency":2,"pacing":"smooth","cost":"payload.tokens"},"type":{}}}`},
		{"GET", "/v1/types/echo", "", `{"concurrency":10}`},
		{"GET", "/v1/types/slow", "", `{"concurrency":2}`},
		{"PUT", "/v1/types/slow", `{"concurrency":7}`, `{"concurrency":7}`},
		{"GET", "/v1/types/slow", "", `{"concurrency":7}`},
		{"PUT", "/v1/types/slow", `{"concurrency":0}`, `{"concurrency":2}`},
		{"GET", "/v1/limits", "", `{"requests_per_second":500}`},
		{"PUT", "/v1/limits", `{"requests_per_second":0}`, `{"requests_per_second":0}`},
		{"GET", "/v1/limits", "", `{"requests_per_second":0}`},
	}
	for _, step := range steps {
		if got := strings.TrimSpace(f.do(200, step.method, step.path, step.body).Body.String()); got != step.want {
			t.Errorf("%s %s %s: got %s; want %s", step.method, step.path, step.body, got, step.want)
		}
	}
	if f.engine.settings.Tenants["a/b é"].Weight != 3 {
		t.Fatal(f.engine.settings.Tenants)
	}
	unlimited := newFixture(t, api.WithConfig(bulk.Config{RequestsPerSecond: -1}))
	if got := strings.TrimSpace(unlimited.do(200, "GET", "/v1/limits", "").Body.String()); got != `{"requests_per_second":0}` {
		t.Fatal(got)
	}
}

// Secrets are taken and not given back; they stay with the prefix that they were given for.
func TestTargetsOfTheOperator(t *testing.T) {
	f := newFixture(t)
	secret := "whsec_" + strings.Repeat("A", 32)
	const path = "/v1/targets/billing"
	settings := func(body string, want string) {
		t.Helper()
		for _, method := range []string{"PUT", "GET"} {
			if got := strings.TrimSpace(f.do(200, method, path, body).Body.String()); got != want {
				t.Errorf("%s %s: got %s; want %s", method, body, got, want)
			}
			body = ""
		}
	}
	const shown = `{"requests_per_second":0,"concurrency":0,"url_prefix":"https://x/y",`
	settings(`{"url_prefix":"https://x/y","secrets":["`+secret+`","`+secret+`"],"tenants":["a","b"]}`, shown+`"secret_count":2,"tenants":["a","b"]}`)
	settings(`{"url_prefix":"https://x/y","secret_count":7}`, shown+`"secret_count":2}`)
	if got := f.engine.settings.Targets["billing"]; len(got.Secrets) != 2 || got.Secrets[0] != secret {
		t.Fatalf("%+v", got)
	}
	for _, body := range []string{`{"url_prefix":"https://z/"}`, `{}`, `{"secrets":["` + secret + `"]}`} {
		if got := f.do(422, "PUT", path, body).problem; len(got.Errors) != 1 || got.Errors[0].Field != "secrets" {
			t.Errorf("%s: %+v", body, got)
		}
	}
	settings(`{"url_prefix":"https://z/","secrets":["`+secret+`"]}`, `{"requests_per_second":0,"concurrency":0,"url_prefix":"https://z/","secret_count":1}`)
	settings(`{"secrets":[]}`, `{"requests_per_second":0,"concurrency":0}`)
	f.engine.fail["Create"] = &bulk.DeniedError{Tenant: "evil", Target: "billing"}
	if got := f.do(403, "POST", "/v1/actions", `{"tenant":"evil","target":{"name":"billing","url":"http://x"}}`).problem; got.Code != wire.CodeForbidden ||
		!strings.Contains(got.Detail, `target "billing" is not for tenant "evil"`) {
		t.Errorf("%+v", got)
	}
}

func TestSettingsRefused(t *testing.T) {
	tests := []struct{ path, body, field, detail string }{
		{"/v1/limits", `{"requests_per_second":-1}`, "requests_per_second", ">= 0"},
		{"/v1/limits", `{"requests_per_second":"auto"}`, "requests_per_second", `"auto" is for targets only: give a number, 0 for no limit`},
		{"/v1/limits", `{"requests_per_second":1e300}`, "requests_per_second", "<= "},
		{"/v1/tenants/a", `{"requests_per_second":-0.1}`, "requests_per_second", ">= 0"},
		{"/v1/tenants/a", `{"weight":0}`, "weight", "> 0"},
		{"/v1/tenants/a", `{"weight":-1}`, "weight", "> 0"},
		{"/v1/tenants/a", `{"weight":1001}`, "weight", "<= 1000"},
		{"/v1/tenants/a", `{"base_priority":1.5}`, "base_priority", "integer"},
		{"/v1/tenants/a", `{"priority":1}`, "priority", "unknown field"},
		{"/v1/tenants/a%0Ab", `{}`, "id", "pattern"},
		{"/v1/tenants/" + strings.Repeat("a", 257), `{}`, "id", "256"},
		{"/v1/tenants/t", `{"requests_per_second":"auto"}`, "requests_per_second", `"auto" is for targets only`},
		{"/v1/targets/t", `{"requests_per_second":"fast"}`, "requests_per_second", `want a number from 0 (no limit) to 1,000,000,000, or "auto"`},
		{"/v1/targets/t", `{"requests_per_second":-1}`, "requests_per_second", `or "auto"`},
		{"/v1/targets/t", `{"requests_per_second":1e10}`, "requests_per_second", `or "auto"`},
		{"/v1/targets/t", `{"concurrency":-1}`, "concurrency", ">= 0"},
		{"/v1/targets/t", `{"url_prefix":"x"}`, "url_prefix", "want an http or https URL"},
		{"/v1/targets/t", `{"url_prefix":"http://x","secrets":["hunter2"]}`, "secrets", "number 1: not a secret"},
		{"/v1/targets/t", `{"tenants":["a"]}`, "tenants", "they need a url_prefix"},
		{"/v1/types/t", `{"concurrency":-1}`, "concurrency", ">= 0"},
		{"/v1/types/t", `{"concurrency":10001}`, "concurrency", "<= 10000"},
		{"/v1/types/a%2Fb", `{"concurrency":1}`, "type", "pattern"},
	}
	f := newFixture(t)
	for _, test := range tests {
		a := f.do(422, "PUT", test.path, test.body)
		if len(a.problem.Errors) != 1 || a.problem.Errors[0].Field != test.field || !strings.Contains(a.problem.Errors[0].Detail, test.detail) {
			t.Errorf("%s %s: %+v", test.path, test.body, a.problem)
		}
	}
	if s := f.engine.settings; s.Limits != nil || len(s.Tenants)+len(s.Targets)+len(s.Types) > 0 {
		t.Fatalf("%+v", s)
	}
}
