package engine

import (
	"context"
	"strings"
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/sluice-project/sluice/bulk"
)

// idle has a handler that does nothing.
var idle = func() *bulk.Mux {
	mux := bulk.NewMux()
	mux.HandleFunc("send", func(context.Context, *bulk.Job) ([]byte, error) { return nil, nil }, bulk.WithTimeout(time.Minute))
	return mux
}()

// TestTracingThatIsOffAllocatesNothing checks that an attempt allocates only for its handler
// and its deadline, with tracing off and for actions that are not traced.
func TestTracingThatIsOffAllocatesNothing(t *testing.T) {
	provider := sdk.NewTracerProvider(sdk.WithSampler(sdk.AlwaysSample()))
	traced := bulk.TraceContext{Parent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	tests := []struct {
		name  string
		spans *spans
		trace bulk.TraceContext
		more  bool
	}{
		{"off", nil, bulk.TraceContext{}, false},
		{"off, an action that was traced", nil, traced, false},
		{"on, an action without a trace", newSpans(provider), bulk.TraceContext{}, false},
		{"on, traced", newSpans(provider), traced, true},
	}
	for _, test := range tests {
		e := &Engine{jobs: context.Background(), spans: test.spans, config: bulk.Config{}.WithDefaults()}
		p := newPool(e, "send", idle.Runner("send", bulk.Config{}))
		job := &bulk.Job{Spec: &bulk.Spec{ID: "a", Type: "send", Trace: test.trace}}
		least := testing.AllocsPerRun(1000, func() { p.run(e.jobs, job) })
		if got := testing.AllocsPerRun(1000, func() { p.attempt(e.jobs, job) }); (got > least) != test.more {
			t.Errorf("%s: an attempt allocates %v times, its handler %v times", test.name, got, least)
		}
	}
}

func TestALongTraceStateIsLeftOut(t *testing.T) {
	place := bulk.TraceContext{Parent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", State: "vendor=" + strings.Repeat("x", 250)}
	if got := bulk.TraceContextOf(place.Context(context.Background())); got != place {
		t.Errorf("kept %+v, want %+v", got, place)
	}
	place.State = "a=" + strings.Repeat("x", 250) + ",b=" + strings.Repeat("x", 250) + ",c=" + strings.Repeat("x", 250)
	if got := bulk.TraceContextOf(place.Context(context.Background())); got.Parent != place.Parent || got.State != "" {
		t.Errorf("kept %+v, want the parent alone", got)
	}
}

func TestPlacesThatAreNone(t *testing.T) {
	for _, parent := range []string{"", "forged", "00-00000000000000000000000000000000-b7ad6b7169203331-01"} {
		place := bulk.TraceContext{Parent: parent}
		if place.SpanContext().IsValid() || linksOf(place) != nil || place.Context(t.Context()) != t.Context() {
			t.Errorf("%q is taken for a place in a trace", parent)
		}
	}
}

// BenchmarkAttempt is one attempt of a handler that does nothing: with tracing off, and of
// actions that are not traced, not sampled, and traced.
func BenchmarkAttempt(b *testing.B) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-"
	provider := sdk.NewTracerProvider(sdk.WithSampler(sdk.AlwaysSample()))
	for _, test := range []struct {
		name, parent string
		spans        *spans
	}{
		{"off", "", nil}, {"none", "", newSpans(provider)}, {"unwanted", parent + "00", newSpans(provider)}, {"traced", parent + "01", newSpans(provider)},
	} {
		b.Run(test.name, func(b *testing.B) {
			e := &Engine{jobs: context.Background(), spans: test.spans, config: bulk.Config{}.WithDefaults()}
			p := newPool(e, "send", idle.Runner("send", bulk.Config{}))
			job := &bulk.Job{Spec: &bulk.Spec{ID: "a", Type: "send", Trace: bulk.TraceContext{Parent: test.parent}}}
			b.ReportAllocs()
			for b.Loop() {
				p.attempt(e.jobs, job)
			}
		})
	}
}
