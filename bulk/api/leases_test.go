package api_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api"
	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/bulk/engine"
)

// dispatched makes a sealed action with these jobs.
func (f *fixture) dispatched(id string, lines ...string) {
	f.Helper()
	f.create(id)
	f.upload(id, lines...)
	f.do(200, "POST", "/v1/actions/"+id+"/seal", fmt.Sprintf(`{"total":%d}`, len(lines)))
}

func TestLeases(t *testing.T) {
	f := newFixture(t)
	f.dispatched("a", `{"n":1}`, "2", "3")
	f.engine.actions[0].payloads[1] = "no JSON \xff" // As a Go program could append it.
	got := f.do(200, "POST", "/v1/leases", `{"types":["echo","other"],"max":2,"lease_ms":1000}`)
	first, second := bulk.LeaseID{Fence: 1}, bulk.LeaseID{Index: 1, Fence: 1}
	want := `{"jobs":[` +
		`{"id":"a-0","action":"a","type":"echo","payload":{"n":1},"attempt":1,"lease":"` + token(first) + `","deadline":"2026-01-02T02:04:06Z"},` +
		`{"id":"a-1","action":"a","type":"echo","payload":"no JSON \ufffd","attempt":1,"lease":"` + token(second) + `","deadline":"2026-01-02T02:04:06Z"}]}`
	if strings.TrimSpace(got.Body.String()) != want {
		t.Fatalf("got  %s\nwant %s", got.Body, want)
	}
	if none := f.do(200, "POST", "/v1/leases", `{"types":["other"]}`); strings.TrimSpace(none.Body.String()) != `{"jobs":[]}` {
		t.Fatal(none.Body)
	}
	if request := f.engine.leases[1]; request.Max != 1 || request.LeaseFor != 30*time.Second || request.Local {
		t.Fatalf("%+v", request)
	}
}

func TestLeasesRefused(t *testing.T) {
	tests := map[string]string{
		`{}`:                                     "types",
		`{"types":[]}`:                           "types",
		`{"types":null}`:                         "types",
		`{"types":["echo"],"max":0}`:             "max",
		`{"types":["echo"],"max":1001}`:          "max",
		`{"types":["echo"],"wait_ms":-1}`:        "wait_ms",
		`{"types":["echo"],"wait_ms":60001}`:     "wait_ms",
		`{"types":["echo"],"lease_ms":999}`:      "lease_ms",
		`{"types":["echo"],"lease_ms":43200001}`: "lease_ms",
		`{"types":["echo"],"worker":"w"}`:        "worker",
	}
	f := newFixture(t)
	for body, field := range tests {
		if a := f.do(422, "POST", "/v1/leases", body); a.problem.Errors[0].Field != field {
			t.Errorf("%s: %+v", body, a.problem)
		}
	}
	if len(f.engine.leases) > 0 {
		t.Fatal("a refused request reached the engine")
	}
}

func TestLongPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.create("a")
		f.upload("a", "1")
		began := time.Now()
		f.do(200, "POST", "/v1/leases", `{"types":["echo"],"wait_ms":60000}`)
		if waited := time.Since(began); waited != time.Minute {
			t.Fatal(waited)
		}
		time.AfterFunc(7*time.Second, func() { _, _ = f.engine.Seal(t.Context(), "a", 1) })
		a := f.do(200, "POST", "/v1/leases", `{"types":["echo"],"wait_ms":60000}`)
		if waited := time.Since(began); waited != 67*time.Second || !strings.Contains(a.Body.String(), `"id":"a-0"`) {
			t.Fatal(waited, a.Body)
		}
	})
}

// TestLeasesOfAClientThatHasGone: its jobs are handed back at once.
func TestLeasesOfAClientThatHasGone(t *testing.T) {
	f := newFixture(t)
	f.dispatched("a", "1", "2")
	ctx, cancel := context.WithCancel(t.Context())
	r := f.request("POST", "/v1/leases", `{"types":["echo"],"max":2}`).WithContext(ctx)
	cancel()
	f.handler.ServeHTTP(httptest.NewRecorder(), r)
	if got := f.engine.reports; len(got) != 2 || got[0].Kind != bulk.Released || got[1].Kind != bulk.Released || got[1].Lease.Index != 1 {
		t.Fatalf("%+v", got)
	}
}

func TestAcknowledge(t *testing.T) {
	f := newFixture(t)
	held := make([]bulk.LeaseID, 6)
	states := []string{"held", "held", "held", "held", "expired", "settled"}
	for i := range held {
		held[i] = bulk.LeaseID{Action: 1, Index: uint32(i), Fence: 2}
		f.engine.leased[held[i]] = states[i]
	}
	gone := bulk.LeaseID{Action: 9}
	other, err := bulk.NewLeaseKey([]byte("another secret"))
	if err != nil {
		t.Fatal(err)
	}
	a := f.do(200, "POST", "/v1/leases/ack", `{"outcomes":[
		{"lease":"`+token(held[0])+`","status":"succeeded","result":{"n": 1.50},"took_ms":20,"cost":7},
		{"lease":"never one","status":"failed"},
		{"lease":"`+other.Token(held[1])+`","status":"failed"},
		{"lease":"`+token(held[1])+`","status":"failed","error":"no such user"},
		{"lease":"`+token(held[2])+`","status":"retry","error":"timeout","retry_after_ms":5000},
		{"lease":"`+token(held[3])+`","status":"throttled","retry_after_ms":1,"result":null},
		{"lease":"`+token(held[4])+`","status":"succeeded"},
		{"lease":"`+token(held[5])+`","status":"succeeded"},
		{"lease":"`+token(gone)+`","status":"succeeded"},
		{"lease":"`+token(held[0])+`","status":"succeeded"}]}`)
	var verdicts wire.Verdicts
	f.read(a, &verdicts)
	var got []string
	for _, v := range verdicts.Verdicts {
		got = append(got, v.Verdict)
	}
	want := []string{"accepted", "unknown", "unknown", "accepted", "accepted", "accepted", "expired", "duplicate", "unknown", "duplicate"}
	if !slices.Equal(got, want) || verdicts.Verdicts[1].Lease != "never one" {
		t.Fatalf("got %q; want %q", got, want)
	}
	reports := []engine.Report{
		{Lease: held[0], Kind: bulk.Succeeded, Result: []byte(`{"n": 1.50}`), Took: 20 * time.Millisecond, Cost: 7},
		{Lease: held[1], Kind: bulk.FailedForGood, Error: "no such user"},
		{Lease: held[2], Kind: bulk.FailedForNow, Error: "timeout", RetryAfter: 5 * time.Second},
		{Lease: held[3], Kind: bulk.Throttled, RetryAfter: time.Millisecond},
	}
	for i, want := range reports {
		if got := fmt.Sprintf("%+v", f.engine.reports[i]); got != fmt.Sprintf("%+v", want) {
			t.Errorf("got %s; want %+v", got, want)
		}
	}
}

func TestAcknowledgeRefused(t *testing.T) {
	many := `{"outcomes":[` + strings.TrimSuffix(strings.Repeat(`{"lease":"x","status":"failed"},`, 1001), ",") + `]}`
	tests := map[string]string{
		`{}`:              "outcomes",
		`{"outcomes":[]}`: "outcomes",
		many:              "outcomes",
		`{"outcomes":[{"lease":"x","status":"lost"}]}`:                                "outcomes[0].status",
		`{"outcomes":[{"status":"failed"}]}`:                                          "outcomes[0].lease",
		`{"outcomes":[{"lease":"x","status":"retry","retry_after_ms":-1}]}`:           "outcomes[0].retry_after_ms",
		`{"outcomes":[{"lease":"x","status":"throttled","retry_after_ms":86400001}]}`: "outcomes[0].retry_after_ms",
		`{"outcomes":[{"lease":"x","status":"failed","reason":"why"}]}`:               "outcomes[0].reason",
	}
	f := newFixture(t)
	for body, field := range tests {
		if a := f.do(422, "POST", "/v1/leases/ack", body); a.problem.Errors[0].Field != field {
			t.Errorf("%.80s: %+v", body, a.problem)
		}
	}
	large := `{"outcomes":[{"lease":"x","status":"succeeded","result":"` + strings.Repeat("x", 8<<20) + `"}]}`
	if a := f.do(413, "POST", "/v1/leases/ack", large); !strings.Contains(a.problem.Detail, "8388608") {
		t.Fatal(a.problem)
	}
	if len(f.engine.reports) > 0 {
		t.Fatal("a refused request reached the engine")
	}
}

func TestExtend(t *testing.T) {
	f := newFixture(t)
	held := bulk.LeaseID{Action: 1, Fence: 1}
	f.engine.leased[held] = "held"
	a := f.do(200, "POST", "/v1/leases/extend", `{"leases":["`+token(held)+`","?"],"lease_ms":60000}`)
	want := `{"verdicts":[{"lease":"` + token(held) + `","verdict":"accepted"},{"lease":"?","verdict":"unknown"}]}`
	if got := strings.TrimSpace(a.Body.String()); got != want {
		t.Fatalf("got %s; want %s", got, want)
	}
	if r := f.engine.reports[0]; r.Kind != bulk.Extended || r.LeaseFor != time.Minute || r.Lease != held {
		t.Fatalf("%+v", r)
	}
	f.do(200, "POST", "/v1/leases/extend", `{"leases":["`+token(held)+`"]}`)
	if r := f.engine.reports[1]; r.LeaseFor != 30*time.Second {
		t.Fatalf("%+v", r)
	}
	f.do(422, "POST", "/v1/leases/extend", `{"leases":[]}`)
	f.do(422, "POST", "/v1/leases/extend", `{"leases":["x"],"lease_ms":1}`)
}

// TestLeaseOfTheConfig: without lease_ms the lease is that of the config.
func TestLeaseOfTheConfig(t *testing.T) {
	f := newFixture(t, api.WithConfig(bulk.Config{Lease: 5 * time.Minute}))
	f.dispatched("a", "1")
	f.do(200, "POST", "/v1/leases", `{"types":["echo"]}`)
	f.do(200, "POST", "/v1/leases/extend", `{"leases":["`+token(bulk.LeaseID{Fence: 1})+`"]}`)
	if got := f.engine.leases[0].LeaseFor; got != 5*time.Minute {
		t.Errorf("leased for %v, want 5m", got)
	}
	if got := f.engine.reports[0].LeaseFor; got != 5*time.Minute {
		t.Errorf("extended by %v, want 5m", got)
	}
	f.do(422, "POST", "/v1/leases", `{"types":["echo"],"lease_ms":0}`)
}
