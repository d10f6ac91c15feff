package api_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/bulk/engine"
)

func TestEnqueue(t *testing.T) {
	f := newFixture(t)
	a := f.do(201, "POST", "/v1/jobs", `{"tenant":"t","type":"echo","payload":{"a": 1}}`)
	if got := strings.TrimSpace(a.Body.String()); got != `{"id":"stream-0","action":"stream","index":0,"duplicate":false}` {
		t.Error(got)
	}
	a = f.do(200, "POST", "/v1/jobs", `{"tenant":"t","target":{"url":"http://h/"},"payload":null,"class":"low","key":"customer 7","cost":3,"max_attempts":2,"timeout_ms":3,`+
		`"run_at":"2026-01-02T03:04:05+01:00","unique":"again","unique_for_ms":4,"keep_results":true}`)
	if got := strings.TrimSpace(a.Body.String()); got != `{"id":"stream-1","action":"stream","index":1,"duplicate":true}` {
		t.Error(got)
	}
	want := []engine.NewJob{{Tenant: "t", Type: "echo", Payload: []byte(`{"a": 1}`)}, {
		Tenant: "t", Target: &bulk.Target{URL: "http://h/"}, Payload: []byte("null"), Class: bulk.Low, Key: "customer 7", Cost: 3, MaxAttempts: 2, Timeout: 3 * time.Millisecond,
		RunAt: time.Date(2026, 1, 2, 2, 4, 5, 0, time.UTC), Unique: "again", UniqueFor: 4 * time.Millisecond, KeepResults: true,
	}}
	if !reflect.DeepEqual(f.engine.jobs, want) {
		t.Errorf("enqueued %+v, want %+v", f.engine.jobs, want)
	}
}

func TestEnqueueRefuses(t *testing.T) {
	f := newFixture(t)
	for _, c := range []struct {
		body, code string
		status     int
	}{
		{`{"tenant":"t","type":"echo"}`, wire.CodeInvalid, 422},
		{`{"type":"echo","payload":1}`, wire.CodeInvalid, 422},
		{`{"tenant":"t","type":"echo","payload":1,"stream":true}`, wire.CodeInvalid, 422},
		{`{"tenant":"t","type":"echo","payload":1,"unique":"` + strings.Repeat("k", 257) + `"}`, wire.CodeInvalid, 422},
		{`{"tenant":"t","type":"echo","payload":1,"cost":1000001}`, wire.CodeInvalid, 422},
		{`{"tenant":"t","type":"echo","payload":1,"key":"` + strings.Repeat("k", 257) + `"}`, wire.CodeInvalid, 422},
		{fmt.Sprintf(`{"tenant":"t","type":"echo","payload":"%01200000d"}`, 0), wire.CodeTooLarge, 413},
	} {
		if a := f.do(c.status, "POST", "/v1/jobs", c.body); a.problem.Code != c.code {
			t.Errorf("%.80s: %s", c.body, a.Body)
		}
	}
	if len(f.engine.jobs) > 0 {
		t.Errorf("refused jobs were enqueued: %+v", f.engine.jobs)
	}
	body := `{"tenant":"t","type":"echo","payload":1}`
	f.engine.fail["Enqueue"] = engine.ErrBusy
	if a := f.do(503, "POST", "/v1/jobs", body); a.problem.Code != wire.CodeBusy || a.Header().Get("Retry-After") != "1" {
		t.Error("busy:", a.Body, a.Header())
	}
	f.engine.fail["Enqueue"] = bulk.ErrUnavailable
	if a := f.do(503, "POST", "/v1/jobs", body); !strings.Contains(a.problem.Detail, "enqueue it twice") {
		t.Error("without a key:", a.Body)
	}
	if a := f.do(503, "POST", "/v1/jobs", `{"tenant":"t","type":"echo","payload":1,"unique":"k"}`); !strings.Contains(a.problem.Detail, "a retry is safe") {
		t.Error("with a key:", a.Body)
	}
}
