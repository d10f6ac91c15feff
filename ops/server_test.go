package ops

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-project/sluice/internal/testkit/leaks"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// start runs a server on a free port until the test ends, and returns its URL.
func start(t *testing.T, s *Server) string {
	t.Helper()
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), until.Limit)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Errorf("Stop: %v", err)
		}
	})
	return "http://" + s.Addr().String()
}

func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(content)
}

func TestServerEndpoints(t *testing.T) {
	s := NewServer(Options{Addr: "127.0.0.1:0", Pprof: true, Logger: quiet()})
	jobs := prometheus.NewCounter(prometheus.CounterOpts{Name: "jobs_total", Help: "Jobs."})
	jobs.Add(7)
	s.Registry().MustRegister(jobs)
	s.mux.HandleFunc("GET /v1/hello", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	url := start(t, s)

	tests := []struct {
		path   string
		status int
		body   string
	}{
		{"/metrics", 200, "jobs_total 7"},
		{"/metrics", 200, "go_goroutines"},
		{"/healthz", 200, `{"alive":true}`},
		{"/readyz", 200, `{"ready":true}`},
		{"/v1/hello", 200, "hello"},
		{"/debug/pprof/", 200, "goroutine"},
		{"/debug/pprof/heap?debug=1", 200, "heap profile"},
		{"/nowhere", 404, "not found"},
	}
	for _, test := range tests {
		status, body := get(t, url+test.path)
		if status != test.status || !strings.Contains(body, test.body) {
			t.Errorf("GET %s: %d %.200q, want %d with %q", test.path, status, body, test.status, test.body)
		}
	}
}

func TestServerKeepsProfilesToItself(t *testing.T) {
	url := start(t, NewServer(Options{Addr: "127.0.0.1:0", Logger: quiet()}))
	if status, _ := get(t, url+"/debug/pprof/"); status != http.StatusNotFound {
		t.Fatalf("GET /debug/pprof/: %d, want 404 unless it is asked for", status)
	}
}

func TestReadyNamesWhatIsNotReady(t *testing.T) {
	s := NewServer(Options{Addr: "127.0.0.1:0", Logger: quiet()})
	full := errors.New("the store is full")
	var bulk, gate error
	s.Ready("bulk", func(context.Context) error { return bulk })
	s.Ready("gate", func(context.Context) error { return gate })
	url := start(t, s)

	tests := []struct {
		bulk, gate error
		status     int
		body       string
	}{
		{nil, nil, 200, `{"ready":true}`},
		{full, nil, 503, `{"ready":false,"not_ready":{"bulk":"the store is full"}}`},
		{full, errors.New("closed"), 503, `{"ready":false,"not_ready":{"bulk":"the store is full","gate":"closed"}}`},
		{nil, nil, 200, `{"ready":true}`},
	}
	for _, test := range tests {
		bulk, gate = test.bulk, test.gate
		if status, body := get(t, url+"/readyz"); status != test.status || body != test.body+"\n" {
			t.Errorf("GET /readyz: %d %s, want %d %s", status, body, test.status, test.body)
		}
	}
}

// A warning is in the answer, and the server is ready.
func TestReadyHasWarnings(t *testing.T) {
	s := NewServer(Options{Addr: "127.0.0.1:0", Logger: quiet()})
	var slow error
	s.Warn("disk", func(context.Context) error { return slow })
	url := start(t, s)
	for _, test := range []struct {
		err  error
		body string
	}{{nil, `{"ready":true}`}, {errors.New("the disk is slow"), `{"ready":true,"warnings":{"disk":"the disk is slow"}}`}} {
		slow = test.err
		if status, body := get(t, url+"/readyz"); status != 200 || body != test.body+"\n" {
			t.Errorf("GET /readyz: %d %s, want 200 %s", status, body, test.body)
		}
	}
}

func TestReadyRefusesANameTwice(t *testing.T) {
	s := NewServer(Options{Logger: quiet()})
	s.Ready("bulk", func(context.Context) error { return nil })
	defer func() {
		if said := fmt.Sprint(recover()); !strings.Contains(said, `"bulk"`) {
			t.Fatalf("the second check of one name: %s, want a panic that names it", said)
		}
	}()
	s.Ready("bulk", func(context.Context) error { return nil })
}

func TestServerStartFailsOnATakenAddress(t *testing.T) {
	first := NewServer(Options{Addr: "127.0.0.1:0", Logger: quiet()})
	start(t, first)
	second := NewServer(Options{Addr: first.Addr().String(), Logger: quiet()})
	err := second.Start(t.Context())
	if err == nil || !strings.Contains(err.Error(), first.Addr().String()) {
		t.Fatalf("Start() = %v, want an error that names the address", err)
	}
	if err := second.Stop(t.Context()); err != nil {
		t.Fatalf("Stop of a server that did not start: %v", err)
	}
}

func TestServerRefusesAHugeHeader(t *testing.T) {
	url := start(t, NewServer(Options{Addr: "127.0.0.1:0", Logger: quiet()}))
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("X-Huge", strings.Repeat("x", 2*maxHeaderBytes))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Fatalf("a header of %d bytes: %d, want 431", 2*maxHeaderBytes, response.StatusCode)
	}
}
