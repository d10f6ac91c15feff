package tracing

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

func recorded() (*sdk.TracerProvider, *tracetest.InMemoryExporter) {
	made := tracetest.NewInMemoryExporter()
	return sdk.NewTracerProvider(sdk.WithSyncer(made)), made
}

// attributes are those of the last span that was made.
func attributes(t *testing.T, made *tracetest.InMemoryExporter) (tracetest.SpanStub, map[string]string) {
	t.Helper()
	spans := made.GetSpans()
	if len(spans) == 0 {
		t.Fatal("no span was made")
	}
	last := spans[len(spans)-1]
	values := map[string]string{}
	for _, a := range last.Attributes {
		values[string(a.Key)] = a.Value.String()
	}
	return last, values
}

func wantAttributes(t *testing.T, got map[string]string, want ...string) {
	t.Helper()
	for i := 0; i < len(want); i += 2 {
		if got[want[i]] != want[i+1] {
			t.Errorf("%s is %q, want %q", want[i], got[want[i]], want[i+1])
		}
	}
}

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func TestServedRequests(t *testing.T) {
	provider, made := recorded()
	r := httptest.NewRequest(http.MethodPost, "https://sluice.example.com:8443/v1/actions/a%ff/seal?token=secret", nil)
	r.TLS, r.RemoteAddr = &tls.ConnectionState{}, "192.0.2.7:1234"
	r.Header.Set("Traceparent", parent)
	r.Header.Set("User-Agent", "curl/8")
	r.Header.Set("Authorization", "secret")
	ctx, caller := Incoming(t.Context(), r.Header)
	if !caller.IsValid() || !caller.IsRemote() {
		t.Errorf("the caller's place is %+v", caller)
	}
	ctx, served := Serve(ctx, Tracer(provider), r, "/v1/actions/{id}/seal")
	if !trace.SpanFromContext(ctx).IsRecording() {
		t.Error("what handles the request is not within its span")
	}
	served.End(http.StatusConflict)
	span, values := attributes(t, made)
	if span.Name != "POST /v1/actions/{id}/seal" || span.SpanKind != trace.SpanKindServer || span.Parent.SpanID() != caller.SpanID() || span.Status.Code != codes.Unset {
		t.Errorf("the span is %s of kind %v with %v", span.Name, span.SpanKind, span.Status)
	}
	wantAttributes(t, values, "http.request.method", "POST", "http.route", "/v1/actions/{id}/seal", "url.path", "/v1/actions/a\uFFFD/seal",
		"url.scheme", "https", "server.address", "sluice.example.com", "server.port", "8443", "client.address", "192.0.2.7",
		"user_agent.original", "curl/8", "network.protocol.version", "1.1", "http.response.status_code", "409", "error.type", "")
	if strings.Contains(fmt.Sprint(values), "secret") {
		t.Errorf("a secret is told: %v", values)
	}

	_, served = Serve(t.Context(), Tracer(provider), httptest.NewRequest("BREW", "http://[::1]/", nil), "/")
	served.End(http.StatusServiceUnavailable)
	span, values = attributes(t, made)
	wantAttributes(t, values, "http.request.method", "_OTHER", "url.scheme", "http", "error.type", "503")
	if span.Status.Code != codes.Error {
		t.Errorf("503 is no error: %+v", span.Status)
	}
}

func TestSentRequests(t *testing.T) {
	provider, made := recorded()
	timeout := &url.Error{Op: "Post", URL: "/", Err: context.DeadlineExceeded}
	tests := []struct {
		url  string
		end  func(Sent)
		code codes.Code
		want []string
	}{
		{"https://u:secret@api.example.com/secret?k=secret", func(s Sent) { s.Answered(204) }, codes.Unset,
			[]string{"server.address", "api.example.com", "server.port", "443", "url.scheme", "https", "http.response.status_code", "204", "error.type", ""}},
		{"http://[::1]:81/", func(s Sent) { s.Answered(404) }, codes.Error,
			[]string{"server.address", "::1", "server.port", "81", "error.type", "404", "http.request.method", "POST"}},
		{"http://a/", func(s Sent) { s.Failed(fmt.Errorf("broke off: %w", io.ErrUnexpectedEOF)) }, codes.Error,
			[]string{"server.port", "80", "error.type", "*errors.errorString", "http.response.status_code", ""}},
		{"http://a/", func(s Sent) { s.Failed(fmt.Errorf("too slow: %w", timeout)) }, codes.Error, []string{"error.type", "timeout"}},
		{"http://a/", func(s Sent) { s.Failed(fmt.Errorf("gone: %w", context.Canceled)) }, codes.Error, []string{"error.type", "canceled"}},
	}
	for _, test := range tests {
		to, err := url.Parse(test.url)
		if err != nil {
			t.Fatal(err)
		}
		ctx, within := provider.Tracer("test").Start(t.Context(), "attempt")
		ctx, sent := Send(ctx, "POST", to)
		header := http.Header{}
		Outgoing(ctx, header)
		test.end(sent)
		span, values := attributes(t, made)
		wantAttributes(t, values, test.want...)
		if span.Name != "POST" || span.SpanKind != trace.SpanKindClient || span.Status.Code != test.code || span.Parent.SpanID() != within.SpanContext().SpanID() {
			t.Errorf("%s: the span is %s of kind %v with %+v", test.url, span.Name, span.SpanKind, span.Status)
		}
		if !strings.Contains(header.Get("Traceparent"), span.SpanContext.SpanID().String()) {
			t.Errorf("%s: the target is told %q, want the span of the request", test.url, header.Get("Traceparent"))
		}
		if strings.Contains(fmt.Sprint(values), "secret") {
			t.Errorf("%s: a secret is told: %v", test.url, values)
		}
	}
}

// Without a trace there is nothing to tell; one that nobody wants is passed on.
func TestRequestsWithoutASpan(t *testing.T) {
	if Tracer(nil) != nil {
		t.Error("no provider has a tracer")
	}
	to := &url.URL{Scheme: "http", Host: "a"}
	header := http.Header{}
	ctx, sent := Send(t.Context(), "POST", to)
	Outgoing(ctx, header)
	sent.Answered(500)
	sent.Failed(errors.New("nothing"))
	Served{}.End(500)
	if len(header) != 0 || ctx != t.Context() {
		t.Errorf("without a trace the target is told %v", header)
	}
	unwanted := strings.TrimSuffix(parent, "01") + "00"
	ctx, _ = Incoming(t.Context(), http.Header{"Traceparent": {unwanted}})
	ctx, _ = Send(ctx, "POST", to)
	Outgoing(ctx, header)
	if header.Get("Traceparent") != unwanted {
		t.Errorf("a trace that nobody wants is passed on as %q", header.Get("Traceparent"))
	}
}

func FuzzIncoming(f *testing.F) {
	f.Add(parent, "vendor=1")
	f.Add("00-0-0-0", ",=")
	f.Fuzz(func(t *testing.T, parent, state string) {
		header := http.Header{"Traceparent": {parent}, "Tracestate": {state}}
		ctx, place := Incoming(context.Background(), header)
		out := http.Header{}
		Outgoing(ctx, out)
		if _, again := Incoming(context.Background(), out); place.IsValid() && !again.Equal(place) || place.IsValid() != (len(out) > 0) {
			t.Errorf("%q, %q is passed on as %v", parent, state, out)
		}
	})
}
