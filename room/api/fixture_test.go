package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"github.com/sluice-project/sluice/room/api"
	"github.com/sluice-project/sluice/room/watch"
)

// fixture is the API before an engine. Each answer is checked against the OpenAPI
// document.
type fixture struct {
	*testing.T
	handler http.Handler
	log     bytes.Buffer
}

// hubEngine is an engine with what the hub needs.
type hubEngine interface {
	api.Engine
	watch.Engine
}

func newFixture(t *testing.T, engine hubEngine, options ...api.Option) *fixture {
	f := &fixture{T: t}
	options = append([]api.Option{api.WithLogger(slog.New(slog.NewTextHandler(&f.log, nil)))}, options...)
	f.handler = api.New(engine, startHub(t, engine), options...)
	onceRouter.Do(func() {
		var err error
		if router, err = gorillamux.NewRouter(document(t, f.handler)); err != nil {
			t.Fatal(err)
		}
	})
	return f
}

// router finds operations in the document, which is the same for every server.
var (
	onceRouter sync.Once
	router     routers.Router
)

func startHub(t testing.TB, engine watch.Engine) *watch.Hub {
	hub := watch.New(engine)
	if err := hub.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := hub.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return hub
}

// document reads and validates the OpenAPI document.
func document(t *testing.T, handler http.Handler) *openapi3.T {
	t.Helper()
	response := httptest.NewRecorder()
	handler.ServeHTTP(response, httptest.NewRequest(http.MethodGet, api.DocumentPath, nil))
	if response.Code != 200 || response.Header().Get("Content-Type") != "application/openapi+json" {
		t.Fatal(response.Code, response.Header())
	}
	doc, err := openapi3.NewLoader().LoadFromData(response.Body.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return doc
}

// answer is a response that was read.
type answer struct {
	*httptest.ResponseRecorder
	problem api.Problem
}

// do makes a request, and fails if the answer has another status or is not as the
// document says. The headers are names and values.
func (f *fixture) do(status int, method, target, body string, headers ...string) answer {
	f.Helper()
	r := httptest.NewRequestWithContext(f.Context(), method, target, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return f.send(status, r)
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
	f.conforms(r, a)
	return a
}

// conforms checks an answer against the document.
func (f *fixture) conforms(r *http.Request, a answer) {
	f.Helper()
	route, parameters, err := router.FindRoute(r)
	if err != nil {
		if a.problem.Code != api.CodeNotFound && a.problem.Code != api.CodeMethod && r.Method != http.MethodOptions && r.Method != http.MethodHead {
			f.Fatalf("%s %s is not in the document: %v", r.Method, r.URL, err)
		}
		return
	}
	input := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: r, Route: route, PathParams: parameters},
		Status:                 a.Code,
		Header:                 a.Header(),
		Body:                   io.NopCloser(bytes.NewReader(a.Body.Bytes())),
		Options:                &openapi3filter.Options{IncludeResponseStatus: true},
	}
	if err := openapi3filter.ValidateResponse(context.Background(), input); err != nil {
		f.Fatalf("%s %s: not as the document says: %v\n%s", r.Method, r.URL, err, a.Body)
	}
}
