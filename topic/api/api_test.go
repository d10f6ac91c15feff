package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/edge/edgetest"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/api"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/delay"
	"github.com/sluice-project/sluice/topic/group"
)

// fake is a broker that has one topic, on one node.
type fake struct {
	api.Broker
	waiting []delay.Waiting
	limit   int
	err     error
}

func (f *fake) Delayed(_ context.Context, name string, limit int) ([]delay.Waiting, error) {
	if name != "reminders" {
		return nil, fmt.Errorf("%w: %q", topic.ErrNoTopic, name)
	}
	f.limit = limit
	return f.waiting[:min(limit, len(f.waiting))], f.err
}

func (f *fake) CancelDelayed(_ context.Context, name, id string) error {
	if name != "reminders" {
		return fmt.Errorf("%w: %q", topic.ErrNoTopic, name)
	}
	for i := range f.waiting {
		if f.waiting[i].ID == id {
			f.waiting = append(f.waiting[:i], f.waiting[i+1:]...)
			return f.err
		}
	}
	return fmt.Errorf("delayed record %q: %w", id, topic.ErrNotFound)
}

func (f *fake) GroupLag(_ context.Context, name string) ([]broker.Lag, error) {
	if name != "billing/eu" {
		return nil, fmt.Errorf("%w: %q", group.ErrNoGroup, name)
	}
	return []broker.Lag{
		{Group: name, Topic: "orders", Partition: 0, Committed: 3, End: 10, Lag: 7},
		{Group: name, Topic: "orders", Partition: 1, Committed: 4, End: 4},
		{Group: name, Topic: "paid", Partition: 0, Committed: 5, End: -1, Lag: -1},
	}, f.err
}

func (*fake) Topic(string) (*broker.Topic, error) { return nil, nil }

// do makes a request and returns the status, the type and the body.
func do(handler http.Handler, method, path string) (int, string, string) {
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, httptest.NewRequest(method, path, nil))
	return answer.Code, answer.Header().Get("Content-Type"), answer.Body.String()
}

func TestGroup(t *testing.T) {
	handler := api.New(&fake{})
	status, kind, body := do(handler, "GET", "/v1/groups/billing%2Feu")
	want := `{"group":"billing/eu","lag":7,"partitions":[{"topic":"orders","partition":0,"committed":3,"end":10,"lag":7},` +
		`{"topic":"orders","partition":1,"committed":4,"end":4,"lag":0},{"topic":"paid","partition":0,"committed":5,"end":null,"lag":null}]}`
	if status != 200 || kind != "application/json" || strings.TrimSpace(body) != want {
		t.Errorf("%d %s\n%s\nwant\n%s", status, kind, body, want)
	}
	if status, _, body := do(handler, "GET", "/v1/groups/nosuch"); status != 404 || !strings.Contains(body, `"not_found"`) {
		t.Errorf("a group that does not exist: %d %s", status, body)
	}
}

func TestDelayed(t *testing.T) {
	at := time.Date(2026, 11, 28, 9, 0, 0, 0, time.FixedZone("CET", 3600))
	broker := &fake{waiting: []delay.Waiting{{ID: "a", Partition: 2, DeliverAt: at}, {ID: "x/y z", DeliverAt: at.Add(time.Second)}}}
	handler := api.New(broker)
	status, kind, body := do(handler, "GET", "/v1/topics/reminders/delayed")
	want := `{"delayed":[{"id":"a","partition":2,"deliver_at":"2026-11-28T08:00:00Z"},{"id":"x/y z","partition":0,"deliver_at":"2026-11-28T08:00:01Z"}]}`
	if status != 200 || kind != "application/json" || strings.TrimSpace(body) != want || broker.limit != 100 {
		t.Errorf("%d %s, limit %d\n%s\nwant\n%s", status, kind, broker.limit, body, want)
	}
	if _, _, body := do(handler, "GET", "/v1/topics/reminders/delayed?limit=1"); strings.Count(body, `"id"`) != 1 {
		t.Errorf("with limit=1: %s", body)
	}
	if status, _, body := do(handler, "DELETE", "/v1/topics/reminders/delayed/x%2Fy%20z"); status != 204 || body != "" || len(broker.waiting) != 1 {
		t.Errorf("cancel: %d %s, %v", status, body, broker.waiting)
	}
	broker.waiting = nil
	if _, _, body := do(handler, "GET", "/v1/topics/reminders/delayed"); strings.TrimSpace(body) != `{"delayed":[]}` {
		t.Errorf("none: %s", body)
	}
}

func TestProblems(t *testing.T) {
	broker := &fake{waiting: []delay.Waiting{{ID: "a"}}}
	handler := api.New(broker)
	for _, test := range []struct {
		method, path string
		err          error
		status       int
		code, detail string
	}{
		{"GET", "/v1/topics/nosuch/delayed", nil, 404, api.CodeNotFound, `topic does not exist: "nosuch"`},
		{"DELETE", "/v1/topics/reminders/delayed/b", nil, 404, api.CodeNotFound, `delayed record "b": not found`},
		{"GET", "/v1/topics/reminders/delayed?limit=0", nil, 422, api.CodeInvalid, "limit: "},
		{"GET", "/v1/topics/reminders/delayed?limit=1001", nil, 422, api.CodeInvalid, "limit: "},
		{"GET", "/v1/topics/reminders/delayed?nosuch=1", nil, 422, api.CodeInvalid, "nosuch"},
		{"DELETE", "/v1/topics/reminders/delayed/" + strings.Repeat("x", 257), nil, 422, api.CodeInvalid, "id: "},
		{"POST", "/v1/topics/reminders/delayed", nil, 405, "method", "/v1/topics/reminders/delayed has only GET, HEAD"},
		{"GET", "/v1/topics/reminders/nosuch", nil, 404, api.CodeNotFound, "there is no GET /v1/topics/reminders/nosuch; see /openapi.json"},
		{"GET", "/v1/topics/reminders/delayed", topic.ErrClosed, 503, api.CodeUnavailable, "try again"},
		{"DELETE", "/v1/topics/reminders/delayed/a", errors.New("secret"), 500, api.CodeInternal, "an internal error"},
	} {
		broker.err = test.err
		status, kind, body := do(handler, test.method, test.path)
		var problem api.Problem
		if err := json.Unmarshal([]byte(body), &problem); err != nil {
			t.Errorf("%s %s: %v: %s", test.method, test.path, err, body)
		}
		if status != test.status || problem.Status != status || kind != "application/problem+json" || problem.Code != test.code || !strings.Contains(problem.Detail, test.detail) {
			t.Errorf("%s %.60s: %d %s %+v\nwant %d %s %q", test.method, test.path, status, kind, problem, test.status, test.code, test.detail)
		}
	}
}

func TestDocument(t *testing.T) {
	operations := edgetest.Read(t, api.New(&fake{})).Operations()
	for _, want := range []string{"GET /v1/topics/{topic}/delayed", "DELETE /v1/topics/{topic}/delayed/{id}", "PATCH /v1/topics/{topic}", "GET /v1/cluster"} {
		if !slices.Contains(operations, want) {
			t.Errorf("the document lacks %s", want)
		}
	}
}
