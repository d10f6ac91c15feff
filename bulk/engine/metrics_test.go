package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/engine"
)

// inMilliseconds has the metrics whose names have this unit for compatibility, and a related
// one; a linter would require seconds.
var inMilliseconds = []string{"bulk_action_dispatch_cycle_duration_ms", "bulk_action_attempt_duration_ms"}

func TestMetricsLint(t *testing.T) {
	mux := handled(func(_ context.Context, job *bulk.Job) ([]byte, error) {
		switch {
		case job.Index == 0:
			return nil, bulk.SkipRetry
		case job.Index == 1 && job.Attempt == 1:
			return nil, &bulk.RetryAfterError{After: time.Second, Err: bulk.ErrFull}
		}
		return nil, nil
	})
	inVirtualTime(t, bulk.Config{}, mux, func(t *testing.T, r *rig) {
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(r.Collector())
		if _, err := registry.Gather(); err != nil {
			t.Fatalf("before anything happened: %v", err)
		}
		r.finish(r.submit(bulk.Spec{Type: "send"}, 10))
		pass(time.Second)
		problems, err := testutil.GatherAndLint(registry)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			if !slices.Contains(inMilliseconds, p.Metric) {
				t.Errorf("%s: %s", p.Metric, p.Text)
			}
		}
		want := `
# HELP bulk_action_attempts_total Attempts that ended, by outcome.
# TYPE bulk_action_attempts_total counter
bulk_action_attempts_total{outcome="failed",type="send"} 1
bulk_action_attempts_total{outcome="retry",type="send"} 1
bulk_action_attempts_total{outcome="succeeded",type="send"} 9
# HELP bulk_action_jobs_total Jobs that finished, by outcome.
# TYPE bulk_action_jobs_total counter
bulk_action_jobs_total{outcome="failed",tenant="tenant"} 1
bulk_action_jobs_total{outcome="succeeded",tenant="tenant"} 9
# HELP bulk_action_rate_limit_allowed_total Jobs that the limits let into the ready queue.
# TYPE bulk_action_rate_limit_allowed_total counter
bulk_action_rate_limit_allowed_total{tenant="tenant"} 11
# HELP bulk_action_received_total Jobs that were received.
# TYPE bulk_action_received_total counter
bulk_action_received_total 10
# HELP bulk_action_non_ready_queue_size Jobs that were turned back and wait until they are due.
# TYPE bulk_action_non_ready_queue_size gauge
bulk_action_non_ready_queue_size{reason="api_throttled"} 0
bulk_action_non_ready_queue_size{reason="key_limited"} 0
bulk_action_non_ready_queue_size{reason="rate_limited"} 0
bulk_action_non_ready_queue_size{reason="transient_error"} 0
`
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "bulk_action_attempts_total", "bulk_action_jobs_total",
			"bulk_action_rate_limit_allowed_total", "bulk_action_received_total", "bulk_action_non_ready_queue_size"); err != nil {
			t.Error(err)
		}
	})
}

func TestTheSeedsMetricsAreThere(t *testing.T) {
	mux := handled(func(_ context.Context, job *bulk.Job) ([]byte, error) {
		if job.Attempt == 1 {
			return nil, bulk.ErrFull
		}
		return nil, nil
	})
	inVirtualTime(t, bulk.Config{Window: time.Second, RequestsPerSecond: 5}, mux, func(t *testing.T, r *rig) {
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(r.Collector())
		id := r.submit(bulk.Spec{Type: "send"}, 10)
		pass(1500 * time.Millisecond)
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, f := range families {
			names = append(names, strings.TrimPrefix(f.GetName(), "bulk_action_"))
		}
		for _, name := range []string{"rate_limit_allowed_total", "rate_limit_denied_total", "ready_queue_size", "non_ready_queue_size",
			"dispatch_moved_total", "dispatch_cycle_duration_ms", "dispatch_skip_total", "backpressure_admitted_total", "backpressure_rejected_total"} {
			if !slices.Contains(names, name) {
				t.Errorf("%s is missing", name)
			}
		}
		r.finish(id)
	})
}

func TestTenantLabelsAreBounded(t *testing.T) {
	inVirtualTime(t, bulk.Config{}, bulk.NewMux(), func(t *testing.T, r *rig) {
		var last string
		for i := range 250 {
			last = r.submit(bulk.Spec{Tenant: fmt.Sprint("tenant-", i), Type: "echo"}, 1)
		}
		r.finish(last)
		pass(5 * time.Second)
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(r.Collector())
		n, err := testutil.GatherAndCount(registry, "bulk_action_jobs_total")
		if err != nil || n > 201 {
			t.Errorf("250 tenants have %d series, error %v; want at most 200 and the others", n, err)
		}
	})
}

func TestTypeLabelsAreBounded(t *testing.T) {
	mux := bulk.NewMux()
	for i := range 250 {
		mux.HandleFunc(fmt.Sprint("type-", i), func(context.Context, *bulk.Job) ([]byte, error) { return nil, nil })
	}
	inVirtualTime(t, bulk.Config{Workers: 1}, mux, func(t *testing.T, r *rig) {
		var ids []string
		for i := range 250 {
			ids = append(ids, r.submit(bulk.Spec{Type: fmt.Sprint("type-", i)}, 1))
			r.submit(bulk.Spec{Type: fmt.Sprint("nobody-", i)}, 2)
		}
		for _, id := range ids {
			r.finish(id)
		}
		pass(5 * time.Second)
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(r.Collector())
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		types, ready := map[string]bool{}, 0.0
		for _, f := range families {
			for _, m := range f.GetMetric() {
				for _, l := range m.GetLabel() {
					if l.GetName() == "type" {
						types[l.GetValue()] = true
					}
				}
				if f.GetName() == "bulk_action_ready_queue_size" {
					ready += m.GetGauge().GetValue()
				}
			}
		}
		if len(types) > 201 || !types["other"] {
			t.Errorf("500 types have %d values of the label, one of them other: %v; want at most 201", len(types), types["other"])
		}
		if ready != 500 {
			t.Errorf("%v jobs are ready by the metrics, want 500", ready)
		}
		for _, id := range ids {
			r.action(id)
		}
	})
}

func TestMetricsOfTheOutbox(t *testing.T) {
	p := &recorder{}
	p.fails(func(int) bool { return true })
	inVirtualTime(t, bulk.Config{}, bulk.NewMux(), func(t *testing.T, r *rig) {
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(r.Collector())
		gathered := func() map[string]float64 {
			t.Helper()
			families, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			values := map[string]float64{}
			for _, f := range families {
				for _, m := range f.GetMetric() {
					name := strings.TrimPrefix(f.GetName(), "bulk_action_")
					if strings.HasPrefix(name, "events_published") {
						name += " " + m.GetLabel()[0].GetValue()
					}
					values[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
				}
			}
			return values
		}
		r.finish(r.submit(bulk.Spec{Type: "echo", Events: []string{"jobs"}}, 10))
		pass(time.Minute)
		stuck := gathered()
		if stuck["outbox_size"] != 15 || stuck["outbox_oldest_age_seconds"] < 60 || stuck["outbox_oldest_age_seconds"] > 70 || stuck["publish_failures_total"] < 5 {
			t.Errorf("when publishing fails: %v", stuck)
		}
		p.fails(nil)
		pass(time.Minute)
		well := gathered()
		if well["outbox_size"] != 0 || well["outbox_oldest_age_seconds"] != 0 || well["events_published_total action"] != 5 || well["events_published_total job"] != 10 {
			t.Errorf("when it succeeds again: %v", well)
		}
	}, engine.WithPublisher(p))
}

// TestMetricsOfWhatIsRefused checks that late reports are counted by their verdict.
func TestMetricsOfWhatIsRefused(t *testing.T) {
	inVirtualTime(t, bulk.Config{}, bulk.NewMux(), func(t *testing.T, r *rig) {
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(r.Collector())
		r.submit(bulk.Spec{Type: "remote"}, 1)
		late := r.lease(1, 2*time.Second, time.Minute)[0].Lease
		pass(3 * time.Second)
		if verdict := r.settle(engine.Report{Lease: late, Kind: bulk.Succeeded}); verdict != bulk.Expired {
			t.Errorf("after its end: %s", verdict)
		}
		lease := r.lease(1, time.Minute, time.Minute)[0].Lease
		for _, want := range []bulk.Verdict{bulk.Accepted, bulk.Duplicate, bulk.Duplicate} {
			if verdict := r.settle(engine.Report{Lease: lease, Kind: bulk.Succeeded}); verdict != want {
				t.Errorf("%s, want %s", verdict, want)
			}
		}
		want := `
# HELP bulk_action_settlements_refused_total Outcomes that changed nothing, by verdict: their lease was settled before, has ended, or was never given.
# TYPE bulk_action_settlements_refused_total counter
bulk_action_settlements_refused_total{verdict="duplicate"} 2
bulk_action_settlements_refused_total{verdict="expired"} 1
bulk_action_settlements_refused_total{verdict="unknown"} 0
`
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "bulk_action_settlements_refused_total"); err != nil {
			t.Error(err)
		}
	})
}

// TestFoundRateIsShown checks that the engine and a metric return the found rate.
func TestFoundRateIsShown(t *testing.T) {
	mux := bulk.NewMux()
	mux.HandleFunc(bulk.WebhookType, func(context.Context, *bulk.Job) ([]byte, error) { return nil, nil })
	inVirtualTime(t, bulk.Config{RequestsPerSecond: -1}, mux, func(t *testing.T, r *rig) {
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(r.Collector())
		for name, limits := range map[string]bulk.TargetLimits{"api": {Auto: true}, "other": {RequestsPerSecond: 7}} {
			if err := r.Set(t.Context(), bulk.SettingsChange{Name: name, Target: &limits}); err != nil {
				t.Fatal(err)
			}
		}
		r.submit(bulk.Spec{Target: &bulk.Target{Name: "api", URL: "http://api/"}}, 10_000)
		pass(3500 * time.Millisecond)
		for name, want := range map[string]float64{"api": 80, "other": 0, "unknown": 0} {
			if found, err := r.FoundRate(t.Context(), name); err != nil || found != want {
				t.Errorf("%s: found %g, %v; want %g", name, found, err, want)
			}
		}
		want := `
# HELP bulk_action_target_found_requests_per_second The rate that was found of a target which is set to auto.
# TYPE bulk_action_target_found_requests_per_second gauge
bulk_action_target_found_requests_per_second{target="api"} 80
`
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "bulk_action_target_found_requests_per_second"); err != nil {
			t.Error(err)
		}
	})
}

// TestMetricsOfQuotas: tenants with a quota, their own or that of all, show what they have stored of it. Others are not asked for, and
// the tenants are bounded.
func TestMetricsOfQuotas(t *testing.T) {
	inVirtualTime(t, bulk.Config{TenantMaxJobs: 50}, handled(func(context.Context, *bulk.Job) ([]byte, error) { return nil, nil }), func(t *testing.T, r *rig) {
		set := func(name string, tenant bulk.Tenant) {
			t.Helper()
			if err := r.Set(t.Context(), bulk.SettingsChange{Name: name, Tenant: &tenant}); err != nil {
				t.Fatal(err)
			}
		}
		set("own", bulk.Tenant{MaxActions: 5, MaxJobs: 20})
		r.finish(r.submit(bulk.Spec{Tenant: "seen", Type: "send"}, 1))
		for _, spec := range []bulk.Spec{{ID: "open", Tenant: "own", Type: "send"}, {ID: "open-too", Tenant: "own", Type: "send"}} {
			if _, _, err := r.Create(t.Context(), spec); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := r.Append(t.Context(), "open", 0, [][]byte{[]byte("1"), []byte("2"), []byte("3")}); err != nil {
			t.Fatal(err)
		}
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(r.Collector())
		want := `
# HELP bulk_tenant_stored What counts in a quota of a tenant. All instances on one Redis show the same: max by (tenant, of).
# TYPE bulk_tenant_stored gauge
bulk_tenant_stored{of="actions",tenant="own"} 2
bulk_tenant_stored{of="jobs",tenant="own"} 3
bulk_tenant_stored{of="jobs",tenant="seen"} 0
# HELP bulk_tenant_stored_max The quota of a tenant, for those that have one.
# TYPE bulk_tenant_stored_max gauge
bulk_tenant_stored_max{of="actions",tenant="own"} 5
bulk_tenant_stored_max{of="jobs",tenant="own"} 20
bulk_tenant_stored_max{of="jobs",tenant="seen"} 50
`
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "bulk_tenant_stored", "bulk_tenant_stored_max"); err != nil {
			t.Error(err)
		}
		for i := range 250 {
			set(fmt.Sprintf("tenant %d", i), bulk.Tenant{MaxBytes: 1})
		}
		// Two quotas of each, but "seen" has one.
		if series, err := testutil.GatherAndCount(registry, "bulk_tenant_stored"); err != nil || series != 2*200-1 {
			t.Errorf("%d series, %v; want those of 200 tenants", series, err)
		}
	})
}
