package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api"
	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/internal/edge/edgetest"
)

// fixture is the API before a fake engine. Each answer is checked against the
// OpenAPI document.
type fixture struct {
	*testing.T
	engine  *fakeEngine
	handler http.Handler
	log     *lockedBuffer
}

// lockedBuffer is a log that several goroutines write.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func newFixture(t *testing.T, options ...api.Option) *fixture {
	f := &fixture{T: t, engine: newFakeEngine(), log: &lockedBuffer{}}
	options = append([]api.Option{api.WithLogger(slog.New(slog.NewTextHandler(f.log, nil)))}, options...)
	f.handler = api.New(f.engine, options...)
	return f
}

// in returns the same server for a subtest.
func (f *fixture) in(t *testing.T) *fixture {
	shared := *f
	shared.T = t
	return &shared
}

// document is the OpenAPI document, which is the same for every server.
func document(t *testing.T) edgetest.Document {
	t.Helper()
	onceDocument.Do(func() { theDocument = edgetest.Read(t, api.New(newFakeEngine())) })
	return theDocument
}

var (
	onceDocument sync.Once
	theDocument  edgetest.Document
)

// answer is a response that was read.
type answer struct {
	*httptest.ResponseRecorder
	problem wire.Problem
}

func (f *fixture) request(method, target, body string, headers ...string) *http.Request {
	r := httptest.NewRequestWithContext(f.Context(), method, target, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return r
}

// do makes a request, and fails if the answer has another status or is not as
// the document says.
func (f *fixture) do(status int, method, target, body string, headers ...string) answer {
	f.Helper()
	return f.send(status, f.request(method, target, body, headers...))
}

func (f *fixture) send(status int, r *http.Request) answer {
	f.Helper()
	a := answer{ResponseRecorder: httptest.NewRecorder()}
	f.handler.ServeHTTP(a, r)
	if a.Code != status {
		f.Fatalf("%s %s: status %d, want %d: %s", r.Method, r.URL, a.Code, status, a.Body)
	}
	if a.Code >= 400 {
		if got := a.Header().Get("Content-Type"); got != "application/problem+json" {
			f.Fatalf("%s %s: a problem of type %q", r.Method, r.URL, got)
		}
		if err := json.Unmarshal(a.Body.Bytes(), &a.problem); err != nil || a.problem.Status != status || a.problem.Title == "" || a.problem.Detail == "" || a.problem.Code == "" {
			f.Fatalf("%s %s: problem %+v, %v", r.Method, r.URL, a.problem, err)
		}
	}
	if err := document(f.T).Conforms(r, a.ResponseRecorder); err != nil {
		f.Fatalf("%s %s: %v\n%s", r.Method, r.URL, err, a.Body)
	}
	return a
}

func (f *fixture) read(a answer, into any) {
	f.Helper()
	if err := json.Unmarshal(a.Body.Bytes(), into); err != nil {
		f.Fatalf("%v: %s", err, a.Body)
	}
}

// create makes an action of the type echo.
func (f *fixture) create(id string) {
	f.Helper()
	f.do(201, "POST", "/v1/actions", `{"tenant":"acme","type":"echo","id":"`+id+`"}`)
}

// upload sends NDJSON.
func (f *fixture) upload(id string, lines ...string) {
	f.Helper()
	f.do(200, "POST", "/v1/actions/"+id+"/jobs", strings.Join(lines, "\n"), "Content-Type", "application/x-ndjson")
}

func TestDocument(t *testing.T) {
	doc := document(t)
	want := []string{
		"GET /v1/actions", "POST /v1/actions", "GET /v1/actions/{id}", "POST /v1/actions/{id}/jobs", "POST /v1/actions/{id}/seal",
		"POST /v1/actions/{id}/pause", "POST /v1/actions/{id}/resume", "POST /v1/actions/{id}/cancel",
		"GET /v1/actions/{id}/failures", "GET /v1/actions/{id}/watch", "GET /v1/actions/{id}/jobs/{index}", "POST /v1/changes",
		"GET /v1/tenants/{id}", "PUT /v1/tenants/{id}", "GET /v1/targets/{name}", "PUT /v1/targets/{name}",
		"GET /v1/types/{type}", "PUT /v1/types/{type}", "GET /v1/limits", "PUT /v1/limits",
		"GET /v1/schedules", "PUT /v1/schedules/{name}", "GET /v1/schedules/{name}", "GET /v1/streams", "GET /v1/waits", "GET /v1/workers", "DELETE /v1/schedules/{name}",
		"POST /v1/schedules/{name}/pause", "POST /v1/schedules/{name}/resume", "POST /v1/schedules/{name}/run",
		"POST /v1/leases", "POST /v1/leases/ack", "POST /v1/leases/extend",
		"GET /v1/dead-letters", "POST /v1/dead-letters/replay", "POST /v1/jobs",
	}
	got := doc.Operations()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Fatalf("got %q\nwant %q", got, want)
	}
	schemas := slices.Sorted(maps.Keys(doc.Components.Schemas.Map()))
	if slices.Contains(schemas, "ErrorModel") || !slices.Contains(schemas, "Problem") {
		t.Fatal(schemas)
	}
}

func TestUnknownPathsAndMethods(t *testing.T) {
	f := newFixture(t)
	if a := f.do(404, "GET", "/v1/nothing", ""); a.problem.Code != wire.CodeNotFound {
		t.Fatal(a.problem)
	}
	a := f.do(405, "DELETE", "/v1/limits", "")
	if a.problem.Code != wire.CodeMethod || !strings.Contains(a.Header().Get("Allow"), "PUT") {
		t.Fatal(a.problem, a.Header())
	}
}

// engineOperations are the requests that call a method of the engine.
var engineOperations = []struct{ engine, method, path, body, contentType string }{
	{"Create", "POST", "/v1/actions", `{"tenant":"t","type":"echo"}`, "application/json"},
	{"Action", "GET", "/v1/actions/a", "", ""},
	{"Actions", "GET", "/v1/actions", "", ""},
	{"Append", "POST", "/v1/actions/a/jobs", "1", "application/x-ndjson"},
	{"Action", "POST", "/v1/actions/a/jobs", "1", "application/x-ndjson"},
	{"Seal", "POST", "/v1/actions/a/seal", `{"total":0}`, "application/json"},
	{"Enqueue", "POST", "/v1/jobs", `{"tenant":"t","type":"echo","payload":1}`, "application/json"},
	{"Pause", "POST", "/v1/actions/a/pause", "", ""},
	{"Resume", "POST", "/v1/actions/a/resume", "", ""},
	{"Cancel", "POST", "/v1/actions/a/cancel", "", ""},
	{"Action", "GET", "/v1/actions/a/watch", "", ""},
	{"Why", "GET", "/v1/actions/a/jobs/0", "", ""},
	{"Change", "POST", "/v1/changes", `{"do":"pause","all":true}`, "application/json"},
	{"DeadLetters", "GET", "/v1/actions/a/failures", "", ""},
	{"DeadLetters", "GET", "/v1/actions/a/failures?format=csv", "", ""},
	{"DeadLetters", "GET", "/v1/dead-letters?action=a", "", ""},
	{"Actions", "GET", "/v1/dead-letters", "", ""},
	{"Replay", "POST", "/v1/dead-letters/replay", `{"action":"a"}`, "application/json"},
	{"Lease", "POST", "/v1/leases", `{"types":["echo"]}`, "application/json"},
	{"Settle", "POST", "/v1/leases/ack", `{"outcomes":[{"lease":"` + token(bulk.LeaseID{}) + `","status":"failed"}]}`, "application/json"},
	{"Settle", "POST", "/v1/leases/extend", `{"leases":["` + token(bulk.LeaseID{}) + `"]}`, "application/json"},
	{"Settings", "GET", "/v1/limits", "", ""},
	{"Settings", "GET", "/v1/tenants/t", "", ""},
	{"Settings", "GET", "/v1/targets/t", "", ""},
	{"Settings", "GET", "/v1/types/t", "", ""},
	{"Set", "PUT", "/v1/limits", `{"requests_per_second":1}`, "application/json"},
	{"Set", "PUT", "/v1/tenants/t", `{}`, "application/json"},
	{"Set", "PUT", "/v1/targets/t", `{}`, "application/json"},
	{"Set", "PUT", "/v1/types/t", `{"concurrency":1}`, "application/json"},
}

// TestEngineErrors gives each operation the errors that the engine may return.
func TestEngineErrors(t *testing.T) {
	failures := []struct {
		err    error
		status int
		code   string
		retry  bool
		logged bool
	}{
		{bulk.ErrFull, 507, wire.CodeFull, false, true},
		{&bulk.QuotaError{Tenant: "t", Quota: bulk.MaxJobsQuota, Most: 10}, 429, wire.CodeQuota, true, false},
		{bulk.ErrBroken, 503, wire.CodeUnavailable, true, true},
		{bulk.ErrClosed, 503, wire.CodeUnavailable, true, true},
		{errors.New("a secret of the server"), 500, wire.CodeInternal, false, true},
		{&bulk.SpecError{Field: "aggregate", Why: "no such aggregate"}, 422, wire.CodeInvalid, false, false},
		{&bulk.SettingError{Field: "requests_per_second", Why: "want at least 0.001"}, 422, wire.CodeInvalid, false, false},
	}
	for _, operation := range engineOperations {
		f := newFixture(t)
		f.create("a")
		f.engine.edit("a", func(a *fakeAction) { a.Failed = 1 })
		for _, failure := range failures {
			f.log.text.Reset()
			f.engine.fail[operation.engine] = failure.err
			a := f.do(failure.status, operation.method, operation.path, operation.body, "Content-Type", operation.contentType)
			if a.problem.Code != failure.code || (a.Header().Get("Retry-After") != "") != failure.retry || strings.Contains(a.Body.String(), "secret") {
				t.Errorf("%+v %v: %s %v", operation, failure.err, a.Body, a.Header())
			}
			if logged := strings.Contains(f.log.String(), failure.err.Error()); logged != failure.logged {
				t.Errorf("%+v %v: log %s", operation, failure.err, f.log)
			}
		}
	}
}

func TestRequestThatEndedIsNoFault(t *testing.T) {
	f := newFixture(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f.engine.fail["Actions"] = context.Canceled
	f.send(503, f.request("GET", "/v1/actions", "").WithContext(ctx))
	if f.log.String() != "" {
		t.Fatal(f.log)
	}
}
