package engine_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/bulk"
)

// TestCloudEvent checks the exact encoding.
func TestCloudEvent(t *testing.T) {
	at := time.Date(2026, 11, 21, 11, 13, 19, 354_000_000, time.FixedZone("CET", 3600))
	result := bulk.JobResult{
		Action: "a-1", Tenant: "acme <&>", Index: 7, Succeeded: true, Attempts: 2, Result: []byte(`{"b": 1.0, "a": "<"}`), FinishedAt: at,
	}
	event, err := result.Event()
	if err != nil {
		t.Fatal(err)
	}
	event.ID = "k2j5-12"
	got, err := event.CloudEvent()
	want := `{"specversion":"1.0","id":"k2j5-12","source":"/sluice/bulk","type":"io.sluice.bulk.job.succeeded","subject":"a-1-7",` +
		`"time":"2026-11-21T10:13:19.354Z","datacontenttype":"application/json","partitionkey":"a-1","tenant":"acme <&>",` +
		`"data":{"id":"a-1-7","action":"a-1","tenant":"acme <&>","index":7,"status":"succeeded","attempts":2,"result":{"b":1.0,"a":"<"},` +
		`"error":"","finished_at":"2026-11-21T10:13:19.354Z"}}`
	if err != nil || string(got) != want {
		t.Errorf("error %v, got\n%s, want\n%s", err, got, want)
	}
	event.Data = []byte("{")
	if _, err := event.CloudEvent(); err == nil {
		t.Error("data that is not JSON was written")
	}
}

// TestEventsAreBounded checks that no event exceeds its bound.
func TestEventsAreBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		filler := rapid.SampledFrom([]string{"x", "<", "\x01", "\xff", `"`, "ü", "\u2028"}).Draw(t, "of")
		long := func(name string, most int) string {
			return strings.Repeat(filler, rapid.SampledFrom([]int{0, 1, most / len(filler)}).Draw(t, name))
		}
		tenant := strings.Repeat("<", 256)
		result := bulk.JobResult{
			Action: strings.Repeat("a", 128), Tenant: tenant, Index: 1 << 31, Succeeded: rapid.Bool().Draw(t, "succeeded"),
			Result: []byte(long("result", bulk.MaxEventResult)), Error: long("error", bulk.MaxErrorBytes),
		}
		action := bulk.Action{
			Spec: bulk.Spec{
				ID: result.Action, Tenant: tenant, Type: strings.Repeat("t", 128),
				Target: &bulk.Target{Name: tenant, URL: "http://x/" + long("url", 20_000)},
			},
			Status: rapid.SampledFrom([]bulk.Status{bulk.Running, bulk.Completed, bulk.Failed}).Draw(t, "status"),
			Error:  long("error of the action", 20_000), Result: map[string]json.RawMessage{},
		}
		for i := range rapid.IntRange(0, 32).Draw(t, "aggregates") {
			text, err := json.Marshal(long("value", 10_000))
			if err != nil {
				t.Fatal(err)
			}
			action.Result[fmt.Sprint("custom-", i)] = text
		}
		ofJob, err := result.Event()
		if err != nil {
			t.Fatal(err)
		}
		ofAction, err := action.Event(bulk.ActionCompleted, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range []bulk.Event{ofJob, ofAction} {
			line, err := e.CloudEvent()
			if err != nil || len(line) > bulk.MaxEventBytes || !json.Valid(line) {
				t.Fatalf("%s: %d bytes, error %v: want at most %d of JSON", e.Type, len(line), err, bulk.MaxEventBytes)
			}
		}
	})
}

// TestALongResultOfAnAction checks that results that are too long together are omitted and
// marked.
func TestALongResultOfAnAction(t *testing.T) {
	for _, c := range []struct {
		bytes     int
		truncated bool
	}{{bulk.MaxEventResult - len("x"), false}, {bulk.MaxEventResult, true}} {
		a := bulk.Action{Status: bulk.Completed, Result: map[string]json.RawMessage{"x": []byte(strings.Repeat("1", c.bytes))}}
		e, err := a.Event(bulk.ActionCompleted, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		var data struct {
			Result    map[string]json.RawMessage `json:"result"`
			Truncated bool                       `json:"result_truncated"`
		}
		if err := json.Unmarshal(e.Data, &data); err != nil || data.Truncated != c.truncated || (len(data.Result) == 0) != c.truncated {
			t.Errorf("%d bytes: truncated %v, %d results, error %v", c.bytes, data.Truncated, len(data.Result), err)
		}
	}
}

// TestEveryMoveTellsWhatItChanged checks that an action has one event of each state, for any
// order of transitions.
func TestEveryMoveTellsWhatItChanged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := bulk.Action{Status: bulk.Created}
		for range rapid.IntRange(1, 30).Draw(t, "moves") {
			transition := bulk.Transition{Kind: bulk.TransitionKind(rapid.IntRange(int(bulk.Seal), int(bulk.Forget)).Draw(t, "kind"))}
			next, err := a.Apply(transition, time.Now())
			if err != nil {
				continue
			}
			changed := next.Status != a.Status || next.Paused != a.Paused && transition.Kind != bulk.Cancel || transition.Kind == bulk.Drained
			if told := transition.EventType(&a, &next); (told != "") != changed {
				t.Fatalf("transition %d from %s, paused %v, to %s, paused %v, tells %q", transition.Kind, a.Status, a.Paused, next.Status, next.Paused, told)
			}
			a = next
		}
	})
}
