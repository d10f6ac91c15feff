package ops

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	traces "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// roundTrip stands in for the network.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func answer(status int, body string, header ...string) *http.Response {
	w := httptest.NewRecorder()
	for i := 0; i < len(header); i += 2 {
		w.Header().Set(header[i], header[i+1])
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body) // a recorder takes everything
	return w.Result()
}

func newTestClient(t *testing.T, f roundTrip) *otlpClient {
	t.Helper()
	c, err := newOTLPClient("http://collector:4318/v1/traces", nil, quiet())
	if err != nil {
		t.Fatal(err)
	}
	c.http.Transport = f
	return c
}

var someSpans = []*traces.ResourceSpans{{ScopeSpans: []*traces.ScopeSpans{{Spans: []*traces.Span{{
	TraceId: bytes.Repeat([]byte{0xab}, 16), SpanId: bytes.Repeat([]byte{0xcd}, 8), Name: "attempt", Kind: traces.Span_SPAN_KIND_CLIENT, StartTimeUnixNano: 1,
	Links: []*traces.Span_Link{{TraceId: bytes.Repeat([]byte{0x01}, 16), SpanId: bytes.Repeat([]byte{0x02}, 8)}},
}}}}}}

func cloneSpans() []*traces.ResourceSpans {
	return proto.Clone(&traces.TracesData{ResourceSpans: someSpans}).(*traces.TracesData).ResourceSpans
}

func TestVariablesOfTheExporter(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=no, malformed")
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "authorization=Bearer%20abc,x-tenant = 7")
	t.Setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1500")
	var got *http.Request
	var body []byte
	c := newTestClient(t, func(r *http.Request) (*http.Response, error) {
		got = r
		packed, err := gzip.NewReader(r.Body)
		if err != nil {
			return nil, err
		}
		body, err = io.ReadAll(packed)
		return answer(200, ""), err
	})
	if err := c.UploadTraces(t.Context(), cloneSpans()); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"Authorization": "Bearer abc", "X-Tenant": "7", "Content-Type": "application/json", "Content-Encoding": "gzip"} {
		if value := got.Header.Get(name); value != want {
			t.Errorf("header %s is %q, want %q", name, value, want)
		}
	}
	if c.http.Timeout != 1500*time.Millisecond {
		t.Errorf("the timeout is %v", c.http.Timeout)
	}
	var decoded any
	if err := json.Unmarshal(body, &decoded); err != nil {
		t.Fatal(err)
	}
	compact, _ := json.Marshal(decoded)
	want := `{"resourceSpans":[{"scopeSpans":[{"spans":[{"kind":3,"links":[{"spanId":"0202020202020202","traceId":"01010101010101010101010101010101"}],` +
		`"name":"attempt","spanId":"cdcdcdcdcdcdcdcd","startTimeUnixNano":"1","traceId":"abababababababababababababababab"}]}]}]}`
	if string(compact) != want {
		t.Errorf("the body is\n%s\nwant\n%s", compact, want)
	}
}

func TestCertificatesOfTheExporter(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))
	defer server.Close()
	send := func() error {
		c, err := newOTLPClient(server.URL, nil, quiet())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Stop(t.Context()) }() // it never fails
		return c.UploadTraces(t.Context(), cloneSpans())
	}
	if err := send(); err == nil {
		t.Error("an unknown certificate was accepted")
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", file)
	if err := send(); err != nil {
		t.Error(err)
	}
	if _, err := newOTLPClient("http://collector:4318", nil, quiet()); err == nil || !strings.Contains(err.Error(), "https") {
		t.Errorf("certificates with http: %v", err)
	}
}

// Spans are sent again to a collector that is overloaded, after the delay that it asks
// for, and not to a collector that refuses them.
func TestWhatIsSentAgain(t *testing.T) {
	for status, again := range map[int]bool{429: true, 502: true, 503: true, 504: true, 400: false, 401: false, 500: false} {
		synctest.Test(t, func(t *testing.T) {
			began, requests := time.Now(), 0
			c := newTestClient(t, func(r *http.Request) (*http.Response, error) {
				var request traces.TracesData
				body, _ := io.ReadAll(r.Body)
				if err := proto.Unmarshal(body, &request); err != nil || len(request.ResourceSpans) != 1 {
					t.Errorf("the body of request %d: %v, %v", requests, &request, err)
				}
				if requests++; requests == 1 {
					return answer(status, "busy", "Retry-After", "20"), nil
				}
				return answer(200, ""), nil
			})
			err := c.UploadTraces(t.Context(), cloneSpans())
			if again && (err != nil || requests != 2 || time.Since(began) != 20*time.Second) {
				t.Errorf("%d: %d requests in %v: %v", status, requests, time.Since(began), err)
			}
			if !again && (err == nil || requests != 1 || !strings.Contains(err.Error(), "busy")) {
				t.Errorf("%d: %d requests: %v", status, requests, err)
			}
		})
	}
}

func TestSpansThatACollectorRejects(t *testing.T) {
	partial := protowire.AppendTag(nil, 1, protowire.VarintType)
	partial = protowire.AppendVarint(partial, 3)
	partial = protowire.AppendTag(partial, 2, protowire.BytesType)
	partial = protowire.AppendString(partial, "too old")
	message := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), partial)
	for _, test := range []struct{ contentType, body, want string }{
		{"application/x-protobuf", string(message), "the collector rejected 3 spans: too old"},
		{"application/x-protobuf", "", ""},
		{"application/x-protobuf", "\xff\xff", ""},
		{"application/json", `{"partialSuccess":{"rejectedSpans":"3","errorMessage":"too old"}}`, "the collector rejected 3 spans: too old"},
		{"application/json", `{"partialSuccess":{"rejectedSpans":0}}`, ""},
		{"application/json", `{}`, ""},
		{"application/json", "", ""},
		{"text/plain", "thanks", ""},
	} {
		c := newTestClient(t, func(*http.Request) (*http.Response, error) {
			return answer(200, test.body, "Content-Type", test.contentType), nil
		})
		text := ""
		if err := c.UploadTraces(t.Context(), cloneSpans()); err != nil {
			text = err.Error()
		}
		if text != test.want {
			t.Errorf("%s %q: %q, want %q", test.contentType, test.body, text, test.want)
		}
	}
}
