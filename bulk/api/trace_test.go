package api_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api"
	"github.com/sluice-project/sluice/bulk/engine"
	"github.com/sluice-project/sluice/bulk/pebblestore"
	"github.com/sluice-project/sluice/bulk/webhook"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

// traced is a server with all its parts, whose spans are recorded.
type traced struct {
	t      *testing.T
	url    string
	engine *engine.Engine
	made   *tracetest.InMemoryExporter
}

func newTraced(t *testing.T, sampler sdk.Sampler) *traced {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	config := bulk.Config{BackoffBase: time.Millisecond}.WithDefaults()
	store, err := pebblestore.Open("store", pebblestore.Options{FS: vfs.NewMem(), Bulk: config, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	made := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(made), sdk.WithSampler(sdk.ParentBased(sampler)))
	webhooks, err := webhook.New(webhook.Options{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	if err != nil {
		t.Fatal(err)
	}
	mux := bulk.NewMux()
	mux.Handle(bulk.WebhookType, webhooks)
	engine, err := engine.New(store, mux, config, engine.WithLogger(quiet), engine.WithTracerProvider(provider))
	if err != nil {
		t.Fatal(err)
	}
	if err := engine.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(api.New(engine, api.WithLogger(quiet), api.WithTracerProvider(provider)))
	t.Cleanup(func() {
		server.Close()
		if err := engine.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		webhooks.Close()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return &traced{t, server.URL, engine, made}
}

// send makes one request and returns its answer.
func (s *traced) send(method, path, body string, header ...string) (status int, answer string) {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	if strings.HasSuffix(path, "/jobs") {
		request.Header.Set("Content-Type", "application/x-ndjson")
	}
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

func (s *traced) finish(id string) {
	s.t.Helper()
	if err := s.engine.Watch(s.t.Context(), id, 5*time.Millisecond, func(bulk.Action) error { return nil }); err != nil {
		s.t.Fatal(err)
	}
}

// spans waits for so many spans: the last ones of an action are made a moment
// after it is seen to have finished.
func (s *traced) spans(n int) tracetest.SpanStubs {
	s.t.Helper()
	var spans tracetest.SpanStubs
	until.True(s.t, fmt.Sprint(n, " spans are made"), func() bool {
		spans = s.made.GetSpans()
		return len(spans) >= n
	})
	return spans
}

// tree writes spans as lines, each with the name of its parent and its status
// code or outcome, sorted.
func tree(spans tracetest.SpanStubs) (lines []string) {
	names := map[trace.SpanID]string{}
	for _, s := range spans {
		names[s.SpanContext.SpanID()] = s.Name
	}
	for _, s := range spans {
		parent := names[s.Parent.SpanID()]
		if parent == "" {
			parent = s.Parent.SpanID().String()
		}
		lines = append(lines, strings.TrimSpace(parent+" > "+s.Name+" "+value(s, "http.response.status_code")+value(s, "sluice.job.outcome")))
	}
	slices.Sort(lines)
	return lines
}

func value(s tracetest.SpanStub, key attribute.Key) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value.String()
		}
	}
	return ""
}

func wantLines(t *testing.T, spans tracetest.SpanStubs, want ...string) {
	t.Helper()
	slices.Sort(want)
	if got := tree(spans); !slices.Equal(got, want) {
		t.Errorf("the spans are\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

const (
	callerTrace = "0af7651916cd43dd8448eb211c80319c"
	callerSpan  = "b7ad6b7169203331"
	caller      = "00-" + callerTrace + "-" + callerSpan + "-01"
)

// The tree of docs/tracing.md: from the client's span to the target's.
func TestTheTraceFromUploadToOutcome(t *testing.T) {
	s := newTraced(t, sdk.NeverSample()) // the caller's decision counts
	parents := make(chan string, 2)
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		parents <- r.Header.Get("Traceparent") + " " + r.Header.Get("Tracestate")
		if r.Header.Get("Sluice-Attempt") == "1" {
			w.WriteHeader(http.StatusBadGateway)
		}
	}))
	defer target.Close()
	header := []string{"traceparent", caller, "tracestate", "vendor=1"}
	s.send("POST", "/v1/actions", fmt.Sprintf(`{"id":"a","tenant":"t","target":{"url":%q},"aggregate":["count"]}`, target.URL+"/secret?token=secret"), header...)
	s.send("POST", "/v1/actions/a/jobs", "1\n") // by another client, which does not trace
	s.send("POST", "/v1/actions/a/seal", `{"total":1}`, header...)
	s.finish("a")
	s.send("GET", "/v1/actions/a", "")
	spans := s.spans(10)
	wantLines(t, spans,
		callerSpan+" > POST /v1/actions 201",
		"POST /v1/actions > create webhook",
		"create webhook > POST /v1/actions/{id}/jobs 200",
		callerSpan+" > POST /v1/actions/{id}/seal 200",
		"create webhook > process webhook retry",
		"process webhook > POST 502",
		"create webhook > process webhook succeeded",
		"process webhook > POST 200",
		"create webhook > aggregate webhook",
		"create webhook > action webhook")
	var sent []string
	for _, span := range spans {
		if span.SpanContext.TraceID().String() != callerTrace {
			t.Errorf("%s is in the trace %s, want the caller's", span.Name, span.SpanContext.TraceID())
		}
		if span.Name == "POST" {
			sent = append(sent, fmt.Sprintf("00-%s-%s-01 vendor=1", callerTrace, span.SpanContext.SpanID()))
		}
		for _, a := range span.Attributes {
			if strings.Contains(a.Value.String(), "secret") {
				t.Errorf("%s tells %s=%s, which a target's URL may keep secret", span.Name, a.Key, a.Value.String())
			}
		}
	}
	if got := []string{<-parents, <-parents}; !slices.Equal(got, sent) {
		t.Errorf("the target was told %q, want the spans of the requests, %q", got, sent)
	}
}

// Without a caller's trace the action begins one; what only looks is not in it.
func TestRequestsWithoutATrace(t *testing.T) {
	s := newTraced(t, sdk.AlwaysSample())
	s.send("POST", "/v1/actions", `{"id":"a","tenant":"t","type":"remote"}`)
	s.send("POST", "/v1/actions/a/jobs", "1\n")
	s.send("POST", "/v1/actions/a/jobs", "1\n", "Upload-Offset", "9") // refused
	s.send("POST", "/v1/actions/a/seal", `{"total":1}`)
	s.send("POST", "/v1/actions/none/seal", `{"total":1}`)
	s.send("GET", "/v1/actions", "")
	s.send("PUT", "/v1/limits", `{"requests_per_second":1000}`)
	_, leases := s.send("POST", "/v1/leases", `{"types":["remote"],"wait_ms":10000}`)
	spans := s.spans(6)
	wantLines(t, spans,
		"0000000000000000 > POST /v1/actions 201",
		"POST /v1/actions > create remote",
		"create remote > POST /v1/actions/{id}/jobs 200",
		"create remote > POST /v1/actions/{id}/jobs 409",
		"create remote > POST /v1/actions/{id}/seal 200",
		"create remote > lease remote")
	lease := spans[len(spans)-1].SpanContext
	if want := fmt.Sprintf(`"traceparent":"00-%s-%s-01"`, lease.TraceID(), lease.SpanID()); !strings.Contains(leases, want) {
		t.Errorf("leased %s, want %s in it", leases, want)
	}
}

// A request in another trace than the action's stays in its own, with a link.
func TestARequestInAnotherTrace(t *testing.T) {
	s := newTraced(t, sdk.AlwaysSample())
	s.send("POST", "/v1/actions", `{"id":"a","tenant":"t","type":"remote"}`)
	s.send("POST", "/v1/actions/a/pause", "", "traceparent", caller)
	s.send("GET", "/v1/limits", "", "traceparent", caller)
	spans := s.spans(4)
	wantLines(t, spans,
		"0000000000000000 > POST /v1/actions 201",
		"POST /v1/actions > create remote",
		callerSpan+" > POST /v1/actions/{id}/pause 200",
		callerSpan+" > GET /v1/limits 200")
	create, pause := spans[0], spans[2]
	if len(pause.Links) != 1 || pause.Links[0].SpanContext.SpanID() != create.SpanContext.SpanID() {
		t.Errorf("the links of %s are %+v, want one to %s", pause.Name, pause.Links, create.Name)
	}
}
