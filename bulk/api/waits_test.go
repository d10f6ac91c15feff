package api_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/bulk/engine"
)

// Workforces are of five types.
func (e *fakeEngine) Workforces(context.Context) (all []engine.Workforce, err error) {
	for i := range int64(5) {
		all = append(all, engine.Workforce{Type: fmt.Sprint("t", i), Workers: i, Here: 1, Waiting: 3, Ready: 2, InFlight: 4, Idle: i == 1})
	}
	return all, e.fail["Workforces"]
}

// TestWorkers: the pages have each type once.
func TestWorkers(t *testing.T) {
	f := newFixture(t)
	for _, limit := range []int{1, 2, 5, 1000} {
		seen := []wire.Workforce{}
		for after := new(""); after != nil; {
			page := must[wire.Workers](t)(f.connect().Workers(t.Context(), *after, limit))
			seen, after = append(seen, page.Workers...), page.Next
		}
		if want := (wire.Workforce{Type: "t1", Workers: 1, Here: 1, Waiting: 3, Ready: 2, InFlight: 4, Idle: true}); len(seen) != 5 || seen[1] != want {
			t.Errorf("limit %d: %+v", limit, seen)
		}
	}
}

// TestWaits: actions of which nothing waits are left out, and so are those that ended since.
func TestWaits(t *testing.T) {
	f := newFixture(t)
	f.engine.explanation = engine.Explanation{Reason: engine.WhyInLine, Text: "3 jobs go before it", Place: 3}
	for _, id := range []string{"a", "b", "c"} {
		f.create(id)
		f.engine.edit(id, func(a *fakeAction) {
			a.Status, a.Received, a.Pending, a.Ready, a.NonReady[0] = bulk.Running, 9, 4, 2, 1
			if id == "b" {
				a.Counts = bulk.Counts{Received: 9, InFlight: 9}
			}
		})
	}
	for _, limit := range []int{1, 2, 100} {
		var got []string
		for after := new(""); after != nil; {
			page := must[wire.WaitingActions](t)(f.connect().Waits(t.Context(), "acme", *after, limit))
			for _, w := range page.Waits {
				if got = append(got, w.Job.Action); w.Waiting != 7 || *w.Job.Reason != "in_line" || w.Tenant != "acme" {
					t.Errorf("%+v", w)
				}
			}
			after = page.Next
		}
		if fmt.Sprint(got) != "[a c]" {
			t.Errorf("limit %d: %v wait", limit, got)
		}
	}
	if page := must[wire.WaitingActions](t)(f.connect().Waits(t.Context(), "other", "", 0)); len(page.Waits) > 0 {
		t.Errorf("of another tenant: %+v", page)
	}
	f.do(422, "GET", "/v1/waits?limit=101", "")
}

// TestStreams: the list has the streams alone.
func TestStreams(t *testing.T) {
	f := newFixture(t)
	f.create("a")
	f.create("s")
	f.engine.edit("s", func(a *fakeAction) { a.Stream = true })
	var page wire.Actions
	f.read(f.do(200, "GET", "/v1/streams", ""), &page)
	if len(page.Actions) != 1 || page.Actions[0].ID != "s" {
		t.Errorf("%+v", page.Actions)
	}
}
