package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/ports"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

// problem is the part of an RFC 9457 problem that tests need.
type problem struct {
	Status   int    `json:"status"`
	Detail   string `json:"detail"`
	Line     int    `json:"line"`
	Received int64  `json:"received"`
	Total    int64  `json:"total"`
}

// refuses makes a request that must be answered with a problem.
func (s *server) refuses(method, path, contentType, body string, status int, header ...string) (p problem) {
	s.t.Helper()
	a, err := s.do(method, path, contentType, []byte(body), header...)
	if err != nil {
		s.t.Fatal(err)
	}
	if a.status != status || !strings.HasPrefix(a.header.Get("Content-Type"), "application/problem+json") {
		s.t.Fatalf("%s %s: %d %s %s, want a problem with %d", method, path, a.status, a.header.Get("Content-Type"), a.body, status)
	}
	if err := a.json(&p); err != nil {
		s.t.Fatal(err)
	}
	if p.Detail == "" {
		s.t.Errorf("%s %s: a problem without a detail: %s", method, path, a.body)
	}
	return p
}

// upload sends a chunk of jobs and returns how many the action now has.
func (s *server) upload(id, contentType, body string, offset int) (received int) {
	s.t.Helper()
	a, err := s.do("POST", "/v1/actions/"+id+"/jobs", contentType, []byte(body), "Upload-Offset", fmt.Sprint(offset))
	var said struct{ Received int }
	if err != nil || a.status != http.StatusOK || a.json(&said) != nil {
		s.t.Fatalf("upload to %s at %d: %d %s %v", id, offset, a.status, a.body, err)
	}
	return said.Received
}

func (s *server) finish(id string) (finished action) {
	s.t.Helper()
	until.True(s.t, id+" finishes", func() bool {
		finished = s.action(id)
		return finished.FinishedAt != nil
	})
	return finished
}

const ndjson = "application/x-ndjson"

// A shop uploads an action in two forms, makes every possible mistake on the way, and loses
// nothing.
func TestContractUpload(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.start()
	const body = `{"id":"a","tenant":"shop","type":"echo","aggregate":["count","sum:price"]}`
	s.call("POST", "/v1/actions", body, http.StatusCreated, nil)
	s.call("POST", "/v1/actions", body, http.StatusOK, nil)
	s.refuses("POST", "/v1/actions", "application/json", `{"id":"a","tenant":"other","type":"echo"}`, http.StatusConflict)
	s.refuses("POST", "/v1/actions", "application/json", `{"tenant":"shop","type":"echo","colour":"red"}`, http.StatusUnprocessableEntity)
	s.refuses("POST", "/v1/actions/nobody/jobs", ndjson, "{}", http.StatusNotFound, "Upload-Offset", "0")

	if got := s.upload("a", ndjson, "{\"price\":0.1}\n{\"price\":\"0.2\"}\n", 0); got != 2 {
		t.Errorf("received %d, want 2", got)
	}
	if got := s.upload("a", ndjson, "{\"price\":\"0.2\"}\n{\"price\":3}\n", 1); got != 3 {
		t.Errorf("received %d after an overlap, want 3", got)
	}
	p := s.refuses("POST", "/v1/actions/a/jobs", ndjson, "{}\n", http.StatusConflict, "Upload-Offset", "9")
	if p.Received != 3 {
		t.Errorf("an upload with a gap is told %d received, want 3", p.Received)
	}
	p = s.refuses("POST", "/v1/actions/a/jobs", ndjson, "{}\n{oops\n", http.StatusBadRequest, "Upload-Offset", "3")
	if p.Line != 2 {
		t.Errorf("a bad line is reported as line %d, want 2", p.Line)
	}
	p = s.refuses("POST", "/v1/actions/a/jobs", "text/csv", "price,zip\n1,00501\n2\n", http.StatusBadRequest, "Upload-Offset", "3")
	if p.Line != 3 {
		t.Errorf("a short row is reported as line %d, want 3", p.Line)
	}
	s.refuses("POST", "/v1/actions/a/jobs", "text/plain", "x", http.StatusUnsupportedMediaType, "Upload-Offset", "3")
	big := strings.Repeat("[\""+strings.Repeat("x", 1<<19)+"\"]\n", 70)
	s.refuses("POST", "/v1/actions/a/jobs", ndjson, big, http.StatusRequestEntityTooLarge, "Upload-Offset", "3")
	if got := s.upload("a", "text/csv", "zip,price\n00501,0.000000000000000000001\n", 3); got != 4 {
		t.Errorf("received %d, want 4", got)
	}

	p = s.refuses("POST", "/v1/actions/a/seal", "application/json", `{"total":5}`, http.StatusConflict)
	if p.Total != 5 || p.Received != 4 {
		t.Errorf("a wrong total is told %d and %d, want 5 and 4", p.Total, p.Received)
	}
	s.call("POST", "/v1/actions/a/seal", `{"total":4}`, http.StatusOK, nil)
	a := s.finish("a")
	if got := string(a.Result["sum:price"]); a.Succeeded != 4 || got != `"3.300000000000000000001"` {
		t.Errorf("%d succeeded with a sum of %s, want 4 and 3.300000000000000000001", a.Succeeded, got)
	}
	s.refuses("POST", "/v1/actions/a/jobs", ndjson, "{}", http.StatusConflict, "Upload-Offset", "4")
}

type lease struct {
	ID      string          `json:"id"`
	Action  string          `json:"action"`
	Lease   string          `json:"lease"`
	Attempt int             `json:"attempt"`
	Payload json.RawMessage `json:"payload"`
	// Traceparent is where the job is in its trace.
	Traceparent string `json:"traceparent"`
}

func (s *server) lease(body string) []lease {
	s.t.Helper()
	var leased struct{ Jobs []lease }
	s.call("POST", "/v1/leases", body, http.StatusOK, &leased)
	return leased.Jobs
}

// await leases the jobs of a type that come next, at most as many; rest is what the request has besides.
func (s *server) await(kind string, most int, rest string) (jobs []lease) {
	s.t.Helper()
	until.True(s.t, "jobs of "+kind+" are leased", func() bool {
		jobs = s.lease(fmt.Sprintf(`{"types":[%q],"max":%d,"wait_ms":5000%s}`, kind, most, rest))
		return len(jobs) > 0
	})
	return jobs
}

// ack settles one lease and returns the verdict.
func (s *server) ack(lease, rest string) string {
	s.t.Helper()
	var said struct {
		Verdicts []struct{ Lease, Verdict string }
	}
	s.call("POST", "/v1/leases/ack", fmt.Sprintf(`{"outcomes":[{"lease":%q,%s}]}`, lease, rest), http.StatusOK, &said)
	if len(said.Verdicts) != 1 {
		s.t.Fatalf("%d verdicts, want 1", len(said.Verdicts))
	}
	return said.Verdicts[0].Verdict
}

// A worker in another language leases, is throttled, fails, is late, and acks twice; the server is
// killed in between, and the lease is still valid.
func TestContractLeases(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.start()
	s.call("POST", "/v1/actions", `{"id":"a","tenant":"shop","type":"mail","max_attempts":2}`, http.StatusCreated, nil)
	s.upload("a", ndjson, "{\"to\":\"x\"}\n{\"to\":\"y\"}\n", 0)
	s.call("POST", "/v1/actions/a/seal", `{"total":2}`, http.StatusOK, nil)

	jobs := s.await("mail", 1, "")
	if len(jobs) != 1 || jobs[0].ID != "a-0" || jobs[0].Attempt != 1 || string(jobs[0].Payload) != `{"to":"x"}` {
		t.Fatalf("leased %+v, want a-0", jobs)
	}
	s.kill()
	s.start()
	if got := s.ack(jobs[0].Lease, `"status":"succeeded"`); got != "accepted" {
		t.Errorf("ack after a restart: %s, want accepted", got)
	}
	if got := s.ack(jobs[0].Lease, `"status":"succeeded"`); got != "duplicate" {
		t.Errorf("second ack: %s, want duplicate", got)
	}
	if got := s.ack("nonsense", `"status":"succeeded"`); got != "unknown" {
		t.Errorf("ack of nonsense: %s, want unknown", got)
	}

	jobs = s.await("mail", 5, `,"lease_ms":1000`)
	if len(jobs) != 1 {
		t.Fatalf("leased %+v, want one job", jobs)
	}
	late := jobs[0].Lease
	jobs = s.await("mail", 5, "")
	if len(jobs) != 1 || jobs[0].Attempt != 2 {
		t.Fatalf("leased %+v after the lease expired, want attempt 2", jobs)
	}
	if got := s.ack(late, `"status":"succeeded"`); got != "expired" {
		t.Errorf("late ack: %s, want expired", got)
	}
	if got := s.ack(jobs[0].Lease, `"status":"throttled","retry_after_ms":1`); got != "accepted" {
		t.Errorf("throttled: %s, want accepted", got)
	}
	jobs = s.await("mail", 5, "")
	if len(jobs) != 1 || jobs[0].Attempt != 2 {
		t.Fatalf("leased %+v after a throttle, want attempt 2 again", jobs)
	}
	s.ack(jobs[0].Lease, `"status":"retry","error":"no such mailbox"`)
	a := s.finish("a")
	if a.Succeeded != 1 || a.Failed != 1 || a.Throttled != 1 {
		t.Errorf("%+v, want one succeeded, one failed, one throttle", a)
	}
	s.checkDeadLetter()
}

// checkDeadLetter reads the failure in both forms and replays it.
func (s *server) checkDeadLetter() {
	s.t.Helper()
	csv, err := s.do("GET", "/v1/actions/a/failures", "", nil, "Accept", "text/csv")
	if err != nil || !strings.Contains(string(csv.body), "no such mailbox") {
		s.t.Errorf("failures as CSV: %s %v", csv.body, err)
	}
	var again action
	a, err := s.do("POST", "/v1/dead-letters/replay", "application/json", []byte(`{"action":"a"}`))
	if err != nil || a.status/100 != 2 || a.json(&again) != nil {
		s.t.Fatalf("replay: %d %s %v", a.status, a.body, err)
	}
	jobs := s.await("mail", 5, "")
	if len(jobs) != 1 || jobs[0].Action != again.ID || string(jobs[0].Payload) != `{"to":"y"}` {
		s.t.Fatalf("leased %+v after the replay, want the job of %s", jobs, again.ID)
	}
	s.ack(jobs[0].Lease, `"status":"succeeded"`)
	if got := s.finish(again.ID); got.Succeeded != 1 {
		s.t.Errorf("the replay: %+v, want one succeeded", got)
	}
}

// An operator sets limits, also wrong ones, and pauses, resumes and cancels.
func TestContractControl(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.start()
	s.call("PUT", "/v1/tenants/shop", `{"requests_per_second":20,"weight":2,"base_priority":5}`, http.StatusOK, nil)
	s.call("PUT", "/v1/targets/api.example.com:443", `{"requests_per_second":50,"concurrency":3}`, http.StatusOK, nil)
	s.call("PUT", "/v1/limits", `{"requests_per_second":1000}`, http.StatusOK, nil)
	for path, body := range map[string]string{
		"/v1/tenants/shop": `{"requests_per_second":-1}`, "/v1/targets/t": `{"concurrency":-1}`,
		"/v1/limits": `{"requests_per_second":-5}`, "/v1/tenants/other": `{"wieght":1}`,
	} {
		s.refuses("PUT", path, "application/json", body, http.StatusUnprocessableEntity)
	}
	var tenant struct {
		RequestsPerSecond float64 `json:"requests_per_second"`
		Weight            float64 `json:"weight"`
	}
	s.kill()
	s.start()
	s.call("GET", "/v1/tenants/shop", "", http.StatusOK, &tenant)
	if tenant.RequestsPerSecond != 20 || tenant.Weight != 2 {
		t.Errorf("after a restart the tenant is %+v", tenant)
	}

	s.call("POST", "/v1/actions", `{"id":"a","tenant":"shop","type":"echo"}`, http.StatusCreated, nil)
	s.upload("a", ndjson, strings.Repeat("{}\n", 2000), 0)
	s.call("POST", "/v1/actions/a/seal", `{"total":2000}`, http.StatusOK, nil)
	until.True(t, "jobs succeed", func() bool { return s.action("a").Succeeded > 0 })
	s.call("POST", "/v1/actions/a/pause", "", http.StatusOK, nil)
	until.True(t, "nothing is in flight", func() bool { return s.action("a").InFlight == 0 })
	stood := s.action("a").Succeeded
	<-time.After(1200 * time.Millisecond)
	if a := s.action("a"); !a.Paused || a.Succeeded != stood {
		t.Errorf("a paused action went from %d to %d", stood, a.Succeeded)
	}
	s.call("POST", "/v1/actions/a/resume", "", http.StatusOK, nil)
	until.True(t, "it goes on", func() bool { return s.action("a").Succeeded > stood })
	s.call("POST", "/v1/actions/a/cancel", "", http.StatusOK, nil)
	a := s.finish("a")
	if a.Status != "CANCELED" || a.Succeeded+a.Canceled != 2000 {
		t.Errorf("%+v, want CANCELED and 2000 jobs accounted for", a)
	}
}

// Jobs of an unreachable target fail with an error that says so, and watchers see the action to its
// end.
func TestContractWatchAndUnreachable(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.start()
	nobody := ports.Addrs(t, 1)[0]
	s.refuses("POST", "/v1/actions", "application/json", `{"tenant":"shop","target":{"url":"ftp://x"}}`, http.StatusUnprocessableEntity)
	s.call("POST", "/v1/actions", fmt.Sprintf(`{"id":"a","tenant":"shop","target":{"url":"http://%s/"},"max_attempts":1,"fail_above":0.5,"aggregate":["top-errors"]}`, nobody), http.StatusCreated, nil)
	s.upload("a", ndjson, "1\n2\n3\n", 0)
	watch, err := http.Get(s.url("/v1/actions/a/watch"))
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Body.Close()
	s.call("POST", "/v1/actions/a/seal", `{"total":3}`, http.StatusOK, nil)
	var last action
	for lines := bufio.NewScanner(watch.Body); lines.Scan(); {
		if data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data:")); ok {
			if err := json.Unmarshal(data, &last); err != nil {
				t.Fatal(err)
			}
		}
	}
	if last.Status != "FAILED" || last.Failed != 3 {
		t.Errorf("the last event is %+v, want FAILED with 3 failed", last)
	}
	if top := string(last.Result["top-errors"]); !strings.Contains(top, nobody) || !strings.Contains(top, "refused") {
		t.Errorf("top errors: %s, want them to name %s and why", top, nobody)
	}
}

// The operator's endpoints answer, a second server is refused, and SIGTERM ends the server with
// code 0.
func TestContractOperator(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.start()
	for path, want := range map[string]string{
		"/healthz": "alive", "/readyz": "ready", "/openapi.json": `"openapi":"3.1`, "/metrics": "bulk_action_dispatch_moved_total",
	} {
		a, err := s.do("GET", path, "", nil)
		if err != nil || a.status != http.StatusOK || !strings.Contains(string(a.body), want) {
			t.Errorf("GET %s: %d %.200s %v, want %s", path, a.status, a.body, err, want)
		}
	}
	second, err := exec.Command(binary, "serve", "--data", s.data, "--http", "127.0.0.1:0").CombinedOutput()
	if err == nil || !strings.Contains(string(second), "another process has it open") {
		t.Errorf("a second server on the same data: %v %s, want it refused", err, second)
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v, want code 0", err)
	}
}
