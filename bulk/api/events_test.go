package api_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

// An event says of an action what the API answers of it, but for the estimate.
func TestEventsSayWhatTheAPIAnswers(t *testing.T) {
	counts := bulk.Counts{
		Received: 28, Pending: 1, Ready: 2, NonReady: [4]int64{1, 2, 3}, InFlight: 4, Succeeded: 5, Failed: 6, Canceled: 4, Throttled: 8, Retried: 9,
	}
	for name, edit := range map[string]func(*fakeAction){
		"new": func(*fakeAction) {},
		"running": func(a *fakeAction) {
			a.Spec.RunAt, a.Spec.Target, a.Spec.Type, a.Class = start, &bulk.Target{Name: "n", URL: "http://u:p@n/?a&b=<c>"}, "webhook", bulk.High
			a.Status, a.Paused, a.Total, a.EnteredAt, a.Counts = bulk.Running, true, 28, start, counts
			a.Action.Result = map[string]json.RawMessage{"early": json.RawMessage("1")}
		},
		"completed": func(a *fakeAction) {
			a.Status, a.EnteredAt, a.FinishedAt = bulk.Completed, start, start.Add(time.Hour)
			a.Action.Result = map[string]json.RawMessage{"count": json.RawMessage("1"), "sum:x": json.RawMessage(`"1.50"`)}
		},
		"completed without aggregates": func(a *fakeAction) { a.Status, a.FinishedAt = bulk.Completed, start },
		"failed":                       func(a *fakeAction) { a.Status, a.FinishedAt, a.Error = bulk.Failed, start, "why <not>" },
		"canceled":                     func(a *fakeAction) { a.Status, a.Counts = bulk.Canceled, counts },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.create("a")
			var event bulk.Event
			f.engine.edit("a", func(a *fakeAction) {
				edit(a)
				var err error
				if event, err = a.Action.Event(bulk.ActionRunning, start); err != nil {
					t.Fatal(err)
				}
			})
			var answered, said map[string]any
			if err := json.Unmarshal(f.do(200, "GET", "/v1/actions/a", "").Body.Bytes(), &answered); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(event.Data, &said); err != nil {
				t.Fatal(err)
			}
			delete(answered, "estimated_finish_at")
			if !reflect.DeepEqual(answered, said) {
				t.Errorf("the event says\n%v\nthe API answers\n%v", said, answered)
			}
		})
	}
}

func TestCreateWithEvents(t *testing.T) {
	f := newFixture(t)
	f.do(201, "POST", "/v1/actions", `{"tenant":"t","type":"echo","events":["actions","jobs"]}`)
	f.do(201, "POST", "/v1/actions", `{"tenant":"t","type":"echo","events":["actions"]}`)
	f.do(201, "POST", "/v1/actions", `{"tenant":"t","type":"echo","events":[]}`)
	var asked []bool
	for _, a := range f.engine.actions {
		asked = append(asked, a.JobEvents())
	}
	if !reflect.DeepEqual(asked, []bool{true, false, false}) {
		t.Errorf("events of jobs are asked for: %v, want the first only", asked)
	}
}

// When the outbox is full, the answer says what can be done.
func TestFullOutbox(t *testing.T) {
	f := newFixture(t)
	f.engine.fail["Create"] = bulk.ErrFull
	a := f.do(507, "POST", "/v1/actions", `{"tenant":"t","type":"echo"}`)
	if !strings.Contains(a.problem.Detail, "events cannot be published") {
		t.Errorf("%+v", a.problem)
	}
}
