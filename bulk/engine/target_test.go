package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/bulktest"
	"github.com/sluice-project/sluice/bulk/engine"
)

func (r *rig) setTarget(name string, limits bulk.TargetLimits) {
	r.t.Helper()
	if err := r.Set(context.Background(), bulk.SettingsChange{Name: name, Target: &limits}); err != nil {
		r.t.Fatal(err)
	}
}

// webhooks has a handler that calls f with each job and returns no result.
func webhooks(f func(*bulk.Job) error) *bulk.Mux {
	mux := bulk.NewMux()
	mux.HandleFunc(bulk.WebhookType, func(_ context.Context, job *bulk.Job) ([]byte, error) { return nil, f(job) })
	return mux
}

// refusal returns the field of a *bulk.SpecError, or "tenant" for a *bulk.DeniedError.
func refusal(err error) string {
	var wrong *bulk.SpecError
	switch {
	case errors.As(err, new(*bulk.DeniedError)):
		return "tenant"
	case errors.As(err, &wrong):
		return wrong.Field
	}
	return ""
}

// An action names a target and a path below its prefix.
func TestActionsStayBelowThePrefixOfTheirTarget(t *testing.T) {
	const prefix = "https://billing.example.com/hooks"
	inVirtualTime(t, bulk.Config{}, webhooks(func(*bulk.Job) error { return nil }), func(t *testing.T, r *rig) {
		r.setTarget("billing", bulk.TargetLimits{URLPrefix: prefix, Tenants: []string{"acme", "shop"}})
		r.setTarget("api.example.com:443", bulk.TargetLimits{URLPrefix: "https://api.example.com/v1"})
		for _, test := range []struct {
			tenant, name, url string
			want              string // the URL, or the field that is refused
		}{
			{"acme", "billing", "", prefix},
			{"acme", "billing", "/charge?x=1", prefix + "/charge?x=1"},
			{"shop", "billing", prefix + "/charge", prefix + "/charge"},
			{"acme", "billing", "../charge", "target.url"},
			{"acme", "billing", "https://evil.example/", "target.url"},
			{"acme", "billing", "https://u:p@billing.example.com/hooks", "target.url"},
			{"evil", "billing", "/charge", "tenant"},
			{"evil", "other", "https://other.example/", "https://other.example/"},
			{"evil", "other", "/x", "target.url"},
			{"evil", "", "https://api.example.com/v1/x", "https://api.example.com/v1/x"},
			{"evil", "", "https://api.example.com/v2/x", "target.url"}, // its name is that of the target
			{"evil", "", "/x", "target.url"},
		} {
			a, _, err := r.Create(t.Context(), bulk.Spec{Tenant: test.tenant, Target: &bulk.Target{Name: test.name, URL: test.url}})
			if got := refusal(err); err != nil && got != test.want || err == nil && a.Target.URL != test.want {
				t.Errorf("%+v: %v, %v", test, a.Target, err)
			}
			s := every("s", "@daily")
			s.Spec = bulk.Spec{Tenant: test.tenant, Target: &bulk.Target{Name: test.name, URL: test.url}}
			stored, _, err := r.PutSchedule(t.Context(), s)
			if got := refusal(err); err != nil && got != test.want || err == nil && stored.Spec.Target.URL != test.want {
				t.Errorf("a schedule of %+v: %v, %v", test, stored.Spec.Target, err)
			}
		}
		spec := bulk.Spec{ID: "a", Tenant: "acme", Target: &bulk.Target{Name: "billing", URL: "charge"}}
		for _, created := range []bool{true, false} {
			if _, got, err := r.Create(t.Context(), spec); err != nil || got != created || spec.Target.URL != "charge" {
				t.Errorf("created %v, want %v; %v; the caller's spec has %v", got, created, err, spec.Target)
			}
		}
	})
}

func TestInlineTargetsCanBeOff(t *testing.T) {
	inVirtualTime(t, bulk.Config{}, webhooks(func(*bulk.Job) error { return nil }), func(t *testing.T, r *rig) {
		r.setTarget("limited", bulk.TargetLimits{Concurrency: 3})
		r.setTarget("billing", bulk.TargetLimits{URLPrefix: "https://billing.example.com"})
		for name, want := range map[string]string{"": "target", "other": "target", "limited": "target", "billing": ""} {
			_, _, err := r.Create(t.Context(), bulk.Spec{Tenant: "t", Target: &bulk.Target{Name: name, URL: "https://billing.example.com/x"}})
			if refusal(err) != want || want != "" && !strings.Contains(err.Error(), "bulk.inline_targets") {
				t.Errorf("target %q: %v", name, err)
			}
		}
		bulktest.RequireCounts(t, r.finish(r.submit(bulk.Spec{Target: &bulk.Target{Name: "billing", URL: "x"}}, 3)), bulk.Completed, 3, 0)
	}, engine.WithoutInlineTargets())
}

// Each attempt, replay and run of a schedule asks again whether its target may be called.
func TestTargetsThatChange(t *testing.T) {
	var r *rig
	var seen []*bulk.TargetLimits
	mux := webhooks(func(job *bulk.Job) error {
		if seen = append(seen, job.Target); len(seen) == 2 {
			r.setTarget("billing", bulk.TargetLimits{URLPrefix: "https://new.example.com"})
		}
		return nil
	})
	config := bulk.Config{Types: map[string]bulk.TypeConfig{bulk.WebhookType: {Workers: 1}}}
	inVirtualTime(t, config, mux, func(t *testing.T, started *rig) {
		r = started
		first := bulk.TargetLimits{URLPrefix: "https://old.example.com", Tenants: []string{"tenant"}}
		r.setTarget("billing", first)
		s := every("hourly", "@hourly")
		s.Spec = bulk.Spec{Tenant: "tenant", Target: &bulk.Target{Name: "billing", URL: "/charge"}}
		r.putSchedule(s)
		id := r.submit(bulk.Spec{Tenant: "tenant", Target: &bulk.Target{Name: "billing", URL: "/charge"}}, 5)
		bulktest.RequireCounts(t, r.finish(id), bulk.Completed, 2, 3)
		if len(seen) != 2 || seen[0] == nil || seen[0].URLPrefix != first.URLPrefix {
			t.Errorf("the handler saw %v", seen)
		}
		letters, err := r.DeadLetters(t.Context(), id, 0, 10)
		if err != nil || len(letters) != 3 || letters[0].Attempts != 1 || !strings.Contains(letters[0].Error, "below https://new.example.com") {
			t.Errorf("dead letters %+v, %v", letters, err)
		}
		if _, err := r.Replay(t.Context(), id, bulk.FailureFilter{}); refusal(err) != "target.url" {
			t.Errorf("a replay to where the target was: %v", err)
		}
		if _, err := r.RunNow(t.Context(), "hourly"); !errors.As(err, new(*bulk.RunError)) {
			t.Errorf("a run to where the target was: %v", err)
		}
		r.setTarget("billing", first)
		again, err := r.Replay(t.Context(), id, bulk.FailureFilter{})
		if err != nil {
			t.Fatal(err)
		}
		bulktest.RequireCounts(t, r.finish(again.ID), bulk.Completed, 3, 0)
		if a, err := r.RunNow(t.Context(), "hourly"); err != nil || a.Target.URL != "https://old.example.com/charge" {
			t.Errorf("a run to where the target is again: %v, %v", a.Target, err)
		}
		r.setTarget("billing", bulk.TargetLimits{URLPrefix: first.URLPrefix, Tenants: []string{"another"}})
		pass(time.Hour)
		if got := r.scheduled("hourly").LastError; !strings.Contains(got, `is not for tenant "tenant"`) {
			t.Errorf("the run of a tenant that may not: %q", got)
		}
	})
}
