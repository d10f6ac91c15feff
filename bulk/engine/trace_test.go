package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/bulktest"
	"github.com/sluice-project/sluice/bulk/engine"
)

// recorded returns a provider that keeps its spans.
func recorded(sampler sdk.Sampler) (*sdk.TracerProvider, *tracetest.InMemoryExporter) {
	made := tracetest.NewInMemoryExporter()
	return sdk.NewTracerProvider(sdk.WithSyncer(made), sdk.WithSampler(sdk.ParentBased(sampler))), made
}

// tree writes spans as a tree, siblings in alphabetical order. Each line has the name and the
// requested attributes. Spans of other traces than that of the first root follow.
func tree(spans tracetest.SpanStubs, keys ...attribute.Key) string {
	var write func(parent trace.SpanID, depth int) string
	write = func(parent trace.SpanID, depth int) string {
		var siblings []string
		for _, s := range spans {
			if s.Parent.SpanID() != parent {
				continue
			}
			text := strings.Repeat("  ", depth) + s.Name
			for _, key := range keys {
				for _, a := range s.Attributes {
					if a.Key == key {
						text += " " + a.Value.String()
					}
				}
			}
			siblings = append(siblings, text+"\n"+write(s.SpanContext.SpanID(), depth+1))
		}
		slices.Sort(siblings)
		return strings.Join(siblings, "")
	}
	return write(trace.SpanID{}, 0)
}

func wantTree(t *testing.T, got, want string) {
	t.Helper()
	if got = strings.TrimSpace(got); got != strings.TrimSpace(want) {
		t.Errorf("the spans are\n%s\nwant\n%s", got, strings.TrimSpace(want))
	}
}

// named returns the spans with a name.
func named(spans tracetest.SpanStubs, name string) (found tracetest.SpanStubs) {
	for _, s := range spans {
		if s.Name == name {
			found = append(found, s)
		}
	}
	return found
}

// value returns the value of a span's attribute as text; "" if there is none.
func value(s tracetest.SpanStub, key attribute.Key) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value.String()
		}
	}
	return ""
}

// stumbling returns a mux whose jobs are first throttled, then fail, then succeed; a payload
// of "9" never succeeds.
func stumbling() *bulk.Mux {
	var calls atomic.Int64
	mux := bulk.NewMux()
	mux.HandleFunc("send", func(_ context.Context, job *bulk.Job) ([]byte, error) {
		switch n := calls.Add(1); {
		case string(job.Payload) == "9":
			return nil, fmt.Errorf("no such address: %w", bulk.SkipRetry)
		case n == 1:
			return nil, &bulk.ThrottledError{Reason: "slow down"}
		case n == 2:
			return nil, errors.New("connection \xff reset")
		}
		return []byte("1"), nil
	})
	return mux
}

func TestTheTraceOfAnAction(t *testing.T) {
	provider, made := recorded(sdk.AlwaysSample())
	inVirtualTime(t, bulk.Config{}, stumbling(), func(t *testing.T, r *rig) {
		began := time.Now()
		id := r.submit(bulk.Spec{ID: "a", Tenant: "acme", Type: "send", Aggregate: []string{"count"}}, 1)
		pass(time.Minute)
		a := r.finish(id)
		bulktest.RequireCounts(t, a, bulk.Completed, 1, 0)
		spans := made.GetSpans()
		wantTree(t, tree(spans, "sluice.job.attempt", "sluice.job.outcome", "sluice.job.reason", "messaging.message.id"), `
create send
  action send
  aggregate send
  process send 1 retry transient_error a-0
  process send 1 throttled api_throttled a-0
  process send 2 succeeded a-0`)
		action := named(spans, "action send")[0]
		if !action.StartTime.Equal(began) || !action.EndTime.Equal(a.FinishedAt) || len(action.Events) != 1 || !action.Events[0].Time.Equal(a.EnteredAt) {
			t.Errorf("the action's span is from %v to %v with %+v, want from its creation to its end, and its seal", action.StartTime, action.EndTime, action.Events)
		}
		for key, want := range map[attribute.Key]string{
			"sluice.action.id": "a", "sluice.tenant": "acme", "sluice.action.status": "COMPLETED", "messaging.system": "sluice",
			"messaging.destination.name": "send", "sluice.jobs.total": "1", "sluice.jobs.succeeded": "1", "sluice.jobs.throttled": "1", "sluice.jobs.retried": "1",
		} {
			if got := value(action, key); got != want {
				t.Errorf("the action's span has %s %q, want %q", key, got, want)
			}
		}
		attempts := named(spans, "process send")
		if s := attempts[0].Status; s.Code != codes.Unset || value(attempts[0], "sluice.job.error") != "throttled: slow down" {
			t.Errorf("the throttled attempt: %+v, %q, want no error", s, value(attempts[0], "sluice.job.error"))
		}
		if s := attempts[1].Status; s.Code != codes.Error || s.Description != "connection \uFFFD reset" {
			t.Errorf("the failed attempt: %+v, want an error, in UTF-8", s)
		}
		if s := attempts[2]; s.Status.Code != codes.Unset || s.SpanKind != trace.SpanKindConsumer {
			t.Errorf("the last attempt: %+v of kind %v", s.Status, s.SpanKind)
		}
	}, engine.WithTracerProvider(provider))
}

// TestARestartKeepsTheTrace checks that another process continues the trace, with the
// sampler's first decision.
func TestARestartKeepsTheTrace(t *testing.T) {
	provider, made := recorded(sdk.AlwaysSample())
	inVirtualTime(t, bulk.Config{}, stumbling(), func(t *testing.T, r *rig) {
		id := r.submit(bulk.Spec{ID: "a", Type: "send", RunAt: time.Now().Add(time.Hour)}, 2)
		never, late := recorded(sdk.NeverSample()) // its own sampler would decide against it
		r.Restart(t, stumbling(), engine.WithTracerProvider(never))
		pass(2 * time.Hour)
		bulktest.RequireCounts(t, r.finish(id), bulk.Completed, 2, 0)
		before, after := made.GetSpans(), late.GetSpans()
		if len(before) != 1 || len(after) != 6 {
			t.Errorf("%d spans before the restart and %d after it, want 1 and 6", len(before), len(after))
		}
		for _, s := range after {
			if s.Parent.SpanID() != before[0].SpanContext.SpanID() || s.SpanContext.TraceID() != before[0].SpanContext.TraceID() {
				t.Errorf("%s is not a child of the creation", s.Name)
			}
		}
	}, engine.WithTracerProvider(provider))
}

// TestTheSpanOfEachEnd checks that the span of an action is created once, however the action
// ends.
func TestTheSpanOfEachEnd(t *testing.T) {
	provider, made := recorded(sdk.AlwaysSample())
	mux := stumbling()
	mux.HandleFunc("hold", func(context.Context, *bulk.Job) ([]byte, error) { pass(10 * time.Second); return nil, nil })
	never := 0.0
	inVirtualTime(t, bulk.Config{}, mux, func(t *testing.T, r *rig) {
		ctx := t.Context()
		cancel := func(id string) {
			if _, err := r.Cancel(ctx, id); err != nil {
				t.Fatal(err)
			}
			if _, err := r.Cancel(ctx, id); err != nil {
				t.Fatalf("canceled again: %v", err)
			}
		}
		r.submit(bulk.Spec{ID: "idle", Type: "none"}, 3)
		cancel("idle")
		held := r.submit(bulk.Spec{ID: "busy", Type: "hold"}, 1)
		pass(time.Second)
		cancel(held)
		if n := len(named(made.GetSpans(), "action hold")); n != 0 {
			t.Errorf("%d spans of an action with a job in flight, want none yet", n)
		}
		r.finish(held)
		failed := r.submit(bulk.Spec{ID: "failed", Type: "send", FailAbove: &never}, 10)
		r.finish(failed)
		pass(time.Minute)
		for id, want := range map[string]string{"idle": "CANCELED", "busy": "CANCELED", "failed": "FAILED"} {
			actions := slices.DeleteFunc(made.GetSpans(), func(s tracetest.SpanStub) bool {
				return !strings.HasPrefix(s.Name, "action ") || value(s, "sluice.action.id") != id
			})
			if len(actions) != 1 || value(actions[0], "sluice.action.status") != want {
				t.Errorf("%s: %d spans of the action, want one with %s", id, len(actions), want)
			}
			if isError := actions[0].Status.Code == codes.Error; isError != (want == "FAILED") {
				t.Errorf("%s: status %+v", id, actions[0].Status)
			}
		}
	}, engine.WithTracerProvider(provider))
}

// TestLinksBetweenTraces checks that spans of repeated creations and of replays link to the
// action's trace.
func TestLinksBetweenTraces(t *testing.T) {
	provider, made := recorded(sdk.AlwaysSample())
	inVirtualTime(t, bulk.Config{}, stumbling(), func(t *testing.T, r *rig) {
		id := r.submit(bulk.Spec{ID: "a", Type: "send"}, 10)
		first := r.finish(id).Trace
		if a, created, err := r.Create(t.Context(), bulk.Spec{ID: "a", Tenant: "tenant", Type: "send", Trace: bulk.TraceContext{Parent: "forged"}}); err != nil || created || a.Trace != first {
			t.Errorf("created again: %v, %v, trace %+v, want that of the first", created, err, a.Trace)
		}
		if _, err := r.Replay(t.Context(), id, bulk.FailureFilter{}); err != nil {
			t.Fatal(err)
		}
		creations := named(made.GetSpans(), "create send")
		if len(creations) != 3 {
			t.Fatalf("%d creations, want 3", len(creations))
		}
		of := creations[0].SpanContext
		for _, s := range creations[1:] {
			if s.SpanContext.TraceID() == of.TraceID() || len(s.Links) != 1 || s.Links[0].SpanContext.SpanID() != of.SpanID() {
				t.Errorf("a creation has the links %+v, want a trace of its own with a link to the first", s.Links)
			}
		}
	}, engine.WithTracerProvider(provider))
}

// TestTheCallersDecisionHolds checks that an action is not traced if its caller is not
// sampled, and that handlers can propagate that, with the caller's tracestate.
func TestTheCallersDecisionHolds(t *testing.T) {
	provider, made := recorded(sdk.AlwaysSample())
	var seen atomic.Value
	mux := bulk.NewMux()
	mux.HandleFunc("look", func(ctx context.Context, _ *bulk.Job) ([]byte, error) {
		seen.Store(trace.SpanContextFromContext(ctx))
		return nil, nil
	})
	inVirtualTime(t, bulk.Config{}, mux, func(t *testing.T, r *rig) {
		unwanted := bulk.TraceContext{Parent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00", State: "vendor=1"}
		a, _, err := r.Create(unwanted.Context(t.Context()), bulk.Spec{Tenant: "t", Type: "look"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Append(t.Context(), a.ID, 0, [][]byte{{'1'}}); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Seal(t.Context(), a.ID, 1); err != nil {
			t.Fatal(err)
		}
		r.finish(a.ID)
		if spans := made.GetSpans(); len(spans) != 0 {
			t.Errorf("%d spans that nobody wants", len(spans))
		}
		if at, _ := seen.Load().(trace.SpanContext); at.TraceID().String() != "0af7651916cd43dd8448eb211c80319c" || at.IsSampled() || at.TraceState().Get("vendor") != "1" {
			t.Errorf("the handler has the place %+v, want that of the caller", at)
		}
	}, engine.WithTracerProvider(provider))
}

func TestTheTraceOfARemoteWorker(t *testing.T) {
	provider, made := recorded(sdk.AlwaysSample())
	inVirtualTime(t, bulk.Config{}, bulk.NewMux(), func(t *testing.T, r *rig) {
		id := r.submit(bulk.Spec{ID: "a", Type: "remote"}, 1)
		first := r.lease(1, time.Second, time.Minute)[0]
		pass(3 * time.Second) // its lease ends
		second := r.lease(1, time.Minute, time.Minute)[0]
		if v := r.settle(engine.Report{Lease: first.Lease, Kind: bulk.Succeeded}); v != bulk.Expired {
			t.Fatalf("the late report is %v", v)
		}
		_, worker := provider.Tracer("worker").Start(second.Trace.Context(context.Background()), "work")
		worker.End()
		r.settle(engine.Report{Lease: second.Lease, Kind: bulk.Extended})
		r.settle(engine.Report{Lease: second.Lease, Kind: bulk.Succeeded, Took: 2 * time.Second})
		r.settle(engine.Report{Lease: second.Lease, Kind: bulk.Succeeded, Took: 2 * time.Second}) // duplicate
		r.finish(id)
		spans := made.GetSpans()
		wantTree(t, tree(spans, "sluice.job.outcome"), `
create remote
  action remote
  aggregate remote
  lease remote
  lease remote
    work
  settle remote succeeded`)
		if s := named(spans, "settle remote")[0]; s.EndTime.Sub(s.StartTime) != 2*time.Second {
			t.Errorf("the attempt took %v, want what the worker says, 2s", s.EndTime.Sub(s.StartTime))
		}
	}, engine.WithTracerProvider(provider))
}

// TestWithoutTracing checks that without a provider an action has no trace, even if it had
// one.
func TestWithoutTracing(t *testing.T) {
	provider, made := recorded(sdk.AlwaysSample())
	inVirtualTime(t, bulk.Config{}, bulk.NewMux(), func(t *testing.T, r *rig) {
		traced := r.submit(bulk.Spec{ID: "traced", Type: "remote"}, 1)
		r.Restart(t, bulk.NewMux())
		plain, _, err := r.Create(trace.ContextWithSpanContext(t.Context(), made.GetSpans()[0].SpanContext), bulk.Spec{ID: "plain", Tenant: "t", Type: "remote"})
		if err != nil || plain.Trace != (bulk.TraceContext{}) {
			t.Errorf("created with the trace %+v, %v, want none", plain.Trace, err)
		}
		job := r.lease(1, time.Minute, time.Minute)[0]
		if job.Trace != nil {
			t.Errorf("a leased job has the trace %+v, want none", job.Trace)
		}
		r.settle(engine.Report{Lease: job.Lease, Kind: bulk.Succeeded})
		r.finish(traced)
		if n := len(made.GetSpans()); n != 1 {
			t.Errorf("%d spans, want only that of the creation", n)
		}
	}, engine.WithTracerProvider(provider))
}
