package web

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/engine"
)

func TestSchedulesAndActsOnThem(t *testing.T) {
	nightly := bulk.Schedule{Name: "nightly", Cron: "0 3 * * *", TimeZone: "Asia/Seoul", Spec: bulk.Spec{Tenant: hostile, Type: "report"}, Overlap: bulk.OverlapSkip,
		NextRunAt: time.Now().Add(3 * time.Hour), LastRunAt: time.Now().Add(-21 * time.Hour), LastAction: "nightly:1", LastError: "the store is full"}
	for i := range maxJobs + 2 {
		nightly.Jobs = append(nightly.Jobs, fmt.Appendf(nil, "job %d;", i))
	}
	paused := bulk.Schedule{Name: "paused", Cron: "@hourly", Paused: true}
	f := &fakeBulk{planned: []bulk.Schedule{nightly, paused}}
	d := newTest(t, Options{Bulk: f})
	says(t, text(t, d, "/ui/bulk/schedules"), "nightly 0 3 * * * Asia/Seoul "+hostile+" report in 3 h 21 h ago the store is full Pause nightly Run now nightly", "paused @hourly paused", "Resume paused Run now paused")
	page := text(t, d, "/ui/bulk/schedule?name=nightly")
	says(t, page, "the store is full", "skip the run", "nightly:1", "job 9;", "2 more", "Pause", "Run now", "Remove")
	if strings.Contains(page, "job 10;") || strings.Contains(page, "Resume") {
		t.Errorf("the page says too much: %s", page)
	}
	says(t, text(t, d, "/ui/bulk/schedule?name=paused"), "paused", "Resume")
	if w := ask(d, "GET", "/ui/bulk/schedule?name=none", ""); w.Code != http.StatusNotFound {
		t.Errorf("a schedule that does not exist: %d", w.Code)
	}
	for verb, asks := range map[string]string{
		"pause": "starts no run until it is resumed", "resume": "starts runs again", "run": "starts a run now, with 12 jobs", "remove": "This cannot be undone",
	} {
		f.did = nil
		says(t, text(t, d, "/ui/act?do="+verb+"_schedule&name=nightly"), asks)
		w := ask(d, "POST", "/ui/act", "do="+verb+"_schedule&name=nightly")
		if w.Code != http.StatusSeeOther || strings.Join(f.did, ", ") != verb+" nightly" {
			t.Errorf("%s: %d %v", verb, w.Code, f.did)
		}
	}
	f.err = &bulk.UnfinishedError{Schedule: "nightly", Action: "nightly:1"}
	if w := ask(d, "POST", "/ui/act", "do=run_schedule&name=nightly"); w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), "has not finished") {
		t.Errorf("a run that may not overlap: %d %s", w.Code, w.Body)
	}
}

func TestWorkersByType(t *testing.T) {
	f := &fakeBulk{forces: []engine.Workforce{
		{Type: "mail", Workers: 5, Here: 2, InFlight: 4, Ready: 1, Waiting: 1000}, {Type: "report", Waiting: 7}, {Type: "zip", Ready: 3, Workers: 1, Idle: true},
	}}
	d := newTest(t, Options{Bulk: f})
	says(t, text(t, d, "/ui/bulk/workers"), "mail at work 5 2 4 1 1,000", "report no worker 0 0 0 0 7", "zip nobody asks for jobs 1")
}
