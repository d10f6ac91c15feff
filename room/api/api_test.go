package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/api"
	"github.com/sluice-project/sluice/room/engine"
)

const bearer = "Authorization"

func TestOperations(t *testing.T) {
	const place = `{"ticket":"ticket-7","id":7,"status":"waiting","position":3,"ahead":2,"estimated_wait_ms":{"low":1000,"high":4000},"next_poll_ms":2000,"pass":null,"pass_expires_at":null}`
	const view = `{"room":"shop","mode":"teller","state":"queueing","waiting":9,"inside":5,"called":1,"entered_total":20,"admitted_total":5,"missed_total":2,"departed_total":4,"expired_total":3,"events_dropped_total":6,"outflow_per_second":2.5,"paused":false,"epoch":2,"created_at":"2026-11-28T08:00:00Z"`
	const settings = `,"settings":{"mode":"teller","capacity":5,"pass_ttl_ms":600000,"pass":"sliding","renewals":0,"claim_window_ms":10000,"abandon_after_ms":120000,"grace_ms":180000,"max_waiting":1000000,"method":"fifo","on_store_failure":"closed","bind_tickets":false,"invitation_only":false,"codes":false}`
	for _, test := range []struct {
		method, path, body string
		call               string
		status             int
		want               string
	}{
		{"POST", "/v1/rooms/shop/visitors", "", "Enter shop  192.0.2.1", 200, place},
		{"POST", "/v1/rooms/shop/visitors", `{"visitor":"ada"}`, "Enter shop ada 192.0.2.1", 200, place},
		{"POST", "/v1/rooms/shop/visitors", ` { "visitor" : null } `, "Enter shop  192.0.2.1", 200, place},
		{"GET", "/v1/rooms/shop/visitors/me", "", "Ask shop t 192.0.2.1", 200, place},
		{"DELETE", "/v1/rooms/shop/visitors/me", "", "Leave shop t 192.0.2.1", 204, ""},
		{"POST", "/v1/rooms/shop/visitors/me/renew", "", "Renew shop t 192.0.2.1", 200, place},
		{"GET", "/v1/rooms", "", "Rooms  1000", 200, `{"rooms":[` + view + `}],"next":null}`},
		{"GET", "/v1/rooms?after=a&limit=1", "", "Rooms a 1", 200, `{"rooms":[` + view + `}],"next":"shop"}`},
		{"GET", "/v1/rooms/shop", "", "Room shop", 200, view + settings + "}"},
		{"PUT", "/v1/rooms/shop", `{"mode":"teller","capacity":5}`, "PutRoom shop teller 5", 200, view + settings + "}"},
		{"DELETE", "/v1/rooms/shop", "", "DeleteRoom shop", 204, ""},
		{"POST", "/v1/rooms/shop/pause", "", "Pause shop", 200, view + settings + "}"},
		{"POST", "/v1/rooms/shop/sold-out", "", "SoldOut shop", 200, view + settings + "}"},
		{"POST", "/v1/rooms/shop/resume", "ignored", "Resume shop", 200, view + settings + "}"},
		{"PUT", "/v1/rooms/shop/health", `{"utilization":0.5}`, "ReportHealth shop 0.5", 200, view + settings + "}"},
		{"POST", "/v1/rooms/shop/revoke", "", "RevokeAll shop", 204, ""},
		{"POST", "/v1/rooms/shop/revoke", "{}", "RevokeAll shop", 204, ""},
		{"POST", "/v1/rooms/shop/revoke", `{"visitor":"ada"}`, "RevokeVisitor shop ada", 204, ""},
		{"POST", "/v1/rooms/shop/revoke", `{"ticket":"x"}`, "RevokeTicket shop x", 204, ""},
		{"POST", "/v1/rooms/shop/codes", `{"count":2,"lane":"vip","until":"2030-01-01T00:00:00Z"}`, "MakeCodes shop vip 2 1893456000", 201, `{"codes":["7K3M","9QXF"]}`},
		{"DELETE", "/v1/rooms/shop/codes", "", "RevokeCodes shop", 204, ""},
		{"GET", "/v1/rooms/shop/lottery", "", "Room shop", 200, `{"method":"fifo","commitment":null,"opens_at":null,"seed":null}`},
		{"POST", "/v1/room-keys/rotate", "", "RotateKeys", 204, ""},
		{"POST", "/v1/room-keys/revoke", "", "RevokeKeys", 204, ""},
		{"GET", api.JWKSPath, "", "JWKS", 200, `{"keys":[{"kty":"OKP"}]}`},
	} {
		engine := newFake()
		f := newFixture(t, engine)
		a := f.do(test.status, test.method, test.path, test.body, bearer, "Bearer t")
		if a.Body.String() != test.want || !slices.Equal(engine.calls, []string{test.call}) {
			t.Errorf("%s %s: called %q\n%s\nwant %s\n%s", test.method, test.path, engine.calls, a.Body, test.call, test.want)
		}
		if cache := a.Header().Get("Cache-Control"); a.Body.Len() > 0 && (cache == "no-store") == (test.path == api.JWKSPath) {
			t.Errorf("%s %s: Cache-Control %q", test.method, test.path, cache)
		}
	}
}

func TestStatusOfWhatIsNew(t *testing.T) {
	engine := newFake()
	engine.answer.New, engine.made = true, true
	f := newFixture(t, engine)
	f.do(201, "POST", "/v1/rooms/shop/visitors", "")
	f.do(201, "PUT", "/v1/rooms/shop", `{"mode":"teller","capacity":5}`)
}

// The document has exactly the served operations.
func TestDocument(t *testing.T) {
	f := newFixture(t, newFake())
	doc := document(t)
	served := doc.Operations()
	for path := range doc.Paths {
		for _, method := range []string{"GET", "POST", "PUT", "DELETE", "PATCH"} {
			r := httptest.NewRequestWithContext(t.Context(), method, strings.ReplaceAll(path, "{room}", "shop"), nil)
			w := httptest.NewRecorder()
			f.handler.ServeHTTP(w, r)
			if is := w.Code != 404 && w.Code != 405; is != slices.Contains(served, method+" "+path) {
				t.Errorf("%s %s: status %d, in the document: %v", method, path, w.Code, !is)
			}
		}
	}
	if len(doc.Paths) != 16 {
		t.Errorf("%d paths", len(doc.Paths))
	}
}

// The document has exactly the existing settings.
func TestDocumentOfSettings(t *testing.T) {
	doc := document(t)
	schema := doc.Components.Schemas.Map()["Settings"]
	at := opened.UTC()
	rules := []room.Rule{{Host: "a.example"}}
	found := map[string]bool{}
	for _, settings := range []room.Settings{
		{Mode: room.Teller, Capacity: 1, OpensAt: at, PrequeueFrom: at.Add(-time.Hour), EndsAt: at.Add(time.Hour), Routes: rules, Bypass: rules, JoinsPerMinute: 7},
		{Mode: room.Park, Batch: 1, Interval: time.Second, Stay: time.Second},
		{Mode: room.Teller, Capacity: room.Auto},
		{Mode: room.Teller, Capacity: 1, Repeats: "@daily", TimeZone: "UTC", Lasts: time.Hour, Prequeue: time.Minute, Lanes: "vip=1,public=2"},
	} {
		text, err := json.Marshal(settings)
		if err != nil {
			t.Fatal(err)
		}
		var members map[string]any
		if err := json.Unmarshal(text, &members); err != nil {
			t.Fatal(err)
		}
		for name := range members {
			found[name] = true
			if schema.Properties[name] == nil {
				t.Errorf("the document lacks %s", name)
			}
		}
		if err := doc.Fits(schema, members); err != nil {
			t.Error(err)
		}
	}
	for name := range schema.Properties {
		if !found[name] {
			t.Errorf("there is no setting %s", name)
		}
	}
}

func TestUnknownPathsAndMethods(t *testing.T) {
	f := newFixture(t, newFake())
	for _, path := range []string{"/", "/v1/rooms/", "/v1/rooms/shop/", "/v1/rooms//visitors", "/v1/rooms/shop/visitors/", "/v1/rooms/shop/nothing", "/v1/roomsx", "/v1/rooms/shop/visitors/me/watch/x"} {
		if a := f.do(404, "GET", path, ""); a.problem.Code != api.CodeNotFound {
			t.Error(path, a.problem)
		}
	}
	for path, allow := range map[string]string{
		"/v1/rooms/shop": "GET, HEAD, PUT, DELETE", "/v1/rooms/shop/visitors": "POST", "/v1/rooms": "GET, HEAD", api.JWKSPath: "GET, HEAD",
	} {
		if a := f.do(405, "PATCH", path, ""); a.problem.Code != api.CodeMethod || a.Header().Get("Allow") != allow {
			t.Error(path, a.problem, a.Header())
		}
	}
	f.do(200, "HEAD", "/v1/rooms/shop", "")
}

// TestEngineErrors gives each operation the errors that the engine may return.
func TestEngineErrors(t *testing.T) {
	operations := []struct{ engine, method, path, body string }{
		{"Enter", "POST", "/v1/rooms/shop/visitors", ""},
		{"Ask", "GET", "/v1/rooms/shop/visitors/me", ""},
		{"Leave", "DELETE", "/v1/rooms/shop/visitors/me", ""},
		{"Renew", "POST", "/v1/rooms/shop/visitors/me/renew", ""},
		{"Parse", "GET", "/v1/rooms/shop/visitors/me/watch", ""},
		{"Rooms", "GET", "/v1/rooms", ""},
		{"Room", "GET", "/v1/rooms/shop", ""},
		{"PutRoom", "PUT", "/v1/rooms/shop", `{"mode":"teller","capacity":5}`},
		{"DeleteRoom", "DELETE", "/v1/rooms/shop", ""},
		{"Pause", "POST", "/v1/rooms/shop/pause", ""},
		{"Resume", "POST", "/v1/rooms/shop/resume", ""},
		{"RevokeAll", "POST", "/v1/rooms/shop/revoke", ""},
		{"RevokeVisitor", "POST", "/v1/rooms/shop/revoke", `{"visitor":"x"}`},
		{"RevokeTicket", "POST", "/v1/rooms/shop/revoke", `{"ticket":"x"}`},
		{"Room", "GET", "/v1/rooms/shop/lottery", ""},
		{"RotateKeys", "POST", "/v1/room-keys/rotate", ""},
		{"JWKS", "GET", api.JWKSPath, ""},
	}
	failures := []struct {
		err    error
		status int
		code   string
		retry  string
		logged bool
	}{
		{room.ErrNoRoom, 404, api.CodeNoRoom, "", false},
		{room.ErrNoVisitor, 404, api.CodeNoVisitor, "", false},
		{room.ErrNotOpen, 403, api.CodeNotOpen, "", false}, {room.ErrEnded, 403, api.CodeEnded, "", false},
		{room.ErrLineFull, 503, api.CodeLineFull, "10", false},
		{&engine.LimitError{RetryAfter: 1001 * time.Millisecond}, 429, api.CodeTooManyJoins, "2", false},
		{room.ErrNotRenewable, 409, api.CodeNotRenewable, "", false},
		{room.ErrConflict, 409, api.CodeConflict, "", false},
		{room.ErrTooManyRooms, 409, api.CodeTooManyRooms, "", false},
		{engine.ErrRingFull, 409, api.CodeRingFull, "", false},
		{&room.QuotaError{Owner: "ada", Has: 2, Most: 2}, 429, api.CodeQuota, "", false},
		{&room.KeyError{Why: "is empty"}, 422, api.CodeInvalid, "", false},
		{&room.SettingsError{Field: "mode", Why: "stays teller"}, 422, api.CodeInvalid, "", false},
		{room.ErrUnavailable, 503, api.CodeUnavailable, "2", true},
		{room.ErrFull, 507, api.CodeFull, "", true},
		{room.ErrBroken, 503, api.CodeUnavailable, "10", true},
		{room.ErrClosed, 503, api.CodeUnavailable, "2", true},
		{errors.New("a secret of the server"), 500, api.CodeInternal, "", true},
	}
	for _, operation := range operations {
		for _, failure := range failures {
			engine := newFake()
			f := newFixture(t, engine)
			engine.fail[operation.engine] = errors.Join(failure.err)
			a := f.do(failure.status, operation.method, operation.path, operation.body, bearer, "bearer t")
			if a.problem.Code != failure.code || a.Header().Get("Retry-After") != failure.retry || strings.Contains(a.Body.String(), "secret") {
				t.Errorf("%+v %v: %s %v", operation, failure.err, a.Body, a.Header())
			}
			if logged := strings.Contains(f.log.String(), failure.err.Error()); logged != failure.logged {
				t.Errorf("%+v %v: log %s", operation, failure.err, f.log.String())
			}
		}
	}
}

func TestTickets(t *testing.T) {
	e := newFake()
	f := newFixture(t, e)
	for _, operation := range []struct{ engine, method, path string }{
		{"Ask", "GET", "/v1/rooms/shop/visitors/me"}, {"Leave", "DELETE", "/v1/rooms/shop/visitors/me"},
		{"Renew", "POST", "/v1/rooms/shop/visitors/me/renew"}, {"Parse", "GET", "/v1/rooms/shop/visitors/me/watch"},
	} {
		for _, header := range []string{"", "Bearer", "Basic eDp5", "t"} {
			a := f.do(401, operation.method, operation.path, "", bearer, header)
			if a.problem.Code != api.CodeBadTicket || a.Header().Get("WWW-Authenticate") != `Bearer realm="room"` || len(e.calls) > 0 {
				t.Errorf("%s %q: %+v, %v", operation.path, header, a.problem, a.Header())
			}
		}
		e.fail[operation.engine] = engine.ErrBadTicket
		if a := f.do(401, operation.method, operation.path, "", bearer, "Bearer t"); a.problem.Code != api.CodeBadTicket || a.Header().Get("WWW-Authenticate") == "" {
			t.Errorf("%s: %+v", operation.path, a.problem)
		}
		e.fail[operation.engine] = &room.GoneError{Reason: room.Abandoned, ID: 7}
		if a := f.do(410, operation.method, operation.path, "", bearer, "Bearer t"); a.problem.Code != api.CodeGone || a.problem.Reason != string(room.Abandoned) || a.problem.ID != 7 {
			t.Errorf("%s: %+v", operation.path, a.problem)
		}
		e.calls = nil
	}
	e.fail["RevokeTicket"] = engine.ErrBadTicket
	if a := f.do(422, "POST", "/v1/rooms/shop/revoke", `{"ticket":"x"}`); a.problem.Errors[0].Field != "ticket" {
		t.Errorf("revoke: %+v", a.problem)
	}
}

// A store that is away fails every request, and does not flood the log.
func TestFaultsAreLoggedOnceInASecond(t *testing.T) {
	engine := newFake()
	f := newFixture(t, engine)
	engine.fail["Enter"] = room.ErrUnavailable
	began := time.Now()
	for range 20 {
		f.do(503, "POST", "/v1/rooms/shop/visitors", "")
	}
	if lines := strings.Count(f.log.String(), "\n"); lines == 0 || time.Duration(lines-1)*time.Second > time.Since(began) {
		t.Errorf("%d lines in the log:\n%s", lines, f.log.String())
	}
}

func TestRequestThatEndedIsNoFault(t *testing.T) {
	engine := newFake()
	f := newFixture(t, engine)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	engine.fail["Enter"] = context.Canceled
	f.send(503, httptest.NewRequest(http.MethodPost, "/v1/rooms/shop/visitors", nil).WithContext(ctx))
	if f.log.Len() > 0 {
		t.Error(f.log.String())
	}
}

func TestTrustedProxies(t *testing.T) {
	engine := newFake()
	f := newFixture(t, engine, api.WithTrustedProxies([]netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}))
	f.do(200, "POST", "/v1/rooms/shop/visitors", "", "X-Forwarded-For", "9.9.9.9, 1.2.3.4")
	f.do(200, "GET", "/v1/rooms/shop/visitors/me", "", "X-Forwarded-For", "1.2.3.4", bearer, "Bearer t")
	if !slices.Equal(engine.calls, []string{"Enter shop  1.2.3.4", "Ask shop t 1.2.3.4"}) {
		t.Errorf("%q", engine.calls)
	}
}

func TestLottery(t *testing.T) {
	engine := newFake()
	settings := &engine.view.Room.Settings
	settings.Method, settings.OpensAt = room.Lottery, opened.Add(time.Millisecond)
	f := newFixture(t, engine)
	const want = `{"method":"lottery","commitment":"19b25856e1c150ca834cffc8b59b23adbd0ec0389e58eb22b3b64768098d002b","opens_at":"2026-11-28T08:00:00.001Z","seed":`
	if a := f.do(200, "GET", "/v1/rooms/shop/lottery", ""); a.Body.String() != want+"null}" {
		t.Errorf("before the opening: %s", a.Body)
	}
	engine.view.Status.Now = settings.OpensAt
	if a := f.do(200, "GET", "/v1/rooms/shop/lottery", ""); a.Body.String() != want+`"73656564"}` {
		t.Errorf("after the opening: %s", a.Body)
	}
}
