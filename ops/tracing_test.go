package ops

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	traces "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-project/sluice/internal/testkit/ports"
)

// fakeExporter takes spans as it is told to.
type fakeExporter struct {
	export func(ctx context.Context, spans []sdk.ReadOnlySpan) error
}

func (f *fakeExporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	return f.export(ctx, spans)
}
func (f *fakeExporter) Shutdown(context.Context) error { return nil }

// end makes so many spans.
func end(t *Tracing, n int) {
	tracer := t.Provider().Tracer("test")
	for range n {
		_, span := tracer.Start(context.Background(), "span")
		span.End()
	}
}

func wantSpans(t *testing.T, tracing *Tracing, exported, failed, dropped float64) {
	t.Helper()
	c := tracing.spans
	if e, f, d := testutil.ToFloat64(c.sent), testutil.ToFloat64(c.failed), testutil.ToFloat64(c.dropped); e != exported || f != failed || d != dropped {
		t.Errorf("%v spans exported, %v failed, %v dropped, want %v, %v and %v", e, f, d, exported, failed, dropped)
	}
}

func TestSpansAreSentSoonAndAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent atomic.Int64
		tracing := newTracing(t.Context(), TracingOptions{SampleRatio: 1, Logger: quiet()}, &fakeExporter{func(_ context.Context, spans []sdk.ReadOnlySpan) error {
			sent.Add(int64(len(spans)))
			return nil
		}})
		end(tracing, 3)
		time.Sleep(spansDelay)
		synctest.Wait()
		if n := sent.Load(); n != 3 {
			t.Errorf("%d spans were sent after %v, want 3", n, spansDelay)
		}
		end(tracing, 2000)
		for range 2 { // Stop may be called more than once.
			if err := tracing.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		}
		end(tracing, 5)
		if n := sent.Load(); n != 2003 {
			t.Errorf("%d spans were sent, want 2003", n)
		}
		wantSpans(t, tracing, 2003, 0, 0)
		if n := testutil.ToFloat64(tracing.spans.queued); n != 0 {
			t.Errorf("%v spans wait in the end", n)
		}
	})
}

// A collector that never answers delays nothing, not even the end, and every
// span is counted.
func TestACollectorThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged bytes.Buffer
		log := slog.New(slog.NewTextHandler(&logged, nil))
		tracing := newTracing(t.Context(), TracingOptions{SampleRatio: 1, Logger: log}, &fakeExporter{func(ctx context.Context, _ []sdk.ReadOnlySpan) error {
			<-ctx.Done()
			return ctx.Err()
		}})
		began := time.Now()
		end(tracing, MaxQueuedSpans+100)
		if n := testutil.ToFloat64(tracing.spans.queued); n != MaxQueuedSpans {
			t.Errorf("%v spans wait, want %d", n, MaxQueuedSpans)
		}
		wantSpans(t, tracing, 0, 0, 100)
		if took := time.Since(began); took != 0 {
			t.Errorf("making spans took %v", took)
		}
		if err := tracing.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != TracingStopTime {
			t.Errorf("stopping took %v, want %v", took, TracingStopTime)
		}
		wantSpans(t, tracing, 0, MaxQueuedSpans, 100)
		if n := strings.Count(logged.String(), "spans could not be sent"); n < 1 || n > 2 {
			t.Errorf("%d lines were logged, want one for the first failure and one in the end:\n%s", n, &logged)
		}
	})
}

func TestACollectorThatRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged bytes.Buffer
		log := slog.New(slog.NewTextHandler(&logged, nil))
		tracing := newTracing(t.Context(), TracingOptions{SampleRatio: 1, Logger: log}, &fakeExporter{func(context.Context, []sdk.ReadOnlySpan) error {
			return errors.New("no room")
		}})
		for range 90 {
			end(tracing, 1)
			time.Sleep(spansDelay)
		}
		if err := tracing.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		wantSpans(t, tracing, 0, 90, 0)
		if n := strings.Count(logged.String(), "no room"); n != 3 {
			t.Errorf("%d lines in 90 seconds, want one a minute and one in the end:\n%s", n, &logged)
		}
	})
}

func TestTheShareOfTraces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tracing := newTracing(t.Context(), TracingOptions{SampleRatio: 0, Logger: quiet()}, &fakeExporter{func(context.Context, []sdk.ReadOnlySpan) error { return nil }})
		end(tracing, 10)
		if err := tracing.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		wantSpans(t, tracing, 0, 0, 0)
	})
}

// collected is a collector that speaks OTLP over HTTP.
type collected struct {
	mu       sync.Mutex
	requests []*traces.TracesData
	headers  []http.Header
	paths    []string
}

func (c *collected) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	request := &traces.TracesData{}
	if err != nil || proto.Unmarshal(body, request) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests, c.headers, c.paths = append(c.requests, request), append(c.headers, r.Header), append(c.paths, r.URL.Path)
}

func TestWhatACollectorGets(t *testing.T) {
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
	c := &collected{}
	server := httptest.NewServer(c)
	defer server.Close()
	tracing, err := NewTracing(t.Context(), TracingOptions{
		Endpoint: server.URL + "/v1/traces", Headers: map[string]string{"authorization": "Bearer abc"}, SampleRatio: 1, Version: "1.2.3", Logger: quiet(),
	})
	if err != nil {
		t.Fatal(err)
	}
	end(tracing, 2)
	if err := tracing.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantSpans(t, tracing, 2, 0, 0)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.requests) != 1 || c.paths[0] != "/v1/traces" || c.headers[0].Get("Authorization") != "Bearer abc" {
		t.Fatalf("%d requests to %v with %v", len(c.requests), c.paths, c.headers)
	}
	of := c.requests[0].GetResourceSpans()[0]
	about := map[string]string{}
	for _, a := range of.GetResource().GetAttributes() {
		about[a.GetKey()] = a.GetValue().GetStringValue()
	}
	for key, want := range map[string]string{"service.name": "sluice", "service.version": "1.2.3", "deployment.environment.name": "test"} {
		if about[key] != want {
			t.Errorf("the service's %s is %q, want %q", key, about[key], want)
		}
	}
	if n := len(of.GetScopeSpans()[0].GetSpans()); n != 2 {
		t.Errorf("%d spans, want 2", n)
	}
}

// Nobody listens there: it is no error to start, nor to stop.
func TestACollectorThatIsAway(t *testing.T) {
	tracing, err := NewTracing(t.Context(), TracingOptions{Endpoint: "http://" + ports.Addrs(t, 1)[0] + "/v1/traces", SampleRatio: 1, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	if err := tracing.Start(t.Context()); err != nil {
		t.Error(err)
	}
	end(tracing, 7)
	if err := tracing.Stop(t.Context()); err != nil || tracing.Err() != nil {
		t.Error(err, tracing.Err())
	}
	wantSpans(t, tracing, 0, 7, 0)
}
