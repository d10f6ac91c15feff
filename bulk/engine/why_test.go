package engine

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/bulk"
)

// whyNow is the time of all questions; their window ends a second later.
var whyNow = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// newQuestion asks about job 7 of action 1, in a line of 100 jobs, which nothing holds back.
func newQuestion() *question {
	target := &bulk.Target{Name: "shop", URL: "http://shop/"}
	return &question{
		action: &bulk.Action{Spec: bulk.Spec{ID: "a", Tenant: "t", Type: bulk.WebhookType, Target: target}, Status: bulk.Running},
		job:    &bulk.JobState{Number: 1, Index: 7, State: bulk.StatePending, Before: 7},
		now:    whyNow, workers: 10, measured: bulk.Measured{Target: bulk.NoLimit},
		backlog: bulk.Backlog{
			Now: whyNow, WindowEnds: whyNow.Add(time.Second), Left: bulk.NoLimit,
			Lines: []bulk.Line{{
				Tenant: "t", Type: bulk.WebhookType, Settings: bulk.Tenant{}.WithDefaults(), Left: bulk.NoLimit,
				Waiting: []bulk.Waiting{{Number: 1, Jobs: 100, Target: "shop", Left: bulk.NoLimit}},
			}},
			Types: map[string]bulk.TypeState{bulk.WebhookType: {Waiting: 100}},
			Held: map[bulk.Holder]int64{
				{Tenant: "t", Type: bulk.WebhookType, Target: "shop"}: 3, {Tenant: "u", Type: bulk.WebhookType, Target: "shop"}: 5, {Tenant: "u", Type: bulk.WebhookType, Target: "other"}: 4,
				{Tenant: "v", Type: bulk.WebhookType, Target: "other"}: 9, {Tenant: "w", Type: bulk.WebhookType, Target: "other"}: 1, {Tenant: "x", Type: "echo", Target: "\x00echo"}: 20,
			},
		},
	}
}

func (q *question) line() *bulk.Line       { return &q.backlog.Lines[0] }
func (q *question) waiting() *bulk.Waiting { return &q.backlog.Lines[0].Waiting[0] }

func (q *question) typeIs(state bulk.TypeState) { q.backlog.Types[bulk.WebhookType] = state }

// whyCases change a question, and say what the answer is about: who holds it, and whether it is
// known when it ends.
var whyCases = []struct {
	reason string
	change func(q *question)
	text   string
	heldBy string
	// earliest is after whyNow; 0 is not known.
	earliest time.Duration
}{
	{WhyInLine, func(*question) {}, "7 jobs of its tenant and type go before it", "u 9, v 9, t 3", 0},
	{WhyNext, func(q *question) { q.job.Before = 0 }, "nothing holds it back", "u 9, v 9, t 3", 0},
	{WhyNext, func(q *question) { q.backlog.Lines = nil }, "nothing holds it back", "u 9, v 9, t 3", 0},
	{WhyTargetDown, func(q *question) { q.found.DownSince = whyNow; q.backlog.Left = 0 }, `"shop" has not answered since 2026-01-02T03:04:05Z`, "u 5, t 3", 0},
	{WhyNoWorker, func(q *question) { q.typeIs(bulk.TypeState{Ready: 9, Idle: true}); q.backlog.Left = 0 }, `no worker asks for jobs of type "webhook"`, "u 9, v 9, t 3", 0},
	{WhyNoWorker, func(q *question) { q.typeIs(bulk.TypeState{Ready: 9, Idle: true}); q.job.State = bulk.StateReady }, "no worker asks", "u 9, v 9, t 3", 0},
	{WhyWorkersBusy, func(q *question) { q.typeIs(bulk.TypeState{Ready: 9, InFlight: 10}); q.job.State = bulk.StateReady }, "it is ready, and starts when a worker is free: 10 jobs", "u 9, v 9, t 3", 0},
	{WhyGlobalLimit, func(q *question) { q.backlog.Left = 0; q.line().Left = 0 }, "the limit of the whole service is used up", "x 20, u 9, v 9", time.Second},
	{WhyTenantLimit, func(q *question) { q.line().Left = 0; q.waiting().Left = 0 }, `the limit of its tenant "t" is used up`, "t 3", time.Second},
	{WhyGlobalConcurrency, func(q *question) { q.backlog.Left, q.all = 0, bulk.Limit{Concurrency: 5} }, `the whole service has 42 jobs, the 5`, "x 20, u 9, v 9", 0},
	{WhyTenantConcurrency, func(q *question) { q.line().Left, q.tenant = 0, bulk.Limit{Concurrency: 3} }, `its tenant "t" has 3 jobs, the 3 that it may have`, "t 3", 0},
	{WhyTargetLimit, func(q *question) {
		q.limited, q.target = true, bulk.Limit{RequestsPerSecond: 5, Concurrency: 9}
	}, `the limit of its target "shop" is used up`, "u 5, t 3", time.Second},
	{WhyTargetLimit, func(q *question) {
		q.limited, q.target = true, bulk.Limit{RequestsPerSecond: 1}
	}, "the limit of its target", "u 5, t 3", time.Second},
	{WhyTargetConcurrency, func(q *question) {
		q.limited, q.target = true, bulk.Limit{RequestsPerSecond: 5, Concurrency: 8}
	}, `"shop" has 8 jobs, the 8 that it may have`, "u 5, t 3", 0},
	{WhyTargetConcurrency, func(q *question) { q.measured.Target, q.found.Concurrency = 0, 7 }, `"shop" has 8 jobs, about as many as it was found to take at a time (7)`, "u 5, t 3", 0},
	{WhyCongestion, func(q *question) { q.limited = true }, `its target "shop" throttles`, "u 5, t 3", time.Second},
	{WhyCongestion, func(q *question) { q.waiting().Left = 0 }, "its target throttles this tenant", "u 5, t 3", time.Second},
	{WhyLongAttempts, func(q *question) { q.measured.HeldBounds = bulk.HeldBounds{Free: new(int64(0)), Tenant: new(int64(5))} }, "kept for short ones: 0 jobs", "u 9, v 9, t 3", 0},
	{WhyLongAttempts, func(q *question) { q.measured.HeldBounds = bulk.HeldBounds{Free: new(int64(5)), Tenant: new(int64(0))} }, "hold their part", "u 9, v 9, t 3", 0},
	{WhyWorkersBusy, func(q *question) { q.typeIs(bulk.TypeState{Ready: 1}) }, `0 jobs of type "webhook" are in flight and 1 ready, for 10 workers`, "u 9, v 9, t 3", 0},
	{WhyWorkersBusy, func(q *question) { q.typeIs(bulk.TypeState{InFlight: 10}) }, "workers are busy", "u 9, v 9, t 3", 0},
	{WhyInLine, func(q *question) { q.typeIs(bulk.TypeState{InFlight: 10}); q.workers = 0 }, "7 jobs", "u 9, v 9, t 3", 0},
	{WhyPaused, func(q *question) { q.action.Paused = true }, "resume the action", "", 0},
	{WhyPaused, func(q *question) {
		q.action.Paused = true
		q.job.State = bulk.StateNonReady
		q.job.At = whyNow.Add(time.Hour)
	}, "paused", "", 0},
	{WhyNotSealed, func(q *question) { q.action.Status = bulk.Created }, "not sealed", "", 0},
	{WhyNotSealed, func(q *question) { q.action.Status = bulk.Created; q.action.RunAt = whyNow.Add(time.Hour) }, "not sealed", "", time.Hour},
	{WhyRunAt, func(q *question) { q.action.Status = bulk.Dispatched; q.action.RunAt = whyNow.Add(time.Hour) }, "starts at 2026-01-02T04:04:05Z", "", time.Hour},
	{WhyStarting, func(q *question) { q.action.Status = bulk.Dispatched; q.action.RunAt = whyNow }, "about to start", "", 0},
	{WhyInFlight, func(q *question) { q.job.State = bulk.StateInFlight; q.job.At = whyNow; q.action.Paused = true }, "its lease ends at 2026-01-02T03:04:05Z", "", 0},
	{"rate_limited", func(q *question) {
		*q.job = bulk.JobState{State: bulk.StateNonReady, Reason: bulk.RateLimited, At: whyNow.Add(time.Minute)}
	}, "less than when the job was admitted: it is due at 2026-01-02T03:05:05Z", "", time.Minute},
	{"api_throttled", func(q *question) {
		*q.job = bulk.JobState{State: bulk.StateNonReady, Reason: bulk.APIThrottled, At: whyNow.Add(time.Minute)}
	}, "its target throttled", "", time.Minute},
	{"transient_error", func(q *question) {
		*q.job = bulk.JobState{State: bulk.StateNonReady, Reason: bulk.TransientError, At: whyNow.Add(time.Minute)}
	}, "its last attempt failed", "", time.Minute},
	{"key_limited", func(q *question) {
		*q.job = bulk.JobState{State: bulk.StateNonReady, Reason: bulk.KeyLimited, Key: bulk.JobKey{Expression: "payload.customer", Key: "c1"}, KeyHeld: 2}
	}, `limit by payload.customer lets no more jobs with the key "c1" start now: 2 are in flight`, "t 2", 0},
	{"", func(q *question) { q.job.State = bulk.StateSucceeded; q.action.Paused = true }, "", "", 0},
}

func TestWhy(t *testing.T) {
	for i, c := range whyCases {
		t.Run(fmt.Sprint(i, " ", c.reason), func(t *testing.T) {
			q := newQuestion()
			c.change(q)
			x, known := q.withoutBacklog()
			if !known {
				x = q.explain()
			}
			var held []string
			for _, h := range x.HeldBy {
				held = append(held, fmt.Sprint(h.Tenant, " ", h.Jobs))
			}
			if x.Reason != c.reason || !strings.Contains(x.Text, c.text) || strings.Join(held, ", ") != c.heldBy {
				t.Errorf("%s: %s; held by %s; want %s: …%s…; %s", x.Reason, x.Text, held, c.reason, c.text, c.heldBy)
			}
			var want time.Time
			if c.earliest > 0 {
				want = whyNow.Add(c.earliest)
			}
			if !x.EarliestStart.Equal(want) {
				t.Errorf("the earliest start is %v, want %v", x.EarliestStart, want)
			}
		})
	}
}

// unbounded are the bounds of a backlog that nothing limits.
type unbounded struct{ *bulk.Backlog }

func (b unbounded) Tenant(string) (bulk.Tenant, int64, time.Time) {
	return b.Lines[0].Settings, bulk.NoLimit, b.WindowEnds
}
func (unbounded) Target(string) int64       { return bulk.NoLimit }
func (unbounded) Limiter(bulk.Holder) int64 { return bulk.NoLimit }

// oneLine returns a backlog with the queue that its only line says.
func oneLine(b bulk.Backlog) *bulk.Backlog {
	b.Queue, b.Bounds = bulk.NewFairQueue(), unbounded{&b}
	line, charged := &b.Lines[0], map[string]bool{}
	for _, w := range line.Waiting {
		granted, key := int64(0), w.Class.String()+w.Key
		if w.HadTurn && !charged[key] {
			granted, charged[key] = 1, true
		}
		b.Queue.Set(&bulk.Queued{Number: w.Number, Class: w.Class, Key: w.Key}, bulk.Holder{Tenant: line.Tenant, Type: line.Type, Target: w.Target},
			bulk.LineTags{Taken: line.Taken, TypeTaken: line.TypeTaken, Granted: line.Granted}, w.Priority, w.Jobs, granted)
	}
	b.Queue.Advance(b.Now, b.Virtual, func(name string) float64 { return b.Types[name].Virtual })
	return &b
}

// TestPlaceIsTheOrderOfGrants: as many jobs are granted before a job as its place says.
func TestPlaceIsTheOrderOfGrants(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		q, jobs := newQuestion(), int64(0)
		q.job.Before = 0
		line := q.line()
		line.Waiting, line.Granted = nil, math.MinInt32 // so that the low class never has its turn
		had := map[string]bool{}
		for i := range rapid.IntRange(1, 9).Draw(rt, "actions") {
			w := bulk.Waiting{Number: uint64(i + 1), Jobs: rapid.Int64Range(1, 6).Draw(rt, "jobs"), Left: bulk.NoLimit, Target: rapid.SampledFrom([]string{"x", "y"}).Draw(rt, "target")}
			w.Class, w.Key = rapid.SampledFrom([]bulk.Class{bulk.High, bulk.Normal, bulk.Low}).Draw(rt, "class"), rapid.SampledFrom([]string{"", "k", "l", "m"}).Draw(rt, "key")
			w.Priority = float64(rapid.IntRange(0, 3).Draw(rt, "priority"))
			key := fmt.Sprint(w.Class, w.Key)
			if _, known := had[key]; !known {
				had[key] = rapid.Bool().Draw(rt, "had its turn")
			}
			w.HadTurn = had[key]
			line.Waiting, jobs = append(line.Waiting, w), jobs+w.Jobs
		}
		grants, _ := bulk.Divide(oneLine(q.backlog), bulk.Free{Total: jobs, Types: map[string]int64{bulk.WebhookType: jobs}})
		var order []uint64
		for _, g := range grants {
			order = append(order, slices.Repeat([]uint64{g.Number}, int(g.Jobs))...)
		}
		for i := range line.Waiting {
			own := &line.Waiting[i]
			for n := range order {
				if order[n] != own.Number {
					continue
				}
				if got := q.place(line, own); got != int64(n) {
					rt.Fatalf("job %d of action %d has the place %d in %v", q.job.Before, own.Number, got, order)
				}
				q.job.Before++
			}
			q.job.Before = 0
		}
	})
	q := newQuestion()
	if q.job.Before = bulk.NotKnown; q.place(q.line(), q.waiting()) != bulk.NotKnown {
		t.Error("a place is known without the jobs before it")
	}
}
