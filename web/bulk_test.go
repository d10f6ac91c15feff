package web

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/engine"
)

// fakeBulk has some actions, in the order of their creation.
type fakeBulk struct {
	Bulk
	actions  []bulk.Action
	looked   int
	letters  []bulk.DeadLetter
	why      engine.Explanation
	settings bulk.Settings
	rate     float64
	stored   map[string]bulk.Stored
	load     engine.FoundLoad
	forces   []engine.Workforce
	planned  []bulk.Schedule
	changed  engine.Changed
	did      []string
	err      error
}

func (f *fakeBulk) Action(_ context.Context, id string) (bulk.Action, error) {
	for _, a := range f.actions {
		if a.ID == id {
			return a, nil
		}
	}
	return bulk.Action{}, bulk.ErrNotFound
}

func (f *fakeBulk) Actions(_ context.Context, filter bulk.ActionFilter) (page []bulk.Action, err error) {
	past, looked := filter.After == "", 0
	for _, a := range f.actions {
		if past && (!filter.Unfinished || !a.Status.Final()) {
			looked++
			if f.looked++; filter.Matches(&a) {
				page = append(page, a)
			}
			switch {
			case filter.Limit > 0 && len(page) == filter.Limit:
				return page, nil
			case looked == filter.Look:
				return page, &bulk.LookError{After: a.ID}
			}
		}
		past = past || a.ID == filter.After
	}
	return page, nil
}

func (f *fakeBulk) DeadLetters(_ context.Context, id string, from int64, limit int) (page []bulk.DeadLetter, err error) {
	for _, l := range f.letters {
		if l.Index >= from && len(page) < limit && (l.Action == "" || l.Action == id) {
			page = append(page, l)
		}
	}
	return page, nil
}

func (f *fakeBulk) Why(context.Context, string, int64) (engine.Explanation, error) { return f.why, nil }
func (f *fakeBulk) EstimatedFinish(string) time.Time                               { return time.Time{} }
func (f *fakeBulk) Settings(context.Context) (bulk.Settings, error)                { return f.settings, nil }
func (f *fakeBulk) FoundRate(context.Context, string) (float64, error)             { return f.rate, nil }
func (f *fakeBulk) StoredOf(context.Context, []string) (map[string]bulk.Stored, error) {
	return f.stored, f.err
}
func (f *fakeBulk) FoundLoad(string) engine.FoundLoad { return f.load }

func (f *fakeBulk) act(verb, id string) (bulk.Action, error) {
	f.did = append(f.did, verb+" "+id)
	return bulk.Action{}, f.err
}

func (f *fakeBulk) Pause(_ context.Context, id string) (bulk.Action, error) {
	return f.act("pause", id)
}
func (f *fakeBulk) Resume(_ context.Context, id string) (bulk.Action, error) {
	return f.act("resume", id)
}
func (f *fakeBulk) Cancel(_ context.Context, id string) (bulk.Action, error) {
	return f.act("cancel", id)
}

func (f *fakeBulk) Replay(_ context.Context, id string, _ bulk.FailureFilter) (bulk.Action, error) {
	return f.act("replay", id)
}

func (f *fakeBulk) Change(_ context.Context, c engine.Change) (engine.Changed, error) {
	if !c.DryRun {
		f.did = append(f.did, fmt.Sprintf("%s of %s%s %s %s", c.Do, c.Tenant, c.Callee, c.Only.Cause, c.Only.Since.Format("01-02T15:04")))
	}
	return f.changed, f.err
}

func (f *fakeBulk) Workforces(context.Context) ([]engine.Workforce, error) { return f.forces, nil }
func (f *fakeBulk) Schedules(context.Context) ([]bulk.Schedule, error)     { return f.planned, nil }

func (f *fakeBulk) Schedule(_ context.Context, name string) (bulk.Schedule, error) {
	for _, s := range f.planned {
		if s.Name == name {
			return s, nil
		}
	}
	return bulk.Schedule{}, bulk.ErrNoSchedule
}

func (f *fakeBulk) actSchedule(verb, name string) (bulk.Schedule, error) {
	_, err := f.act(verb, name)
	return bulk.Schedule{}, err
}

func (f *fakeBulk) PauseSchedule(_ context.Context, name string) (bulk.Schedule, error) {
	return f.actSchedule("pause", name)
}

func (f *fakeBulk) ResumeSchedule(_ context.Context, name string) (bulk.Schedule, error) {
	return f.actSchedule("resume", name)
}
func (f *fakeBulk) RunNow(_ context.Context, name string) (bulk.Action, error) {
	return f.act("run", name)
}

func (f *fakeBulk) RemoveSchedule(_ context.Context, name string) error {
	_, err := f.act("remove", name)
	return err
}

// many returns actions of which every hundredth has not finished.
func many(n int) []bulk.Action {
	actions := make([]bulk.Action, n)
	for i := range actions {
		actions[i] = bulk.Action{Spec: bulk.Spec{ID: fmt.Sprintf("a%05d", i), Tenant: "acme", Type: "mail"}, Status: bulk.Completed}
		if i%100 == 0 {
			actions[i].Status = bulk.Running
		}
	}
	return actions
}

// A page of a list shows and reads a bounded part, and leads to the rest.
func TestActionsArePaged(t *testing.T) {
	f := &fakeBulk{actions: many(25_000)}
	d := newTest(t, Options{Bulk: f})
	for _, test := range []struct {
		query             string
		shown, pages, max int
	}{
		{"", 250, 5, 6 * pageSize},
		{"?status=RUNNING", 250, 5, 6 * pageSize},
		{"?status=&tenant=acme&type=none", 0, 3, 3 * maxScan},
		{"?status=FAILED", 0, 3, 3 * maxScan},
	} {
		f.looked = 0
		shown, pages, target := 0, 0, "/ui/bulk"+test.query
		for target != "" && pages < 100 {
			w := ask(d, "GET", target, "")
			if w.Code != http.StatusOK {
				t.Fatalf("%s: %d %s", target, w.Code, w.Body)
			}
			rows := strings.Count(w.Body.String(), `<a href="/ui/bulk/action?name=a`)
			if rows > pageSize {
				t.Errorf("%s shows %d actions", target, rows)
			}
			shown, pages, target = shown+rows, pages+1, nextOf(w.Body.String())
		}
		if shown != test.shown || f.looked > test.max {
			t.Errorf("%q: %d pages show %d actions and look at %d; want %d, and at most %d", test.query, pages, shown, f.looked, test.shown, test.max)
		}
	}
}

// nextOf returns where the link to the next page leads; "" if there is none.
func nextOf(page string) string {
	before, _, found := strings.Cut(page, ">Next page</a>")
	if !found {
		return ""
	}
	link := before[strings.LastIndex(before, `href="?`)+len(`href="`):]
	return "/ui/bulk" + strings.ReplaceAll(strings.TrimSuffix(link, `"`), "&amp;", "&")
}

func TestActionShowsItsCountsWhyItWaitsAndItsFailures(t *testing.T) {
	a := bulk.Action{Spec: bulk.Spec{ID: "invoices", Tenant: hostile, Target: &bulk.Target{Name: "mail", URL: "https://user:secret@mail.example/x"}}, Status: bulk.Running, Total: 2000,
		Counts: bulk.Counts{Received: 2000, Succeeded: 1200, Failed: 60, InFlight: 40, Ready: 100, Pending: 593, NonReady: [4]int64{0, 7, 0, 0}}}
	f := &fakeBulk{actions: []bulk.Action{a}, why: engine.Explanation{Reason: engine.WhyTenantLimit, Text: "the limit is 5 a second"}}
	for i := range 60 {
		f.letters = append(f.letters, bulk.DeadLetter{Index: int64(i), Payload: []byte(hostile), Error: hostile})
	}
	f.letters[1].Payload = []byte{0xff, 0}
	d := newTest(t, Options{Bulk: f})
	page := text(t, d, "/ui/bulk/action?name=invoices")
	says(t, page, "2,000 received = 1,200 succeeded + 60 failed + 0 canceled + 40 in flight + 100 ready + 593 in line + 0 rate limited + 7 throttled by the target",
		"63 %: 1,260 of 2,000 jobs are done", "limit of the tenant the limit is 5 a second", hostile, "/wA= base64", "Next page")
	for _, never := range []string{"secret", "Resume"} {
		if strings.Contains(page, never) {
			t.Errorf("the page says %q", never)
		}
	}
	if raw := ask(d, "GET", "/ui/bulk/action?name=invoices", "").Body.String(); strings.Contains(raw, "<b onload") {
		t.Error("a name is markup")
	}
	says(t, text(t, d, "/ui/bulk/action?name=invoices&lang=ko"), "테넌트 한도")
	if w := ask(d, "GET", "/ui/bulk/action?name=none", ""); w.Code != http.StatusNotFound {
		t.Errorf("an action that does not exist: %d", w.Code)
	}
}

func TestTenantsAndTargets(t *testing.T) {
	f := &fakeBulk{rate: 12.5, stored: map[string]bulk.Stored{hostile: {Actions: 4, Jobs: 20, Bytes: 1 << 20}}, load: engine.FoundLoad{Concurrency: 9, DownSince: time.Now().Add(-72 * time.Hour)}, settings: bulk.Settings{
		Tenants: map[string]bulk.Tenant{hostile: {Weight: 3, RequestsPerSecond: 50, MaxActions: 5, MaxJobs: 1000, MaxBytes: 1 << 30}},
		Targets: map[string]bulk.TargetLimits{"mail": {Auto: true, URLPrefix: "https://mail.example/", Secrets: []string{"whsec_secret"}}},
	}}
	metrics := newFixture()
	metrics.jobs.WithLabelValues("acme", "succeeded").Add(10)
	d := newTest(t, Options{Bulk: f, Metrics: metrics.registry})
	says(t, text(t, d, "/ui/bulk/tenants"), hostile+" – 0 3 50 – actions: 4 jobs: 20 1 MiB actions: 5 jobs: 1,000 1 GiB", "acme – 0 1 – – – –")
	f.stored, f.err = nil, bulk.ErrUnavailable // they are shown without
	says(t, text(t, d, "/ui/bulk/tenants"), hostile+" – 0 3 50 – – actions: 5")
	f.err = bulk.ErrBroken
	if w := ask(d, "GET", "/ui/bulk/tenants", ""); w.Code < 500 {
		t.Errorf("a store that is broken: %d", w.Code)
	}
	f.err = nil
	page := text(t, d, "/ui/bulk/targets")
	says(t, page, "mail down for 3 d 13 found 9 found https://mail.example/")
	if strings.Contains(page, "whsec") {
		t.Error("a secret is shown")
	}
}

// An act says what it does, and needs a POST of the dashboard's own page.
func TestActsOnActions(t *testing.T) {
	a := bulk.Action{Spec: bulk.Spec{ID: "invoices", Tenant: "acme"}, Status: bulk.Running, Counts: bulk.Counts{Pending: 5, InFlight: 2}}
	f := &fakeBulk{actions: []bulk.Action{a}}
	d := newTest(t, Options{Bulk: f})
	says(t, text(t, d, "/ui/act?do=cancel_action&name=invoices"), "5 jobs that wait never start, and 2 in flight are told to end")
	form := url.Values{"do": {"cancel_action"}, "name": {"invoices"}}.Encode()
	for _, refused := range []struct {
		method, body string
		headers      []string
	}{
		{"POST", form, []string{"Sec-Fetch-Site", "cross-site"}},
		{"POST", form, []string{"Sec-Fetch-Site", "same-site"}},
		{"POST", form, []string{"Origin", "https://evil.example"}},
		{"PUT", form, nil},
		{"GET", "", nil},
	} {
		ask(d, refused.method, "/ui/act?"+form, refused.body, refused.headers...)
		if len(f.did) > 0 {
			t.Errorf("%+v: %v", refused, f.did)
		}
	}
	for _, verb := range []string{"cancel", "pause", "resume"} {
		f.did = nil
		w := ask(d, "POST", "/ui/act", "do="+verb+"_action&name=invoices", "Sec-Fetch-Site", "same-origin")
		if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/ui/bulk/action?name=invoices" || len(f.did) != 1 || f.did[0] != verb+" invoices" {
			t.Errorf("%s: %d %v %v", verb, w.Code, w.Header(), f.did)
		}
	}
	f.err = &bulk.TransitionError{ID: "invoices", Why: "too late", From: bulk.Completed}
	if w := ask(d, "POST", "/ui/act", form); w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), "too late") {
		t.Errorf("a refused act: %d %s", w.Code, w.Body)
	}
	if w := ask(newTest(t, Options{}), "POST", "/ui/act", form); w.Code != http.StatusNotFound {
		t.Errorf("an act on a part that is off: %d", w.Code)
	}
}
