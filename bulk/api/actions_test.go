package api_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api/wire"
)

// TestListOfManyActions: one page looks at a bounded number of actions, and the pages together
// have all that match.
func TestListOfManyActions(t *testing.T) {
	f := newFixture(t)
	for i := range 25_000 {
		a := &fakeAction{Action: bulk.Action{Spec: bulk.Spec{ID: fmt.Sprint("a", i), Tenant: "whale"}, Status: bulk.Completed}}
		if i == 20_500 || i == 24_000 {
			a.Tenant = "small"
		}
		f.engine.actions = append(f.engine.actions, a)
	}
	for query, want := range map[string]string{
		"tenant=small":                          "[0 0 2]",
		"tenant=small&limit=1":                  "[0 0 1 1]",
		"tenant=nobody":                         "[0 0 0]",
		"status=CANCELED":                       "[0 0 0]",
		"tenant=small&status=COMPLETED":         "[0 0 2]",
		"tenant=whale&limit=1000&after=a23998":  "[1000]",
		"limit=1000&after=a23998":               "[1000 1]",
		"tenant=small&limit=1000&after=a20500":  "[1]",
		"tenant=nobody&limit=1000&after=a24999": "[0]",
		"status=RUNNING":                        "[0]",
	} {
		var sizes []int
		for after := ""; ; {
			var page wire.Actions
			ask := "/v1/actions?" + query
			if after != "" {
				ask = "/v1/actions?after=" + after + "&" + strings.Split(query, "&after=")[0]
			}
			f.read(f.do(200, "GET", ask, ""), &page)
			sizes = append(sizes, len(page.Actions))
			if page.Next == nil {
				break
			}
			after = *page.Next
		}
		if got := fmt.Sprint(sizes); got != want {
			t.Errorf("%s: pages of %s actions, want %s", query, got, want)
		}
	}
}

func TestCreate(t *testing.T) {
	f := newFixture(t)
	body := `{"tenant":"acme","target":{"url":"https://api.example.com/x"},"class":"high","key":"customer 7","cost":5,"id":"a-1",
		"aggregate":["count","sum:amount"],"run_at":"2026-05-01T12:00:00+02:00","max_attempts":3,"timeout_ms":1500,"fail_above":0.5}`
	a := f.do(201, "POST", "/v1/actions", body)
	if got := strings.TrimSpace(a.Body.String()); got != `{"id":"a-1","status":"CREATED"}` || a.Header().Get("Location") != "/v1/actions/a-1" {
		t.Fatal(got, a.Header())
	}
	share := 0.5
	want := bulk.Spec{
		ID: "a-1", Tenant: "acme", Type: "webhook", Class: bulk.High, Key: "customer 7", Cost: 5,
		Target:    &bulk.Target{Name: "api.example.com:443", URL: "https://api.example.com/x"},
		Aggregate: []string{"count", "sum:amount"}, RunAt: time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC),
		MaxAttempts: 3, Timeout: 1500 * time.Millisecond, FailAbove: &share,
	}
	if got := f.engine.actions[0].Spec; !got.Equal(want) {
		t.Fatalf("got %+v; want %+v", got, want)
	}
	f.do(200, "POST", "/v1/actions", body)
	other := f.do(409, "POST", "/v1/actions", `{"tenant":"other","type":"echo","id":"a-1"}`)
	if other.problem.Code != wire.CodeExists || len(f.engine.actions) != 1 {
		t.Fatal(other.problem)
	}
	made := f.do(201, "POST", "/v1/actions", `{"tenant":"acme","type":"echo"}`)
	if !strings.Contains(made.Body.String(), `"id":"made-1"`) {
		t.Fatal(made.Body)
	}
}

func TestCreateRefused(t *testing.T) {
	tests := []struct {
		name, body    string
		status        int
		field, detail string
	}{
		{"no body", "", 400, "", "request body is required"},
		{"no JSON", `{"tenant":`, 400, "", "unexpected end"},
		{"not an object", `[]`, 422, "", "expected object"},
		{"no tenant", `{"type":"echo"}`, 422, "tenant", "is required"},
		{"an empty tenant", `{"tenant":"","type":"echo"}`, 422, "tenant", "expected length >= 1"},
		{"a tenant with a line break", `{"tenant":"a\nb","type":"echo"}`, 422, "tenant", "printable"},
		{"a key with a line break", `{"tenant":"t","type":"echo","key":"a\nb"}`, 422, "key", "want at most 256 printable characters"},
		{"a long key", `{"tenant":"t","type":"echo","key":"` + strings.Repeat("k", 257) + `"}`, 422, "key", "expected length <= 256"},
		{"an unknown field", `{"tenant":"t","type":"echo","retries":1}`, 422, "retries", "unknown field"},
		{"events of what there is not", `{"tenant":"t","type":"echo","events":["jobs","leases"]}`, 400, "events", `a list of "jobs" and "actions"`},
		{"events that are no list", `{"tenant":"t","type":"echo","events":{}}`, 422, "events", "expected array"},
		{"an unknown field within", `{"tenant":"t","target":{"url":"http://x","retries":1}}`, 422, "target.retries", "unknown field"},
		{"a target without url", `{"tenant":"t","target":{"name":"x"}}`, 422, "target.url", "want an http or https URL"},
		{"a target that is no URL", `{"tenant":"t","target":{"url":"ftp://x"}}`, 422, "target.url", "want an http or https URL"},
		{"neither type nor target", `{"tenant":"t"}`, 422, "type", "give a type"},
		{"type and target", `{"tenant":"t","type":"echo","target":{"url":"http://x"}}`, 422, "type", "not both"},
		{"a class", `{"tenant":"t","type":"echo","class":"urgent"}`, 422, "class", `expected value to be one of "high, normal, low"`},
		{"an id", `{"tenant":"t","type":"echo","id":"a/b"}`, 422, "id", "letters, digits"},
		{"a time", `{"tenant":"t","type":"echo","run_at":"tomorrow"}`, 422, "run_at", "date-time"},
		{"attempts", `{"tenant":"t","type":"echo","max_attempts":-1}`, 422, "max_attempts", ">= 0"},
		{"a timeout", `{"tenant":"t","type":"echo","timeout_ms":86400001}`, 422, "timeout_ms", "<= "},
		{"a share", `{"tenant":"t","type":"echo","fail_above":1.5}`, 422, "fail_above", "<= 1"},
		{"a whole number with a point", `{"tenant":"t","type":"echo","max_attempts":3.0}`, 422, "max_attempts", "without a point or an exponent"},
		{"a whole number with an exponent", `{"tenant":"t","type":"echo","timeout_ms":1e3}`, 422, "timeout_ms", "without a point or an exponent"},
		{"a number as text", `{"tenant":"t","type":"echo","timeout_ms":"5"}`, 422, "timeout_ms", "expected integer"},
	}
	shared := newFixture(t)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := shared.in(t)
			a := f.do(test.status, "POST", "/v1/actions", test.body)
			if a.problem.Code != wire.CodeInvalid || !strings.Contains(a.problem.Detail, test.detail) {
				t.Fatalf("%+v", a.problem)
			}
			if test.field != "" && (len(a.problem.Errors) != 1 || a.problem.Errors[0].Field != test.field || !strings.Contains(a.problem.Detail, test.field)) {
				t.Fatalf("%+v", a.problem)
			}
			if len(f.engine.actions) > 0 {
				t.Fatal("an action was created")
			}
		})
	}
	f := newFixture(t)
	f.do(415, "POST", "/v1/actions", `tenant=t`, "Content-Type", "application/x-www-form-urlencoded")
	f.do(422, "GET", "/v1/actions?color=red", "")
}

// The user, the password and the query of a target's URL are stored, compared and not shown.
func TestTargetsAreShownWithoutSecrets(t *testing.T) {
	f := newFixture(t)
	const (
		whole = `"target":{"url":"https://user:secret@api.example.com/x?token=secret"}`
		shown = `"target":{"name":"api.example.com:443","url":"https://xxxxx@api.example.com/x?token=xxxxx"}`
	)
	create := `{"id":"a","tenant":"acme",` + whole + `}`
	f.do(201, "POST", "/v1/actions", create)
	f.do(200, "POST", "/v1/actions", create)
	f.do(409, "POST", "/v1/actions", strings.Replace(create, "token=secret", "token=other", 1))
	schedule := `{"cron":"@daily","tenant":"acme",` + whole + `,"jobs":[1]}`
	for _, call := range []struct{ method, path, body string }{
		{"GET", "/v1/actions/a", ""}, {"GET", "/v1/actions", ""}, {"POST", "/v1/actions/a/pause", ""},
		{"POST", "/v1/actions/a/cancel", ""}, {"GET", "/v1/actions/a/watch", ""},
		{"PUT", "/v1/schedules/s", schedule}, {"GET", "/v1/schedules/s", ""}, {"GET", "/v1/schedules", ""},
	} {
		status := 200
		if call.method == "PUT" {
			status = 201
		}
		f.engine.edit("a", func(a *fakeAction) {
			if strings.HasSuffix(call.path, "watch") {
				a.FinishedAt = start
			}
		})
		if got := f.do(status, call.method, call.path, call.body).Body.String(); !strings.Contains(got, shown) || strings.Contains(got, "secret") {
			t.Errorf("%s %s: %s", call.method, call.path, got)
		}
	}
	if got := f.engine.schedules["s"].Spec.Target.URL; !strings.Contains(got, "user:secret@") {
		t.Errorf("the schedule has the URL %s", got)
	}
}

// TestActionObject is the contract, to the letter and in its order.
func TestActionObject(t *testing.T) {
	f := newFixture(t)
	f.create("a")
	object := func() string { return strings.TrimSpace(f.do(200, "GET", "/v1/actions/a", "").Body.String()) }
	want := `{"id":"a","tenant":"acme","type":"echo","class":"normal","status":"CREATED","paused":false,"total":null,"received":0,` +
		`"pending":0,"ready":0,"non_ready":0,"non_ready_reasons":{"rate_limited":0,"api_throttled":0,"transient_error":0},"in_flight":0,` +
		`"succeeded":0,"failed":0,"canceled":0,"throttled":0,"retried":0,"result":null,"error":"","run_at":null,` +
		`"created_at":"2026-01-02T02:04:05Z","finished_at":null,"estimated_finish_at":null}`
	if got := object(); got != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
	f.engine.finish = start.Add(time.Hour)
	f.engine.edit("a", func(a *fakeAction) {
		a.Spec.RunAt, a.Spec.Target, a.Spec.Type, a.Spec.Key = start, &bulk.Target{Name: "n", URL: "http://n"}, "webhook", "k"
		a.Status, a.Paused, a.Total, a.EnteredAt = bulk.Running, true, 28, start
		a.Counts = bulk.Counts{Received: 28, Pending: 1, Ready: 2, NonReady: [4]int64{1, 1, 1}, InFlight: 4, Succeeded: 5, Failed: 6, Canceled: 7, Throttled: 8, Retried: 9}
		a.Action.Result = map[string]json.RawMessage{"count": json.RawMessage("1")}
	})
	want = `{"id":"a","tenant":"acme","type":"webhook","target":{"name":"n","url":"http://n"},"class":"normal","key":"k","status":"RUNNING","paused":true,"total":28,"received":28,` +
		`"pending":1,"ready":2,"non_ready":3,"non_ready_reasons":{"rate_limited":1,"api_throttled":1,"transient_error":1},"in_flight":4,` +
		`"succeeded":5,"failed":6,"canceled":7,"throttled":8,"retried":9,"result":null,"error":"","run_at":"2026-01-02T02:04:05Z",` +
		`"created_at":"2026-01-02T02:04:05Z","finished_at":null,"estimated_finish_at":"2026-01-02T03:04:05Z"}`
	if got := object(); got != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
	f.engine.edit("a", func(a *fakeAction) {
		a.Status, a.FinishedAt, a.Error = bulk.Failed, start, "too many failed"
		a.Action.Result = map[string]json.RawMessage{"count": json.RawMessage("1"), "sum:x": json.RawMessage(`"1.50"`)}
	})
	got := object()
	for _, part := range []string{`"result":{"count":1,"sum:x":"1.50"}`, `"error":"too many failed"`, `"finished_at":"2026-01-02T02:04:05Z"`, `"estimated_finish_at":null`} {
		if !strings.Contains(got, part) {
			t.Fatalf("no %s in %s", part, got)
		}
	}
	f.engine.edit("a", func(a *fakeAction) { a.Status, a.Action.Result = bulk.Completed, nil })
	if got := object(); !strings.Contains(got, `"result":{}`) {
		t.Fatal(got)
	}
}

func TestList(t *testing.T) {
	f := newFixture(t)
	for i := range 5 {
		f.create(fmt.Sprint("a", i))
	}
	f.engine.edit("a3", func(a *fakeAction) { a.Tenant, a.Status = "other", bulk.Canceled })
	tests := []struct {
		query string
		want  []string
		next  string
	}{
		{"", []string{"a0", "a1", "a2", "a3", "a4"}, ""},
		{"?limit=5", []string{"a0", "a1", "a2", "a3", "a4"}, ""},
		{"?limit=2", []string{"a0", "a1"}, "a1"},
		{"?limit=2&after=a1", []string{"a2", "a3"}, "a3"},
		{"?limit=2&after=a3", []string{"a4"}, ""},
		{"?tenant=other", []string{"a3"}, ""},
		{"?status=CANCELED", []string{"a3"}, ""},
		{"?status=CREATED&tenant=other", nil, ""},
	}
	for _, test := range tests {
		var page wire.Actions
		f.read(f.do(200, "GET", "/v1/actions"+test.query, ""), &page)
		var got []string
		for _, a := range page.Actions {
			got = append(got, a.ID)
		}
		next := ""
		if page.Next != nil {
			next = *page.Next
		}
		if !slices.Equal(got, test.want) || next != test.next || page.Actions == nil {
			t.Errorf("%s: got %q, next %q; want %q, next %q", test.query, got, next, test.want, test.next)
		}
	}
	for _, query := range []string{"?limit=0", "?limit=1001", "?limit=x", "?status=DONE"} {
		if a := f.do(422, "GET", "/v1/actions"+query, ""); a.problem.Errors[0].Field != query[1:strings.Index(query, "=")] {
			t.Error(query, a.problem)
		}
	}
}

func TestMoves(t *testing.T) {
	f := newFixture(t)
	f.create("a")
	transition := func(status int, verb string) answer { return f.do(status, "POST", "/v1/actions/a/"+verb, "") }
	for range 2 { // A transition that was made is no error.
		if a := transition(200, "pause"); !strings.Contains(a.Body.String(), `"paused":true`) {
			t.Fatal(a.Body)
		}
	}
	transition(200, "resume")
	if a := transition(200, "cancel"); !strings.Contains(a.Body.String(), `"status":"CANCELED"`) || !strings.Contains(a.Body.String(), `"finished_at":"2026`) {
		t.Fatal(a.Body)
	}
	if a := transition(409, "resume"); a.problem.Code != wire.CodeStatus || !strings.Contains(a.problem.Detail, "CANCELED") {
		t.Fatal(a.problem)
	}
	f.engine.fail["Cancel"] = bulk.ErrNoChange
	if a := transition(200, "cancel"); !strings.Contains(a.Body.String(), `"id":"a"`) {
		t.Fatal(a.Body)
	}
	for _, path := range []string{"", "/pause", "/resume", "/cancel", "/seal", "/jobs", "/failures", "/watch"} {
		method, body, kind := "POST", "", "application/json"
		switch path {
		case "", "/failures", "/watch":
			method = "GET"
		case "/seal":
			body = `{"total":1}`
		case "/jobs":
			body, kind = "1", "application/x-ndjson"
		}
		if a := f.do(404, method, "/v1/actions/none"+path, body, "Content-Type", kind); a.problem.Code != wire.CodeNotFound || !strings.Contains(a.problem.Detail, `"none"`) {
			t.Error(path, a.problem)
		}
	}
}

func TestSeal(t *testing.T) {
	f := newFixture(t)
	f.create("a")
	f.upload("a", "1", "2")
	a := f.do(409, "POST", "/v1/actions/a/seal", `{"total":3}`)
	if a.problem.Code != wire.CodeTotal || *a.problem.Total != 3 || *a.problem.Received != 2 {
		t.Fatalf("%s", a.Body)
	}
	f.do(422, "POST", "/v1/actions/a/seal", `{"total":-1}`)
	f.do(422, "POST", "/v1/actions/a/seal", `{}`)
	for range 2 {
		if a := f.do(200, "POST", "/v1/actions/a/seal", `{"total":2}`); !strings.Contains(a.Body.String(), `"status":"DISPATCHED","paused":false,"total":2`) {
			t.Fatal(a.Body)
		}
	}
	f.do(409, "POST", "/v1/actions/a/seal", `{"total":1}`)
	f.create("b")
	f.do(200, "POST", "/v1/actions/b/cancel", "")
	// Its total is not what is wrong with it: another one would not help.
	if a := f.do(409, "POST", "/v1/actions/b/seal", `{"total":0}`); a.problem.Code != wire.CodeStatus {
		t.Errorf("sealing a canceled action: %s, want the code %s", a.Body, wire.CodeStatus)
	}
}

func TestJSONBodyLimit(t *testing.T) {
	f := newFixture(t)
	padding := strings.Repeat(" ", 1<<20)
	f.do(201, "POST", "/v1/actions", (`{"tenant":"t","type":"echo"}` + padding)[:1<<20])
	a := f.do(413, "POST", "/v1/actions", `{"tenant":"t","type":"echo"}`+padding)
	if a.problem.Code != wire.CodeTooLarge || !strings.Contains(a.problem.Detail, "1048576") {
		t.Fatal(a.problem)
	}
}
