package gate

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/sluice-project/sluice/room"
)

// A request has a span, and one below it for the upstream, which gets its traceparent. Only a trusted proxy's traceparent is
// continued.
func TestTraces(t *testing.T) {
	const caller, trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "0af7651916cd43dd8448eb211c80319c"
	all := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	for name, test := range map[string]struct {
		trusted     []netip.Prefix
		off         bool
		path        string
		traceparent string
		askers      []asker
		spans       string // their names and statuses
		continued   bool
		links       int
	}{
		"inside":             {path: "/cart", askers: []asker{ticket(1), pass(1)}, spans: "GET 200, GET 200"},
		"of a proxy":         {path: "/cart", askers: []asker{ticket(1), pass(1)}, trusted: all, traceparent: caller, spans: "GET 200, GET 200", continued: true},
		"of somebody":        {path: "/cart", askers: []asker{ticket(1), pass(1)}, traceparent: caller, spans: "GET 200, GET 200", links: 1},
		"in line":            {path: "/cart", spans: "GET 200"},
		"a poll":             {path: "/.sluice/shop/status", askers: []asker{ticket(1)}, traceparent: caller},
		"a poll of a proxy":  {path: "/.sluice/shop/status", askers: []asker{ticket(1)}, trusted: all, traceparent: caller, spans: "GET 200", continued: true},
		"without a provider": {off: true, path: "/cart", askers: []asker{ticket(1), pass(1)}, traceparent: caller},
	} {
		t.Run(name, func(t *testing.T) {
			made := tracetest.NewInMemoryExporter()
			provider := sdk.NewTracerProvider(sdk.WithSyncer(made))
			sent := sentOn(t, test.path, append(test.askers, asPage, header("Traceparent", test.traceparent)), func(o *Options) {
				o.TrustedProxies = test.trusted
				if !test.off {
					o.TracerProvider = provider
				}
			})
			var got []string
			spans := made.GetSpans()
			for _, span := range spans {
				for _, a := range span.Attributes {
					if a.Key == "http.response.status_code" {
						got = append(got, span.Name+" "+a.Value.String())
					}
				}
			}
			if strings.Join(got, ", ") != test.spans {
				t.Errorf("the spans are %q, want %q", got, test.spans)
			}
			if test.off && sent != test.traceparent {
				t.Errorf("the upstream got %q, want what was sent", sent)
			}
			if len(spans) == 0 {
				return
			}
			served := spans[len(spans)-1]
			if continued := served.Parent.TraceID().String() == trace; continued != test.continued || len(served.Links) != test.links {
				t.Errorf("the caller's trace is continued: %v, links %v", continued, served.Links)
			}
			if upstream := spans[0].SpanContext; len(spans) == 2 && sent != "00-"+upstream.TraceID().String()+"-"+upstream.SpanID().String()+"-01" {
				t.Errorf("the upstream got %q, want the span %v", sent, upstream)
			}
		})
	}
}

// sentOn sends a request to a gate where visitor 1 is inside, and returns the traceparent that the upstream got.
func sentOn(t *testing.T, path string, askers []asker, change func(*Options)) (sent string) {
	t.Helper()
	behind := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { sent = r.Header.Get("Traceparent") }))
	defer behind.Close()
	s := newStand(t, change)
	s.set(1, room.Inside)
	target, err := url.Parse(behind.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := Proxy(target, ProxyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer closeIdle(proxy)
	r := httptest.NewRequest(http.MethodGet, "http://shop.test"+path, http.NoBody)
	for _, change := range askers {
		change(r)
	}
	s.gate.Middleware(proxy).ServeHTTP(httptest.NewRecorder(), r)
	return sent
}
