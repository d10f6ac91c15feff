package api_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api/wire"
)

func TestSchedules(t *testing.T) {
	f := newFixture(t)
	body := `{"cron":" 30  2 * * *","time_zone":"Asia/Seoul","overlap":"allow","catch_up_ms":0,"tenant":"acme",
		"target":{"url":"http://api.example.com/x"},"class":"low","key":"customer 7","aggregate":["count"],"max_attempts":3,"timeout_ms":5000,"fail_above":0.5,"keep_results":true,
		"jobs":[{"n": 1},"two",12345678901234567890]}`
	want := `{"name":"nightly","cron":"30 2 * * *","time_zone":"Asia/Seoul","total":3,"jobs":[{"n":1},"two",12345678901234567890],` +
		`"overlap":"allow","catch_up_ms":0,"tenant":"acme","type":"webhook","target":{"name":"api.example.com:80","url":"http://api.example.com/x"},` +
		`"class":"low","key":"customer 7","aggregate":["count"],"max_attempts":3,"timeout_ms":5000,"fail_above":0.5,"keep_results":true,"events":[],"paused":false,` +
		`"created_at":"2026-01-02T02:04:05Z","updated_at":"2026-01-02T02:04:05Z","next_run_at":"2026-01-02T02:04:05Z",` +
		`"last_run_at":null,"last_action":null,"last_skipped_at":null,"last_error":""}`
	for _, status := range []int{http.StatusCreated, http.StatusOK} {
		if got := strings.TrimSpace(f.do(status, "PUT", "/v1/schedules/nightly", body).Body.String()); got != want {
			t.Fatalf("got  %s\nwant %s", got, want)
		}
	}
	if got := strings.TrimSpace(f.do(200, "GET", "/v1/schedules/nightly", "").Body.String()); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := string(f.engine.schedules["nightly"].Jobs[2]); got != "12345678901234567890" {
		t.Errorf("job 2 is %s: numbers must stay as they are", got)
	}
	f.do(201, "PUT", "/v1/schedules/hourly", `{"cron":"@hourly","tenant":"acme","type":"echo","jobs":[1]}`)
	var list wire.Schedules
	if err := json.Unmarshal(f.do(200, "GET", "/v1/schedules", "").Body.Bytes(), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Schedules) != 2 || list.Schedules[0].CatchUpMS != 3_600_000 || list.Schedules[1].Total != 3 || list.Schedules[1].Jobs != nil {
		t.Errorf("%+v", list)
	}
	for verb, paused := range map[string]bool{"pause": true, "resume": false} {
		f.do(200, "POST", "/v1/schedules/nightly/"+verb, "")
		if f.engine.schedules["nightly"].Paused != paused {
			t.Errorf("%s: %+v", verb, f.engine.schedules["nightly"])
		}
	}
	a := f.do(201, "POST", "/v1/schedules/nightly/run", "")
	if got := a.Header().Get("Location"); got != "/v1/actions/nightly:20260102T020405Z" || !strings.Contains(a.Body.String(), `"id":"nightly:20260102T020405Z"`) {
		t.Errorf("%s %s", got, a.Body)
	}
	f.do(204, "DELETE", "/v1/schedules/nightly", "")
	f.do(404, "GET", "/v1/schedules/nightly", "")
}

func TestSchedulesRefused(t *testing.T) {
	f := newFixture(t)
	full := `{"cron":"@daily","tenant":"acme","type":"echo","jobs":[1]}`
	for _, test := range []struct{ change, to, field string }{
		{`"@daily"`, `"@daybreak"`, "cron"}, {`"@daily"`, `"0 0 31 2 *"`, "cron"}, {`"cron":"@daily",`, ``, "cron"},
		{`[1]`, `[]`, "jobs"}, {`[1]`, `["` + strings.Repeat("x", 1<<20) + `"]`, "jobs"}, {`[1]`, `[1],"overlap":"queue"`, "overlap"},
		{`[1]`, `[1],"time_zone":"Mars"`, "time_zone"}, {`[1]`, `[1],"catch_up_ms":-1`, "catch_up_ms"}, {`[1]`, `[1],"id":"x"`, "id"},
		{`[1]`, `[1],"run_at":"2030-01-01T00:00:00Z"`, "run_at"}, {`"echo"`, `"webhook"`, "target"},
	} {
		a := f.do(422, "PUT", "/v1/schedules/s", strings.Replace(full, test.change, test.to, 1))
		if len(a.problem.Errors) != 1 || a.problem.Errors[0].Field != test.field {
			t.Errorf("%.60s: %.300v", test.to, a.problem)
		}
	}
	f.do(422, "PUT", "/v1/schedules/a:b", full)
	f.do(413, "PUT", "/v1/schedules/s", strings.Replace(full, "[1]", "["+strings.Repeat(" ", 2<<20)+"1]", 1))
	f.do(201, "PUT", "/v1/schedules/s", full)
	for _, test := range []struct {
		method, path, fails string
		err                 error
		status              int
		code                string
	}{
		{"GET", "/v1/schedules/none", "", nil, 404, wire.CodeNotFound},
		{"DELETE", "/v1/schedules/none", "", nil, 404, wire.CodeNotFound},
		{"POST", "/v1/schedules/none/run", "", nil, 404, wire.CodeNotFound},
		{"POST", "/v1/schedules/s/run", "RunNow", &bulk.UnfinishedError{Schedule: "s", Action: "s:1"}, 409, wire.CodeStatus},
		{"POST", "/v1/schedules/s/run", "RunNow", &bulk.RunError{Schedule: "s", Why: "taken"}, 409, wire.CodeStatus},
		{"POST", "/v1/schedules/s/pause", "PauseSchedule", bulk.ErrConflict, 409, wire.CodeConflict},
		{"PUT", "/v1/schedules/s", "PutSchedule", fmt.Errorf("%w: 1,000", bulk.ErrFull), 507, wire.CodeFull},
		{"GET", "/v1/schedules", "Schedules", errors.New("boom"), 500, wire.CodeInternal},
		{"POST", "/v1/schedules/s/resume", "ResumeSchedule", bulk.ErrClosed, 503, wire.CodeUnavailable},
	} {
		f.engine.fail = map[string]error{test.fails: test.err}
		body := ""
		if test.method == "PUT" {
			body = full
		}
		if a := f.do(test.status, test.method, test.path, body); a.problem.Code != test.code {
			t.Errorf("%s %s: %+v", test.method, test.path, a.problem)
		}
	}
}
