package api_test

import (
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/sluice-project/sluice/internal/edge"
	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/api"
)

// Requests that change something have a span, polls only in a trace, and the public's traceparent is only linked.
func TestSpansOfRequests(t *testing.T) {
	const caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, test := range []struct {
		method, path, traceparent string
		public                    bool
		fail                      error
		status                    int
		span                      string // "": none
		continued                 bool
		links                     int
	}{
		{method: "POST", path: "/v1/rooms/shop/visitors", status: 200, span: "POST /v1/rooms/{room}/visitors"},
		{method: "POST", path: "/v1/rooms/shop/visitors", status: 503, fail: room.ErrUnavailable, span: "POST /v1/rooms/{room}/visitors"},
		{method: "POST", path: "/v1/rooms/shop/visitors", status: 200, traceparent: caller, span: "POST /v1/rooms/{room}/visitors", continued: true},
		{method: "POST", path: "/v1/rooms/shop/visitors", status: 200, traceparent: caller, public: true, span: "POST /v1/rooms/{room}/visitors", links: 1},
		{method: "GET", path: "/v1/rooms/shop/visitors/me", status: 200},
		{method: "GET", path: "/v1/rooms/shop/visitors/me", status: 200, traceparent: caller, span: "GET /v1/rooms/{room}/visitors/me", continued: true},
		{method: "GET", path: "/v1/rooms/shop/visitors/me", status: 200, traceparent: caller, public: true},
	} {
		made := tracetest.NewInMemoryExporter()
		engine := newFake()
		if test.fail != nil {
			engine.fail["Enter"] = test.fail
		}
		f := newFixture(t, engine, api.WithTracerProvider(sdk.NewTracerProvider(sdk.WithSyncer(made))))
		if test.public {
			f.handler = f.handler.(*edge.API).Public()
		}
		headers := []string{"Authorization", "Bearer ticket-7"}
		if test.traceparent != "" {
			headers = append(headers, "Traceparent", test.traceparent)
		}
		f.do(test.status, test.method, test.path, "", headers...)
		spans := made.GetSpans()
		if test.span == "" {
			if len(spans) > 0 {
				t.Errorf("%+v: it has spans: %v", test, spans)
			}
			continue
		}
		if len(spans) != 1 || spans[0].Name != test.span || spans[0].Parent.IsValid() != test.continued || len(spans[0].Links) != test.links {
			t.Errorf("%+v: the spans are %+v", test, spans)
			continue
		}
		got := int64(0)
		for _, a := range spans[0].Attributes {
			if a.Key == "http.response.status_code" {
				got = a.Value.AsInt64()
			}
		}
		if got != int64(test.status) {
			t.Errorf("%+v: the span has status %d", test, got)
		}
	}
}
