package e2e

import (
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-project/sluice/internal/testkit/ports"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

// otlpCollector keeps the spans that it receives over HTTP.
type otlpCollector struct {
	t     *testing.T
	mu    sync.Mutex
	spans []*otlp.Span
}

func (c *otlpCollector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	request := &otlp.TracesData{}
	if err != nil || r.Method != http.MethodPost || r.URL.Path != "/v1/traces" || r.Header.Get("X-Team") != "a b" || proto.Unmarshal(body, request) != nil {
		c.t.Errorf("the collector was sent %s %s with %v", r.Method, r.URL.Path, r.Header)
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range request.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			c.spans = append(c.spans, scope.GetSpans()...)
		}
	}
}

// lines returns the names of each span and its parent, and the traces.
func (c *otlpCollector) lines() (lines, traces []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	names := map[string]string{}
	for _, s := range c.spans {
		names[string(s.GetSpanId())] = s.GetName()
	}
	for _, s := range c.spans {
		lines = append(lines, names[string(s.GetParentSpanId())]+" > "+s.GetName())
		traces = append(traces, hex.EncodeToString(s.GetTraceId()))
	}
	slices.Sort(lines)
	slices.Sort(traces)
	return lines, slices.Compact(traces)
}

func (c *otlpCollector) has(line string) func() bool {
	return func() bool {
		lines, _ := c.lines()
		return slices.Contains(lines, line)
	}
}

// spanCount returns the number of spans with an outcome from /metrics.
func (s *server) spanCount(outcome string) string {
	s.t.Helper()
	a, err := s.do("GET", "/metrics", "", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^tracing_spans_total\{outcome="` + outcome + `"\} (\d+)$`).FindSubmatch(a.body)
	if found == nil {
		s.t.Fatalf("/metrics does not tell of spans that were %s", outcome)
	}
	return string(found[1])
}

// One trace leads from the upload to the outcome, over a crash: the collector has all of it, except
// the last second before the crash.
func TestACollectorGetsTheTraceOfAnAction(t *testing.T) {
	t.Parallel()
	c := &otlpCollector{t: t}
	at := httptest.NewServer(c)
	defer at.Close()
	s := newServer(t, "--tracing-endpoint", at.URL)
	s.env = []string{"SLUICE_TRACING_HEADERS=x-team=a%20b"}
	s.start()
	s.call("POST", "/v1/actions", `{"id":"a","tenant":"t","type":"remote"}`, http.StatusCreated, nil)
	s.upload("a", "application/x-ndjson", "1\n", 0)
	s.call("POST", "/v1/actions/a/seal", `{"total":1}`, http.StatusOK, nil)
	until.True(t, "the seal is at the collector", c.has("create remote > POST /v1/actions/{id}/seal"))
	s.kill()
	s.start()
	leased := s.await("remote", 1, "")[0]
	s.ack(leased.Lease, `"status":"succeeded"`)
	s.finish("a")
	s.terminate()
	lines, traces := c.lines()
	if want := []string{
		" > POST /v1/actions",
		"POST /v1/actions > create remote",
		"create remote > POST /v1/actions/{id}/jobs",
		"create remote > POST /v1/actions/{id}/seal",
		"create remote > action remote",
		"create remote > aggregate remote",
		"create remote > lease remote",
		"create remote > settle remote",
	}; !slices.Equal(lines, want) {
		t.Errorf("the collector has\n  %s\nwant\n  %s", strings.Join(lines, "\n  "), strings.Join(want, "\n  "))
	}
	if len(traces) != 1 || !strings.HasPrefix(leased.Traceparent, "00-"+traces[0]+"-") {
		t.Errorf("the collector has the traces %v, and the worker %s; want the same one", traces, leased.Traceparent)
	}
}

// If no collector listens, everything else works, and the spans are counted.
func TestACollectorThatIsAway(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.env = []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + ports.Addrs(t, 1)[0]}
	s.start()
	s.call("POST", "/v1/actions", `{"id":"a","tenant":"t","type":"echo"}`, http.StatusCreated, nil)
	s.upload("a", "application/x-ndjson", strings.Repeat("1\n", 100), 0)
	s.call("POST", "/v1/actions/a/seal", `{"total":100}`, http.StatusOK, nil)
	if a := s.finish("a"); a.Succeeded != 100 {
		t.Errorf("%d jobs of 100 succeeded", a.Succeeded)
	}
	until.True(t, "the spans are counted", func() bool { return s.spanCount("failed") == "106" })
	if exported, dropped := s.spanCount("exported"), s.spanCount("dropped"); exported != "0" || dropped != "0" {
		t.Errorf("%s spans were exported and %s dropped, want none", exported, dropped)
	}
	s.terminate()
}
