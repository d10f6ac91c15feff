package api_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/bulk/client"
	"github.com/sluice-project/sluice/bulk/engine"
	"github.com/sluice-project/sluice/bulk/upload"
)

// connect starts a server for the fixture and a client of it.
func (f *fixture) connect() *client.Client {
	server := httptest.NewServer(f.handler)
	f.Cleanup(server.Close)
	c, err := client.New(server.URL, client.WithHTTPClient(server.Client()))
	if err != nil {
		f.Fatal(err)
	}
	return c
}

// must fails if a call of the client did.
func must[T any](t *testing.T) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// TestClientAction follows an action through the client and a real connection.
func TestClientAction(t *testing.T) {
	f := newFixture(t)
	c := f.connect()
	ctx := t.Context()
	created := must[wire.Created](t)(c.Create(ctx, wire.NewAction{Tenant: "acme", Type: "echo", Class: "low"}))
	file, err := os.Open("../../examples/zipcodes.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	total := must[int64](t)(c.Upload(ctx, created.ID, upload.NewCSV(file)))
	if total != 42_049 || !strings.HasPrefix(f.engine.actions[0].payloads[0], `{"zip_code":"00501"`) {
		t.Fatal(total)
	}
	if _, err := c.Seal(ctx, created.ID, total+1); !client.IsCode(err, wire.CodeTotal) {
		t.Fatal(err)
	}
	if a := must[wire.Action](t)(c.Seal(ctx, created.ID, total)); *a.Total != total {
		t.Fatalf("%+v", a)
	}
	if a := must[wire.Action](t)(c.Pause(ctx, created.ID)); !a.Paused {
		t.Fatalf("%+v", a)
	}
	must[wire.Action](t)(c.Resume(ctx, created.ID))
	f.engine.explanation = engine.Explanation{Job: bulk.JobState{State: bulk.StatePending}, Reason: engine.WhyRunAt}
	if job := must[wire.JobState](t)(c.Job(ctx, created.ID, 41)); job.Index != 41 || *job.Reason != engine.WhyRunAt {
		t.Fatalf("%+v", job)
	}
	if _, err := c.FirstJob(ctx, created.ID); !client.IsCode(err, wire.CodeNotFound) {
		t.Fatal(err)
	}
	var seen []string
	err = c.Watch(ctx, created.ID, func(a wire.Action) error {
		seen = append(seen, a.Status)
		if len(seen) == 1 {
			_, err := c.Cancel(ctx, created.ID)
			return err
		}
		return nil
	})
	if want := []string{"DISPATCHED", "CANCELED"}; err != nil || !slices.Equal(seen, want) {
		t.Fatal(seen, err)
	}
	page := must[wire.Actions](t)(c.Actions(ctx, client.ActionFilter{Tenant: "acme", Status: wire.StatusCanceled, Limit: 1}))
	if a := must[wire.Action](t)(c.Action(ctx, created.ID)); !reflect.DeepEqual(page.Actions, []wire.Action{a}) {
		t.Fatalf("%+v\n%+v", page.Actions, a)
	}
	if _, err := c.Action(ctx, "no such/../action?"); !client.IsCode(err, wire.CodeNotFound) {
		t.Fatal(err)
	}
}

func TestClientDeadLettersAndLeases(t *testing.T) {
	f := newFixture(t)
	c := f.connect()
	ctx := t.Context()
	f.failed("a", 0, 1, 2)
	page := must[wire.Failures](t)(c.Failures(ctx, "a", 1, 1))
	if len(page.Failures) != 1 || page.Failures[0].Index != 1 || *page.Next != 2 {
		t.Fatalf("%+v", page)
	}
	var text bytes.Buffer
	if err := c.FailuresCSV(ctx, "a", &text); err != nil || !strings.HasPrefix(text.String(), "index,id,") || !strings.Contains(text.String(), "\n2,a-2,") {
		t.Fatal(text.String(), err)
	}
	if err := c.FailuresCSV(ctx, "none", &text); !client.IsCode(err, wire.CodeNotFound) {
		t.Fatal(err)
	}
	letters := must[wire.DeadLetters](t)(c.DeadLetters(ctx, client.DeadLetterFilter{Action: "a", Limit: 2}))
	if len(letters.DeadLetters) != 2 || *letters.Next != "a-1" {
		t.Fatalf("%+v", letters)
	}
	if created := must[wire.Created](t)(c.Replay(ctx, wire.Replay{Action: "a"})); created.Status != wire.StatusCreated {
		t.Fatalf("%+v", created)
	}

	f.dispatched("b", "1", "2")
	jobs := must[[]wire.Job](t)(c.Lease(ctx, wire.LeaseRequest{Types: []string{"echo"}, Max: 2, WaitMS: 1000}))
	if len(jobs) != 2 || string(jobs[1].Payload) != "2" {
		t.Fatalf("%+v", jobs)
	}
	verdicts := must[[]wire.Verdict](t)(c.Extend(ctx, []string{jobs[0].Lease, jobs[1].Lease}, time.Minute))
	if len(verdicts) != 2 || verdicts[1] != (wire.Verdict{Lease: jobs[1].Lease, Verdict: "accepted"}) {
		t.Fatalf("%+v", verdicts)
	}
	outcomes := []wire.Outcome{{Lease: jobs[0].Lease, Status: wire.OutcomeSucceeded, Result: json.RawMessage(`{"n":1}`)}}
	verdicts = must[[]wire.Verdict](t)(c.Acknowledge(ctx, append(outcomes, outcomes...)))
	if verdicts[0].Verdict != "accepted" || verdicts[1].Verdict != "duplicate" {
		t.Fatalf("%+v", verdicts)
	}
	if r := f.engine.reports[2]; r.Kind != bulk.Succeeded || string(r.Result) != `{"n":1}` {
		t.Fatalf("%+v", r)
	}
}

func TestClientSettings(t *testing.T) {
	f := newFixture(t)
	c := f.connect()
	ctx := t.Context()
	tenant := wire.Tenant{BasePriority: 5, Weight: 2, RequestsPerSecond: 10, MaxActions: 3, MaxJobs: 1e6, MaxBytes: 1 << 30}
	must[wire.Tenant](t)(c.SetTenant(ctx, counted, tenant))
	tenant.Stored = &wire.Stored{Actions: 1, Jobs: 20, Bytes: 300}
	if got := must[wire.Tenant](t)(c.Tenant(ctx, counted)); !reflect.DeepEqual(got, tenant) {
		t.Fatalf("%+v", got)
	}
	if got := must[wire.Tenant](t)(c.SetTenant(ctx, counted, tenant)); !reflect.DeepEqual(got, tenant) { // with what it cannot set
		t.Fatalf("%+v", got)
	}
	if got := must[wire.Tenant](t)(c.SetTenant(ctx, "t", wire.Tenant{})); !reflect.DeepEqual(got, wire.Tenant{Weight: 1}) {
		t.Fatalf("%+v", got)
	}
	target := wire.TargetLimits{RequestsPerSecond: 0.5, Concurrency: 3}
	must[wire.TargetLimits](t)(c.SetTarget(ctx, "api.example.com:443", target))
	if got := must[wire.TargetLimits](t)(c.Target(ctx, "api.example.com:443")); !reflect.DeepEqual(got, target) {
		t.Fatalf("%+v", got)
	}
	auto := wire.TargetLimits{RequestsPerSecond: wire.Auto, Concurrency: 3}
	must[wire.TargetLimits](t)(c.SetTarget(ctx, "auto", auto))
	auto.FoundRequestsPerSecond = 41.5
	if got := must[wire.TargetLimits](t)(c.Target(ctx, "auto")); !reflect.DeepEqual(got, auto) {
		t.Fatalf("%+v", got)
	}
	must[wire.TypeLimits](t)(c.SetType(ctx, "echo", wire.TypeLimits{Concurrency: 3}))
	if got := must[wire.TypeLimits](t)(c.Type(ctx, "echo")); got.Concurrency != 3 {
		t.Fatalf("%+v", got)
	}
	must[wire.Limits](t)(c.SetLimits(ctx, wire.Limits{RequestsPerSecond: 9}))
	if got := must[wire.Limits](t)(c.Limits(ctx)); got.RequestsPerSecond != 9 {
		t.Fatalf("%+v", got)
	}
	var refused *client.Error
	if _, err := c.SetLimits(ctx, wire.Limits{RequestsPerSecond: -1}); !errors.As(err, &refused) || refused.Errors[0].Field != "requests_per_second" {
		t.Fatal(err)
	}
}
