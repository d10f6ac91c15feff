package api_test

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/bulk/engine"
)

// Change records what was asked.
func (e *fakeEngine) Change(_ context.Context, c engine.Change) (engine.Changed, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.changes = append(e.changes, c)
	return engine.Changed{Matched: 3, Changed: 2, Jobs: 7, Next: c.After + "x"}, cmp.Or(e.fail["Change"])
}

func TestClientChange(t *testing.T) {
	f := newFixture(t)
	ask := wire.Change{
		Do: "cancel", Tenant: "acme", Type: "webhook", Target: "shop", Status: "RUNNING", DryRun: true, After: "1/a", Limit: 5,
	}
	got := must[wire.Changed](t)(f.connect().Change(t.Context(), ask))
	if got.Matched != 3 || got.Changed != 2 || got.Jobs != 7 || *got.Next != "1/ax" {
		t.Errorf("got %+v", got)
	}
	want := engine.Change{
		Do: engine.DoCancel, Tenant: "acme", Type: "webhook", Target: "shop", Status: bulk.Running, DryRun: true, After: "1/a", Limit: 5,
	}
	if f.engine.changes[0] != want {
		t.Errorf("asked %+v, want %+v", f.engine.changes[0], want)
	}
}

// changes makes a change over HTTP, page by page, and returns the sums and the number of pages.
func (f *fixture) changes(body string) (sum wire.Changed, pages int) {
	f.Helper()
	after := ""
	for {
		var page wire.Changed
		f.read(f.do(200, "POST", "/v1/changes", strings.Replace(body, "}", `,"after":"`+after+`"}`, 1)), &page)
		sum.Matched, sum.Changed, sum.Jobs = sum.Matched+page.Matched, sum.Changed+page.Changed, sum.Jobs+page.Jobs
		if pages++; page.Next == nil {
			return sum, pages
		}
		after = *page.Next
	}
}

func (f *fixture) wantChanges(body string, matched, changed int, jobs int64) {
	f.Helper()
	got, _ := f.changes(body)
	if got.Matched != matched || got.Changed != changed || got.Jobs != jobs {
		f.Errorf("%s: %+v, want %d matched, %d changed, %d jobs", body, got, matched, changed, jobs)
	}
}

// TestChanges changes actions of a real engine over HTTP.
func TestChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mux := bulk.NewMux()
		failing := true
		mux.HandleFunc("send", func(context.Context, *bulk.Job) ([]byte, error) {
			if failing {
				return nil, bulk.SkipRetry
			}
			return nil, nil
		})
		f, engine := live(t, bulk.Config{RequestsPerSecond: -1}, mux)
		engine.Timeout = 2 * time.Hour
		later := time.Now().Add(time.Hour)
		for i := range 40 {
			spec := bulk.Spec{ID: fmt.Sprint("a", i), Tenant: []string{"even", "odd"}[i%2], Type: "send", RunAt: later}
			if i%4 == 0 {
				spec.Type, spec.Target = "", &bulk.Target{Name: "shop", URL: "http://shop"}
			}
			engine.Submit(t, spec, 1, 2, 3)
		}
		f.wantChanges(`{"do":"pause","tenant":"nobody"}`, 0, 0, 0)
		f.wantChanges(`{"do":"pause","target":"shop","dry_run":true}`, 10, 10, 30)
		f.wantChanges(`{"do":"pause","tenant":"odd","type":"send","status":"DISPATCHED"}`, 20, 20, 60)
		f.wantChanges(`{"do":"pause","tenant":"odd"}`, 20, 0, 0)
		f.wantChanges(`{"do":"resume","all":true}`, 40, 20, 60)
		if sum, pages := f.changes(`{"do":"pause","type":"send","limit":7}`); sum.Changed != 30 || pages != 5 {
			t.Errorf("%+v in %d pages, want 30 in 5", sum, pages)
		}
		f.wantChanges(`{"do":"cancel","target":"shop"}`, 10, 10, 30)
		f.wantChanges(`{"do":"cancel","target":"shop"}`, 0, 0, 0)
		f.wantChanges(`{"do":"resume","type":"send"}`, 30, 30, 90)
		f.wantChanges(`{"do":"replay","all":true}`, 10, 0, 0)

		for i := range 40 {
			engine.Wait(t, fmt.Sprint("a", i))
		}
		f.wantChanges(`{"do":"replay","tenant":"even","dry_run":true}`, 20, 10, 30)
		f.wantChanges(`{"do":"replay","action":"a2","error":"RETRIED","dry_run":true}`, 1, 1, 3)
		f.wantChanges(`{"do":"replay","cause":"5xx"}`, 30, 0, 0)
		f.wantChanges(`{"do":"replay","tenant":"even","type":"send","limit":3}`, 10, 10, 30)
		f.wantChanges(`{"do":"replay","tenant":"odd","status":"FAILED"}`, 0, 0, 0)
		f.wantChanges(`{"do":"cancel","status":"COMPLETED"}`, 0, 0, 0)
	})
}

// TestReplaysAreNotReplayed: actions that a run of replays creates are not part of it, though
// their jobs fail while it goes on.
func TestReplaysAreNotReplayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mux := bulk.NewMux()
		mux.HandleFunc("send", func(context.Context, *bulk.Job) ([]byte, error) { return nil, bulk.SkipRetry })
		f, engine := live(t, bulk.Config{RequestsPerSecond: -1}, mux)
		for i := range 5 {
			engine.Submit(t, bulk.Spec{ID: fmt.Sprint("a", i), Tenant: "acme", Type: "send"}, 1)
			engine.Wait(t, fmt.Sprint("a", i))
		}
		replayed, after := 0, ""
		for pages := 0; pages == 0 || after != ""; pages++ {
			var page wire.Changed
			f.read(f.do(200, "POST", "/v1/changes", `{"do":"replay","all":true,"limit":1,"after":"`+after+`"}`), &page)
			<-time.After(time.Second)
			if replayed += page.Changed; replayed > 5 {
				t.Fatal("a replay was replayed")
			}
			if after = ""; page.Next != nil {
				after = *page.Next
			}
		}
		if replayed != 5 {
			t.Errorf("%d actions were replayed, want 5", replayed)
		}
	})
}

func TestChangesThatAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := live(t, bulk.Config{}, bulk.NewMux())
		for body, field := range map[string]string{
			`{"do":"pause"}`:                           "all",
			`{"do":"pause","tenant":"a","all":true}`:   "all",
			`{"do":"stop","tenant":"a"}`:               "do",
			`{"do":"pause","tenant":"a","limit":1001}`: "limit",
			`{"do":"pause","all":true,"after":"a"}`:    "after",
			`{"do":"pause","all":true,"after":"1/a"}`:  "after",
			`{"do":"pause","status":"running"}`:        "status",
			`{"do":"pause","cause":"5xx"}`:             "do",
			`{"do":"replay","cause":"5xx","all":true}`: "all",
			`{"do":"replay","cause":"60"}`:             "cause",
		} {
			a := f.do(422, "POST", "/v1/changes", body)
			if len(a.problem.Errors) != 1 || a.problem.Errors[0].Field != field {
				t.Errorf("%s: %+v, want a refusal of %s", body, a.problem, field)
			}
		}
	})
}
