package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-project/sluice/internal/edge/edgetest"
	"github.com/sluice-project/sluice/internal/testkit/until"
	"github.com/sluice-project/sluice/room/api"
	"github.com/sluice-project/sluice/room/watch"
)

// fixture is the API on an engine. Each answer is checked against the OpenAPI document.
type fixture struct {
	*testing.T
	handler http.Handler
	log     bytes.Buffer
}

// hubEngine is an engine with the methods that the hub needs.
type hubEngine interface {
	api.Engine
	watch.Engine
}

func newFixture(t *testing.T, engine hubEngine, options ...api.Option) *fixture {
	f := &fixture{T: t}
	options = append([]api.Option{api.WithLogger(slog.New(slog.NewTextHandler(&f.log, nil)))}, options...)
	f.handler = api.New(engine, startHub(t, engine), options...)
	return f
}

// document is the OpenAPI document, which is the same for every server.
func document(t *testing.T) edgetest.Document {
	t.Helper()
	onceDocument.Do(func() { theDocument = edgetest.Read(t, api.New(newFake(), nil)) })
	return theDocument
}

var (
	onceDocument sync.Once
	theDocument  edgetest.Document
)

func startHub(t testing.TB, engine watch.Engine) *watch.Hub {
	hub := watch.New(engine)
	if err := hub.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), until.Limit)
		defer cancel()
		if err := hub.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return hub
}

// answer is a response that was read.
type answer struct {
	*httptest.ResponseRecorder
	problem api.Problem
}

// do makes a request, and fails if the answer has another status or does not match the document.
// The headers are names and values.
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
	if err := document(f.T).Conforms(r, a.ResponseRecorder); err != nil {
		f.Fatalf("%s %s: %v\n%s", r.Method, r.URL, err, a.Body)
	}
	return a
}
