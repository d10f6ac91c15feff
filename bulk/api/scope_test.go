package api_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/access/storetest"
	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api"
	"github.com/sluice-project/sluice/bulk/engine"
	"github.com/sluice-project/sluice/internal/edge/edgetest"
)

// twoTenants is an engine with an action and a schedule of each of two tenants, which have their names. All other
// methods panic.
type twoTenants struct {
	api.Engine
	called string
}

var names = []string{"acme", "other"}

func actionOf(tenant string) bulk.Action {
	return bulk.Action{Spec: bulk.Spec{ID: tenant, Tenant: tenant, Stream: true}, Counts: bulk.Counts{Failed: 1, Pending: 1}}
}

func (e *twoTenants) Action(_ context.Context, id string) (bulk.Action, error) {
	return actionOf(id), nil
}

func (e *twoTenants) Actions(_ context.Context, filter bulk.ActionFilter) (all []bulk.Action, err error) {
	for _, name := range names {
		if name > filter.After && len(all) < cmp.Or(filter.Limit, filter.Look) {
			all = append(all, actionOf(name))
		}
	}
	return all, nil
}

func (e *twoTenants) DeadLetters(_ context.Context, id string, _ int64, _ int) ([]bulk.DeadLetter, error) {
	e.called = "DeadLetters"
	return []bulk.DeadLetter{{Action: id, Payload: []byte(`"` + id + `"`)}}, nil
}

func (e *twoTenants) Schedule(_ context.Context, name string) (bulk.Schedule, error) {
	return bulk.Schedule{Name: name, Spec: bulk.Spec{Tenant: name}}, nil
}

func (e *twoTenants) Schedules(ctx context.Context) (all []bulk.Schedule, err error) {
	for _, name := range names {
		schedule, _ := e.Schedule(ctx, name) // it never fails
		all = append(all, schedule)
	}
	return all, nil
}

func (e *twoTenants) Settings(context.Context) (bulk.Settings, error) { return bulk.Settings{}, nil }
func (e *twoTenants) EstimatedFinish(string) time.Time                { return time.Time{} }
func (e *twoTenants) HeldBack(*bulk.Action) int64                     { return 0 }

func (e *twoTenants) Why(_ context.Context, id string, _ int64) (engine.Explanation, error) {
	return engine.Explanation{
		Action: actionOf(id), HeldBy: []engine.TenantJobs{{Tenant: "other", Jobs: 5}, {Tenant: "acme", Jobs: 4}},
	}, nil
}

// refused has the answers of operations that are not simply 404 without a body.
var refused = map[string]struct {
	status int
	body   string
}{
	"POST /v1/actions": {403, `{"tenant":"other","type":"email"}`}, "POST /v1/jobs": {403, `{"tenant":"other","type":"email","payload":1}`},
	"POST /v1/changes": {403, `{"do":"cancel","all":true}`}, "POST /v1/leases": {403, `{"types":["email","sms"],"max":1}`},
	"PUT /v1/schedules/{name}":     {403, `{"cron":"@daily","tenant":"acme","type":"email","jobs":[1]}`},
	"POST /v1/dead-letters/replay": {404, `{"action":"other"}`}, "POST /v1/actions/{id}/seal": {404, `{"total":1}`},
	"POST /v1/actions/{id}/jobs": {404, "1\n"},
}

// A submitter of one tenant and worker of one type. The operations are all those of the document that the role may call.
func TestASubmitterSeesItsTenantsAlone(t *testing.T) {
	engine := &twoTenants{}
	handler := api.New(engine, api.WithLogger(slog.New(slog.DiscardHandler)))
	sender := &access.Principal{Name: "ci", Roles: []access.Role{access.Submitter, access.Worker}, Tenants: []string{"acme"}, Types: []string{"email"}}
	ask := func(route, contentType, body string) *httptest.ResponseRecorder {
		method, path, _ := strings.Cut(route, " ")
		request := httptest.NewRequest(method, path, strings.NewReader(body))
		request.Header.Set("Content-Type", contentType)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, request.WithContext(access.With(request.Context(), sender)))
		return w
	}
	listed := map[string]string{"GET /v1/actions": "acme", "GET /v1/dead-letters": "acme", "GET /v1/schedules": "acme", "GET /v1/streams": "acme", "GET /v1/waits": "acme"}
	for route, id := range operations(t, handler) {
		if !sender.May(access.Operation(id)) || id == "acknowledge-leases" || id == "extend-leases" { // leases are those of the worker
			continue
		}
		contentType := "application/json"
		if id == "upload-jobs" {
			contentType = "application/x-ndjson"
		}
		path := strings.NewReplacer("{id}", "other", "{name}", "other", "{index}", "0").Replace(route)
		want := refused[route]
		switch own, lists := listed[route]; {
		case lists:
			if w := ask(path, contentType, ""); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), own) || strings.Contains(w.Body.String(), "other") {
				t.Errorf("%s: %d %s", route, w.Code, w.Body)
			}
		case want.status == 0:
			want.status = http.StatusNotFound
			fallthrough
		default:
			engine.called = ""
			if w := ask(path, contentType, want.body); w.Code != want.status || engine.called != "" {
				t.Errorf("%s: %d %s, want %d; called %s", route, w.Code, w.Body, want.status, engine.called)
			}
		}
	}
	if w := ask("POST /v1/changes", "application/json", `{"do":"cancel","action":"other"}`); w.Code != http.StatusNotFound {
		t.Errorf("a change of an action of another tenant: %d %s", w.Code, w.Body)
	}
	for _, query := range []string{"?status=RUNNING", "?tenant=other", "?status=RUNNING&tenant=other"} {
		if w := ask("GET /v1/actions"+query, "", ""); w.Code != http.StatusOK || strings.Contains(w.Body.String(), "other") {
			t.Errorf("%s: %d %s", query, w.Code, w.Body)
		}
	}
	if w := ask("GET /v1/actions/acme", "", ""); w.Code != http.StatusOK {
		t.Errorf("its own action: %d %s", w.Code, w.Body)
	}
	if w := ask("GET /v1/actions/acme/jobs/0", "", ""); w.Code != http.StatusOK || strings.Contains(w.Body.String(), "other") || !strings.Contains(w.Body.String(), `"jobs":4`) {
		t.Errorf("why a job waits: %d %s", w.Code, w.Body)
	}
}

// manyOthers are the actions of two tenants, most of them of the other one.
type manyOthers struct {
	twoTenants
	after string // of the last change
}

func (e *manyOthers) Actions(_ context.Context, filter bulk.ActionFilter) (all []bulk.Action, err error) {
	after, _ := strconv.Atoi(strings.TrimPrefix(filter.After, "other-"))
	for n := after + 1; n <= 30_000; n++ {
		a := actionOf("other")
		a.ID = fmt.Sprint("other-", n)
		switch all = append(all, a); len(all) {
		case filter.Limit:
			return all, nil
		case filter.Look:
			return all, &bulk.LookError{After: a.ID}
		}
	}
	return all, nil
}

func (e *manyOthers) Change(_ context.Context, change engine.Change) (engine.Changed, error) {
	e.after = change.After
	return engine.Changed{Next: "1/other-7"}, nil
}

// A page that ends among actions beyond the sender's limits names none of them, and the next one begins there.
func TestCursorsNameNothingBeyondTheLimits(t *testing.T) {
	engine := &manyOthers{}
	handler := api.New(engine, api.WithLogger(slog.New(slog.DiscardHandler)))
	sender, err := access.New(&storetest.Memory{}, "the admin token of tests", access.Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, secret, err := sender.Create(t.Context(), access.Principal{Name: "ci", Roles: []access.Role{access.Submitter}, Tenants: []string{"acme"}})
	if err != nil {
		t.Fatal(err)
	}
	limited, err := sender.Bearer(secret)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(who *access.Principal, method, path, body string) (*httptest.ResponseRecorder, string) {
		request := httptest.NewRequest(method, path, strings.NewReader(body))
		request.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, request.WithContext(access.With(request.Context(), who)))
		var page struct{ Next string }
		if err := json.Unmarshal(w.Body.Bytes(), &page); w.Code == http.StatusOK && err != nil {
			t.Fatal(err)
		}
		return w, page.Next
	}
	for _, path := range []string{"/v1/actions", "/v1/dead-letters"} {
		pages := 1
		w, next := ask(limited, "GET", path, "")
		for ; next != "" && w.Code == http.StatusOK; pages++ {
			if strings.Contains(next, "other") {
				t.Fatalf("%s: the cursor %q", path, next)
			}
			w, next = ask(limited, "GET", path+"?after="+next, "")
		}
		if w.Code != http.StatusOK || pages < 4 {
			t.Errorf("%s: %d %s after %d pages, want 200 and all of 30,000 actions", path, w.Code, w.Body, pages)
		}
		for _, after := range []string{"other-7", "other-7-0", "AAAA"} {
			if w, _ := ask(limited, "GET", path+"?after="+after, ""); w.Code != http.StatusUnprocessableEntity {
				t.Errorf("%s?after=%s: %d %s", path, after, w.Code, w.Body)
			}
		}
		if _, next := ask(nil, "GET", path, ""); !strings.HasPrefix(next, "other-") {
			t.Errorf("%s of somebody without limits: the cursor %q", path, next)
		}
	}
	const cancel = `{"do":"cancel","tenant":"acme","after":%q}`
	w, next := ask(limited, "POST", "/v1/changes", fmt.Sprintf(cancel, ""))
	if w.Code != http.StatusOK || next == "" || strings.Contains(next, "other") {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if w, _ := ask(limited, "POST", "/v1/changes", fmt.Sprintf(cancel, next)); w.Code != http.StatusOK || engine.after != "1/other-7" {
		t.Errorf("%d %s, continued after %q", w.Code, w.Body, engine.after)
	}
}

// operations returns the ids of all operations, by their routes.
func operations(t *testing.T, handler http.Handler) map[string]string {
	t.Helper()
	ids := map[string]string{}
	for path, item := range edgetest.Read(t, handler).Paths {
		for method, op := range edgetest.Methods(item) {
			if op != nil {
				ids[method+" "+path] = op.OperationID
			}
		}
	}
	return ids
}
