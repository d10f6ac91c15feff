package api_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api"
	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/bulk/bulktest"
	"github.com/sluice-project/sluice/bulk/engine"
)

// Why returns the explanation that a test has set.
func (e *fakeEngine) Why(_ context.Context, id string, index int64) (engine.Explanation, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	a, err := e.find(id)
	if err = cmp.Or(err, e.fail["Why"]); err != nil {
		return engine.Explanation{}, err
	}
	if index == bulk.FirstJob && a.Ready > 0 {
		index = 0
	}
	if index >= a.Received || index < 0 {
		return engine.Explanation{}, &bulk.NoJobError{ID: id, Index: index, Received: a.Received}
	}
	x := e.explanation
	x.Action, x.Job.Index = a.Action, index
	return x, nil
}

func TestWhy(t *testing.T) {
	f := newFixture(t)
	f.create("a")
	f.upload("a", "1", "2")
	f.do(201, "POST", "/v1/actions", `{"id":"held","tenant":"acme","target":{"name":"dead","url":"http://dead/"}}`)
	f.upload("held", "1", "2")
	at := start.Add(time.Minute)
	const utc = `"2026-01-02T02:05:05Z"`
	for name, test := range map[string]struct {
		x    engine.Explanation
		id   string
		want string
	}{
		"pending": {
			engine.Explanation{
				Job: bulk.JobState{State: bulk.StatePending}, Reason: engine.WhyTenantLimit, Text: "it waits",
				HeldBy: []engine.TenantJobs{{Tenant: "acme", Jobs: 3}}, EarliestStart: at,
			}, "a",
			`"state":"pending","attempts":0,"error":"","reason":"tenant_limit","explanation":"it waits","held_by":[{"tenant":"acme","jobs":3}],"place":0,"earliest_start":` + utc + `,"deadline":null,"failed_at":null`,
		},
		"held back": {
			engine.Explanation{Job: bulk.JobState{State: bulk.StatePending}, Reason: engine.WhyTargetDown, Text: "it waits", Place: 4}, "held",
			`"state":"non_ready","attempts":0,"error":"","reason":"target_down","explanation":"it waits","held_by":[],"place":4,"earliest_start":null,"deadline":null,"failed_at":null`,
		},
		"in flight": {
			engine.Explanation{Job: bulk.JobState{State: bulk.StateInFlight, Attempts: 2, At: at}, Reason: engine.WhyInFlight, Text: "it runs", Place: bulk.NotKnown}, "a",
			`"state":"in_flight","attempts":2,"error":"","reason":"in_flight","explanation":"it runs","held_by":[],"place":null,"earliest_start":null,"deadline":` + utc + `,"failed_at":null`,
		},
		"failed": {
			engine.Explanation{Job: bulk.JobState{State: bulk.StateFailed, Attempts: 4, At: at, Error: "no"}, Place: bulk.NotKnown}, "a",
			`"state":"failed","attempts":4,"error":"no","reason":null,"explanation":null,"held_by":[],"place":null,"earliest_start":null,"deadline":null,"failed_at":` + utc,
		},
		"succeeded": {
			engine.Explanation{Job: bulk.JobState{State: bulk.StateSucceeded, Attempts: bulk.NotKnown}, Place: bulk.NotKnown}, "a",
			`"state":"succeeded","attempts":null,"error":"","reason":null,"explanation":null,"held_by":[],"place":null,"earliest_start":null,"deadline":null,"failed_at":null`,
		},
	} {
		f.engine.explanation = test.x
		got := strings.TrimSpace(f.do(200, "GET", "/v1/actions/"+test.id+"/jobs/1", "").Body.String())
		if want := fmt.Sprintf(`{"id":"%[1]s-1","action":"%[1]s","index":1,%[2]s}`, test.id, test.want); got != want {
			t.Errorf("%s: got %s\nwant %s", name, got, want)
		}
	}
	for target, want := range map[string]string{
		"/v1/actions/b/jobs/1":     `there is no action "b"`,
		"/v1/actions/a/jobs/2":     `action "a" has no job 2: its jobs have the indexes from 0 to 1`,
		"/v1/actions/a/jobs/first": `every job of action "a" has ended, or was canceled: give the index of one, from 0 to 1`,
	} {
		if a := f.do(404, "GET", target, ""); a.problem.Code != wire.CodeNotFound || a.problem.Detail != want {
			t.Errorf("%s: %+v", target, a.problem)
		}
	}
	for _, index := range []string{"last", "-1", "1.0", "9999999999999999999"} {
		if a := f.do(422, "GET", "/v1/actions/a/jobs/"+index, ""); a.problem.Code != wire.CodeInvalid {
			t.Errorf("%s: %+v", index, a.problem)
		}
	}
}

// live is the API before a real engine on an embedded store, in virtual time.
func live(t *testing.T, config bulk.Config, mux *bulk.Mux) (*fixture, *bulktest.Engine) {
	engine := bulktest.New(t, mux, config)
	return &fixture{T: t, handler: api.New(engine)}, engine
}

// wantWhy asks why a job does not run.
func (f *fixture) wantWhy(id string, index any, state bulk.State, reason string) (got wire.JobState) {
	f.Helper()
	f.read(f.do(200, "GET", fmt.Sprintf("/v1/actions/%s/jobs/%v", id, index), ""), &got)
	shown := ""
	if got.Reason != nil {
		shown = *got.Reason
	}
	if got.State != string(state) || shown != reason {
		f.Errorf("job %v of %s is %s, for %q (%v); want %s, for %q", index, id, got.State, shown, got, state, reason)
	}
	return got
}

// whyRig is a real engine with its API.
type whyRig struct {
	*fixture
	engine *bulktest.Engine
	// gate ends the handlers that wait.
	gate chan struct{}
}

// settle lets the engine do what it can.
func (r *whyRig) settle() { <-time.After(10 * time.Millisecond); synctest.Wait() }

// handle fails, waits or is throttled, as the payload says.
func (r *whyRig) handle(_ context.Context, j *bulk.Job) ([]byte, error) {
	switch string(j.Payload) {
	case `"wait"`:
		<-r.gate
	case `"fail"`:
		return nil, errors.New("not yet")
	case `"throttle"`:
		return nil, &bulk.ThrottledError{RetryAfter: time.Hour}
	}
	return nil, nil
}

// TestWhyFromEndToEnd follows jobs through an engine that limits them in each way, over HTTP.
func TestWhyFromEndToEnd(t *testing.T) {
	for name, test := range map[string]func(t *testing.T, r *whyRig){
		"not started": whyNotStarted, "busy": whyBusy, "limits": whyLimits, "targets": whyTargets,
		"no worker": func(t *testing.T, r *whyRig) {
			r.engine.Submit(t, bulk.Spec{ID: "nobody", Tenant: "acme", Type: "remote"}, 1)
			<-time.After(3 * time.Second)
			r.wantWhy("nobody", 0, bulk.StateReady, engine.WhyNoWorker)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &whyRig{gate: make(chan struct{})}
				mux := bulk.NewMux()
				mux.HandleFunc("send", r.handle)
				mux.HandleFunc(bulk.WebhookType, r.handle)
				config := bulk.Config{RequestsPerSecond: -1, Workers: 2, BackoffBase: time.Minute, BackoffCap: time.Hour}
				r.fixture, r.engine = live(t, config, mux)
				test(t, r)
				close(r.gate)
			})
		})
	}
}

func whyNotStarted(t *testing.T, r *whyRig) {
	r.create("open")
	r.upload("open", "1")
	r.wantWhy("open", 0, bulk.StatePending, engine.WhyNotSealed)
	r.do(201, "POST", "/v1/actions", `{"id":"later","tenant":"acme","type":"echo","run_at":"2999-01-01T00:00:00Z"}`)
	r.upload("later", "1")
	r.do(200, "POST", "/v1/actions/later/seal", `{"total":1}`)
	if got := r.wantWhy("later", "first", bulk.StatePending, engine.WhyRunAt); got.EarliestStart == nil || got.EarliestStart.Year() != 2999 {
		t.Errorf("the earliest start is %v", got.EarliestStart)
	}
}

func whyBusy(t *testing.T, r *whyRig) {
	r.engine.Submit(t, bulk.Spec{ID: "busy", Tenant: "acme", Type: "send"}, "fail", "wait", "wait", "wait", "wait")
	r.settle()
	if got := r.wantWhy("busy", 0, bulk.StateNonReady, "transient_error"); got.EarliestStart == nil || *got.Attempts != 1 {
		t.Errorf("%+v", got)
	}
	if got := r.wantWhy("busy", 1, bulk.StateInFlight, engine.WhyInFlight); got.Deadline == nil {
		t.Errorf("%+v", got)
	}
	got := r.wantWhy("busy", 4, bulk.StateReady, engine.WhyWorkersBusy)
	if len(got.HeldBy) != 1 || got.HeldBy[0] != (wire.TenantJobs{Tenant: "acme", Jobs: 4}) {
		t.Errorf("held by %v, want acme with the 4 jobs that are ready or in flight", got.HeldBy)
	}
	r.do(200, "POST", "/v1/actions/busy/pause", "")
	if got := r.wantWhy("busy", 4, bulk.StatePending, engine.WhyPaused); got.Place != nil {
		t.Errorf("a paused job has the place %d", *got.Place)
	}
	r.do(200, "POST", "/v1/actions/busy/cancel", "")
	r.wantWhy("busy", 4, bulk.StateCanceled, "")
}

func whyLimits(t *testing.T, r *whyRig) {
	r.do(200, "PUT", "/v1/tenants/slow", `{"requests_per_second":1}`)
	r.engine.Submit(t, bulk.Spec{ID: "slow", Tenant: "slow", Type: "send"}, 1, 2, 3, 4)
	r.settle()
	r.wantWhy("slow", 0, bulk.StateSucceeded, "")
	if got := r.wantWhy("slow", 3, bulk.StatePending, engine.WhyTenantLimit); got.EarliestStart == nil || *got.Place != 2 {
		t.Errorf("%+v, want the third place", got)
	}
	r.do(200, "PUT", "/v1/limits", `{"requests_per_second":0.001}`)
	r.settle()
	r.wantWhy("slow", "first", bulk.StatePending, engine.WhyGlobalLimit)
	r.do(200, "PUT", "/v1/limits", `{"requests_per_second":0}`)
}

func whyTargets(t *testing.T, r *whyRig) {
	targeted := func(name, settings string, payloads ...any) {
		r.do(200, "PUT", "/v1/targets/"+name, settings)
		r.engine.Submit(t, bulk.Spec{ID: name, Tenant: "acme", Target: &bulk.Target{Name: name, URL: "http://" + name}}, payloads...)
		r.settle()
	}
	targeted("narrow", `{"concurrency":1}`, "wait", "wait")
	r.wantWhy("narrow", 0, bulk.StateInFlight, engine.WhyInFlight)
	r.wantWhy("narrow", 1, bulk.StatePending, engine.WhyTargetConcurrency)
	targeted("rare", `{"requests_per_second":1}`, 3, 3)
	r.wantWhy("rare", 0, bulk.StateSucceeded, "")
	if got := r.wantWhy("rare", 1, bulk.StatePending, engine.WhyTargetLimit); len(got.HeldBy) != 0 {
		t.Errorf("held by %v, and nothing is ready or in flight", got.HeldBy)
	}
	targeted("full", `{}`, "throttle")
	r.wantWhy("full", 0, bulk.StateNonReady, "api_throttled")
}

// TestFewAreExplainedAtATime: requests beyond a few wait, and are refused when that takes long.
func TestFewAreExplainedAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := &stuckEngine{newFakeEngine(), make(chan struct{})}
		handler := api.New(stuck)
		codes := make(chan int, 3)
		for range 3 {
			go func() {
				recorder := httptest.NewRecorder()
				handler.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/v1/actions/a/jobs/0", http.NoBody))
				codes <- recorder.Code
			}()
		}
		if code := <-codes; code != http.StatusServiceUnavailable {
			t.Errorf("the third request: %d, want 503", code)
		}
		close(stuck.answers)
		for range 2 {
			if code := <-codes; code != http.StatusNotFound {
				t.Errorf("a request that had a place: %d, want 404", code)
			}
		}
	})
}

// stuckEngine explains nothing before answers.
type stuckEngine struct {
	*fakeEngine
	answers chan struct{}
}

func (e *stuckEngine) Why(ctx context.Context, id string, index int64) (engine.Explanation, error) {
	<-e.answers
	return e.fakeEngine.Why(ctx, id, index)
}

// TestKeptResults checks how the result of a job is shown.
func TestKeptResults(t *testing.T) {
	f := newFixture(t)
	f.create("a")
	f.upload("a", "1")
	for want, job := range map[string]bulk.JobState{
		`"error":"","result":{"n":1},"reason"`:           {Result: []byte(`{"n": 1}`)},
		`"error":"","result":"done","reason"`:            {Result: []byte("done")}, // a handler in Go
		`"error":"","result_truncated":true,"reason"`:    {ResultTruncated: true},
		`"error":"","reason":null,"explanation":null,"h`: {},
	} {
		job.State = bulk.StateSucceeded
		f.engine.explanation = engine.Explanation{Job: job}
		if got := f.do(200, "GET", "/v1/actions/a/jobs/0", "").Body.String(); !strings.Contains(got, want) {
			t.Errorf("got %s\nwant %s", got, want)
		}
	}
}
