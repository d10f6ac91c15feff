package web

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/engine"
)

var failedAt = time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)

// failedActions returns actions with failures, and a letter for each: every fifth action has three, and the others none.
func failedActions(n int) *fakeBulk {
	f := &fakeBulk{}
	for i := range n {
		a := bulk.Action{Spec: bulk.Spec{ID: fmt.Sprintf("a%05d", i), Tenant: []string{"acme", hostile}[i%2], Type: "mail"}, Status: bulk.Completed}
		if i%5 == 0 {
			a.Failed = 3
			for job := range int64(3) {
				f.letters = append(f.letters, bulk.DeadLetter{Action: a.ID, Index: job, Payload: []byte(hostile), Error: "target a:80 answered 503 " + []string{"early", "late"}[min(job, 1)], FailedAt: failedAt.Add(time.Duration(job) * time.Hour)})
			}
		}
		a.FinishedAt = failedAt.AddDate(0, 0, 1)
		f.actions = append(f.actions, a)
	}
	return f
}

// The pages together have each dead letter once, and each reads a bounded part.
func TestDeadLettersOfAllActions(t *testing.T) {
	f := failedActions(5000)
	d := newTest(t, Options{Bulk: f})
	for _, test := range []struct {
		query string
		shown int
	}{
		{"", 3000}, {"?tenant=acme", 1500}, {"?type=none", 0}, {"?tenant=acme&cause=5xx&error=LATE", 1000}, {"?cause=timeout", 0},
		{"?since=2026-01-02T04:00&until=2026-01-02T05:00", 1000},
	} {
		seen := map[string]bool{}
		target := "/ui/bulk/failures" + test.query
		for pages := 0; target != "" && pages < 100; pages++ {
			f.looked = 0
			page := ask(d, "GET", target, "").Body.String()
			for _, row := range strings.Split(page, `<a href="/ui/bulk/action?name=`)[1:] {
				id, rest, _ := strings.Cut(row, `"`)
				index, _, _ := strings.Cut(rest[strings.Index(rest, `<td class="n">`)+len(`<td class="n">`):], "<")
				if seen[id+index] {
					t.Fatalf("%s shows job %s of %s again", target, index, id)
				}
				seen[id+index] = true
			}
			if f.looked > engine.MaxLetterActions {
				t.Fatalf("%s looks at %d actions", target, f.looked)
			}
			target = strings.Replace(nextOf(page), "/ui/bulk", "/ui/bulk/failures", 1)
		}
		if len(seen) != test.shown {
			t.Errorf("%q: %d dead letters, want %d", test.query, len(seen), test.shown)
		}
	}
	for _, query := range []string{"after=x", "cause=56x", "since=yesterday", "since=2026-01-02T04:00&until=2026-01-02T03:00"} {
		if w := ask(d, "GET", "/ui/bulk/failures?"+query, ""); w.Code != http.StatusBadRequest {
			t.Errorf("%s: %d", query, w.Code)
		}
	}
	links := strings.Count(ask(d, "GET", "/ui/bulk/failures?tenant=acme&cause=5xx", "").Body.String(), "do=replay_action")
	actions := map[string]bool{}
	for _, row := range strings.Split(ask(d, "GET", "/ui/bulk/failures?tenant=acme&cause=5xx", "").Body.String(), `href="/ui/bulk/action?name=`)[1:] {
		id, _, _ := strings.Cut(row, `"`)
		actions[id] = true
	}
	if links != len(actions) || links == 0 {
		t.Errorf("%d links replay the %d actions of the page, want one for each", links, len(actions))
	}
	says(t, text(t, d, "/ui/bulk/failures?tenant="+url.QueryEscape(hostile)), hostile, "503", "Run all failures that match again")
	if page := text(t, d, "/ui/bulk/failures"); strings.Contains(page, "Run all failures") {
		t.Error("the failures of all tenants can be replayed at once")
	}
}

// Asking for a replay counts what would run, and changes nothing.
func TestReplayAsksWithACount(t *testing.T) {
	f := failedActions(6)
	f.changed = engine.Changed{Changed: 2, Jobs: 7}
	d := newTest(t, Options{Bulk: f})
	says(t, text(t, d, "/ui/bulk/action?name=a00000"), "Run the failures again")
	if page := text(t, d, "/ui/bulk/action?name=a00001"); strings.Contains(page, "Run the failures again") {
		t.Error("an action without failures can be replayed")
	}
	says(t, text(t, d, "/ui/act?do=replay_action&name=a00000"), "The failures of action a00000 of tenant acme run again: 7 jobs")
	const found = "cause=5xx&since=2026-01-02T03%3A00&tenant=acme"
	link := "/ui/act?do=replay_found&name=" + url.QueryEscape(found)
	if page := ask(d, "GET", "/ui/bulk/failures?"+found, "").Body.String(); !strings.Contains(page, strings.ReplaceAll(link, "&", "&amp;")) {
		t.Errorf("the page has no link %s", link)
	}
	says(t, text(t, d, link), "(Tenant acme, Cause 5xx, From (UTC) 2026-01-02T03:00)", "Actions: 2. Jobs: 7.")
	f.changed.Next = "a00002"
	says(t, text(t, d, link), "There are more")
	f.changed = engine.Changed{}
	if w := ask(d, "GET", "/ui/act?do=replay_action&name=a00001", ""); w.Code != http.StatusConflict {
		t.Errorf("nothing to replay: %d", w.Code)
	}
	if len(f.did) > 0 {
		t.Errorf("asking has done %v", f.did)
	}
	for form, leads := range map[string]string{
		"do=replay_action&name=a00000":                   "/ui/bulk/action?name=a00000",
		"do=replay_found&name=" + url.QueryEscape(found): "/ui/bulk/failures?" + found,
	} {
		if w := ask(d, "POST", "/ui/act", form); w.Code != http.StatusSeeOther || w.Header().Get("Location") != leads {
			t.Errorf("%s: %d %v", form, w.Code, w.Header())
		}
	}
	slices.Sort(f.did)
	if got := strings.Join(f.did, ", "); got != "replay a00000, replay of acme 5xx 01-02T03:00" {
		t.Errorf("did %s", got)
	}
	f.actions[0].Replays = 2
	says(t, text(t, d, "/ui/bulk/action?name=a00000"), "Its failures run again in a00000.replay-2")
}

func TestStreamsAreAListOfTheirOwn(t *testing.T) {
	f := &fakeBulk{actions: []bulk.Action{
		{Spec: bulk.Spec{ID: "invoices"}, Status: bulk.Running}, {Spec: bulk.Spec{ID: "stream-1", Stream: true}, Status: bulk.Running},
	}}
	page := text(t, newTest(t, Options{Bulk: f}), "/ui/bulk/streams")
	if says(t, page, "stream-1"); strings.Contains(page, "invoices") {
		t.Error("an action is shown as a stream")
	}
}
