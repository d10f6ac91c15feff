package engine

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

// The reasons of an Explanation. Jobs that were turned back have those of NonReadyReason.
const (
	// WhyInFlight: a worker has the job.
	WhyInFlight = "in_flight"
	// WhyPaused: the action is paused.
	WhyPaused = "paused"
	// WhyNotSealed: the upload has not ended.
	WhyNotSealed = "not_sealed"
	// WhyRunAt: Spec.RunAt has not come.
	WhyRunAt = "run_at"
	// WhyStarting: the action is sealed and about to start.
	WhyStarting = "starting"
	// WhyTargetDown: the engine takes the target for down.
	WhyTargetDown = "target_down"
	// WhyNoWorker: jobs of the type are ready, and no worker asks for them.
	WhyNoWorker = "no_worker"
	// WhyGlobalLimit, WhyTenantLimit and WhyTargetLimit: the limit is used up in this window.
	WhyGlobalLimit = "global_limit"
	WhyTenantLimit = "tenant_limit"
	WhyTargetLimit = "target_limit"
	// WhyGlobalConcurrency, WhyTenantConcurrency and WhyTargetConcurrency: the service, the
	// tenant or the target has as many jobs as it may have at a time, or the target as it was
	// found to take.
	WhyGlobalConcurrency = "global_concurrency"
	WhyTenantConcurrency = "tenant_concurrency"
	WhyTargetConcurrency = "target_concurrency"
	// WhyCongestion: the target has throttled, and no more are started than passed before.
	WhyCongestion = "congestion"
	// WhyLongAttempts: attempts that are long hold their part of the workers or places.
	WhyLongAttempts = "long_attempts"
	// WhyWorkersBusy: the workers of the type are busy, and jobs before this one are ready.
	WhyWorkersBusy = "workers_busy"
	// WhyInLine: nothing but other jobs of its tenant and type is before the job.
	WhyInLine = "in_line"
	// WhyNext: nothing holds the job back; it is about to be admitted.
	WhyNext = "next"
)

// Explanation is where a job is, and why it does not run.
type Explanation struct {
	Action bulk.Action
	Job    bulk.JobState
	// Reason is one of the constants, or a NonReadyReason as text; empty if the job has ended.
	// If several apply, it is the one that would hold the job back first.
	Reason string
	// Text says the same to people, in one sentence.
	Text string
	// HeldBy has the tenants that hold most of what the job waits for, most first: at most
	// MaxHeldBy, and none if no tenant holds it.
	HeldBy []TenantJobs
	// Place is how many jobs of its tenant and type go before a pending job, by class, the turns of
	// keys, and Priority; NotKnown if it is not in line. It does not take into account that every tenth
	// grant is for the low class, and that actions before it may be held back themselves.
	Place int64
	// EarliestStart is zero if it is not known.
	EarliestStart time.Time
}

// MaxHeldBy bounds Explanation.HeldBy.
const MaxHeldBy = 3

// TenantJobs counts jobs of a tenant that are ready or in flight.
type TenantJobs struct {
	Tenant string
	Jobs   int64
}

// Why explains where a job is, and what holds it back if it has not ended; see Store.Job for the
// index and the errors. Measured figures, such as those of targets, are those of this instance.
func (e *Engine) Why(ctx context.Context, id string, index int64) (Explanation, error) {
	action, err := e.store.Action(ctx, id)
	if err != nil {
		return Explanation{}, err
	}
	job, err := e.store.Job(ctx, id, index)
	if err != nil {
		return Explanation{}, err
	}
	q := question{action: &action, job: &job, now: time.Now()}
	x, known := q.withoutBacklog()
	if known {
		return x, nil
	}
	settings, err := e.store.Settings(ctx)
	if err != nil {
		return x, err
	}
	e.targets.CompareAndSwap(nil, &settings.Targets) // the engine may not have started
	callee := action.Callee()
	q.setLimits(&settings)
	err = e.store.Fetch(ctx, func(b *bulk.Backlog) {
		b.List(action.Tenant)
		q.limited = b.Bounds.Target(callee) <= 0
		var free bulk.Free
		e.measure(b, &free)
		q.measured = free.Measured(holderOf(&action.Spec))
		q.backlog = *b
		q.backlog.Held = maps.Clone(b.Held)
	})
	if err != nil {
		return x, err
	}
	q.found = e.FoundLoad(callee)
	q.workers = max(e.workersOf(action.Type), q.backlog.Types[action.Type].Workers)
	return q.explain(), nil
}

// question is what an explanation follows from.
type question struct {
	action *bulk.Action
	job    *bulk.JobState
	now    time.Time
	// backlog is as the fetcher sees it.
	backlog bulk.Backlog
	// all, tenant and target are the limits that are set; a rate that is found is 1.
	all, tenant, target bulk.Limit
	// found and limited are of the target: what was found out about it, and whether the store
	// admits no more jobs to it, whatever was found.
	found   FoundLoad
	limited bool
	// measured is what the engine has measured of such jobs.
	measured bulk.Measured
	// workers is the number of workers of the type, as far as they are known.
	workers int64
}

func (q *question) answer(reason string, earliest time.Time, text string, values ...any) Explanation {
	return Explanation{
		Action: *q.action, Job: *q.job, Reason: reason, Place: bulk.NotKnown,
		EarliestStart: earliest, Text: fmt.Sprintf(text, values...),
	}
}

// withoutBacklog explains a job of which the action and the job itself say enough.
func (q *question) withoutBacklog() (x Explanation, known bool) {
	a, j := q.action, q.job
	unknown := time.Time{}
	switch {
	case j.State.Ended():
		return q.answer("", unknown, ""), true
	case j.State == bulk.StateInFlight:
		return q.answer(WhyInFlight, unknown, "a worker has it: its lease ends at %s unless it is extended", clock(j.At)), true
	case a.Paused:
		return q.answer(WhyPaused, unknown, "its action is paused: resume the action"), true
	case j.State == bulk.StateNonReady && j.Reason == bulk.KeyLimited:
		x = q.answer(j.Reason.String(), unknown, "its tenant's limit by %s lets no more jobs with the key %q start now: %d are in flight", j.Key.Expression, j.Key.Key, j.KeyHeld)
		if j.KeyHeld > 0 {
			x.HeldBy = []TenantJobs{{a.Tenant, j.KeyHeld}}
		}
		return x, true
	case j.State == bulk.StateNonReady:
		return q.answer(j.Reason.String(), j.At, "%s: it is due at %s", turnedBack(j.Reason), clock(j.At)), true
	case a.Status == bulk.Created:
		return q.answer(WhyNotSealed, later(a.RunAt, q.now), "its action is not sealed: jobs start when the upload has ended"), true
	case a.Status == bulk.Dispatched && a.RunAt.After(q.now):
		return q.answer(WhyRunAt, a.RunAt, "its action starts at %s", clock(a.RunAt)), true
	case a.Status == bulk.Dispatched:
		return q.answer(WhyStarting, unknown, "its action was sealed and is about to start"), true
	}
	return Explanation{}, false
}

// later returns a time if it is after now, or zero.
func later(t, now time.Time) time.Time {
	if t.After(now) {
		return t
	}
	return time.Time{}
}

func clock(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func turnedBack(reason bulk.NonReadyReason) string {
	switch reason {
	case bulk.RateLimited:
		return "a limit allowed less than when the job was admitted"
	case bulk.APIThrottled:
		return "its target throttled the last attempt"
	default:
		return "its last attempt failed, or a worker handed it back"
	}
}

// explain explains a job that is ready, or pending in an action that runs.
func (q *question) explain() Explanation {
	line, waiting := q.find()
	x := q.hold(line, waiting)
	if line != nil && q.job.State == bulk.StatePending {
		x.Place = q.place(line, waiting)
	}
	if x.Reason == WhyNext && x.Place > 0 {
		x.Reason, x.Text = WhyInLine, fmt.Sprintf("%d jobs of its tenant and type go before it", x.Place)
	}
	x.HeldBy = q.holders(x.Reason)
	return x
}

// find returns the job's action in the backlog, and its line; nil if its jobs do not wait.
func (q *question) find() (*bulk.Line, *bulk.Waiting) {
	for i := range q.backlog.Lines {
		line := &q.backlog.Lines[i]
		for w := range line.Waiting {
			if line.Waiting[w].Number == q.job.Number {
				return line, &line.Waiting[w]
			}
		}
	}
	return nil, nil
}

// hold returns the first thing that holds the job back, in the order in which an operator would
// have to remove them.
func (q *question) hold(line *bulk.Line, w *bulk.Waiting) Explanation {
	b, a := &q.backlog, q.action
	state := b.Types[a.Type]
	switch {
	case !q.found.DownSince.IsZero():
		return q.answer(WhyTargetDown, time.Time{}, "its target %q has not answered since %s: one attempt every %v tries it",
			a.Callee(), clock(q.found.DownSince), probeInterval)
	case state.Idle:
		return q.answer(WhyNoWorker, time.Time{}, "no worker asks for jobs of type %q: start one, or see whether it reaches the server", a.Type)
	case q.job.State == bulk.StateReady:
		return q.answer(WhyWorkersBusy, time.Time{}, "it is ready, and starts when a worker is free: %s", q.busy(state))
	case line == nil: // it was just admitted
	case b.Left <= 0:
		return q.usedUp(q.all, "the whole service", WhyGlobalLimit, WhyGlobalConcurrency)
	case line.Left <= 0:
		return q.usedUp(q.tenant, fmt.Sprintf("its tenant %q", line.Tenant), WhyTenantLimit, WhyTenantConcurrency)
	case q.limited || q.measured.Target <= 0:
		return q.holdOfTarget()
	case w.Left <= 0:
		return q.answer(WhyCongestion, b.WindowEnds, "its target throttles this tenant, which starts as many as have passed before: more from %s on", clock(b.WindowEnds))
	case !q.measured.Able():
		return q.answer(WhyLongAttempts, time.Time{}, "attempts that are long, or were never measured, hold their part of the workers; the rest is kept for short ones: %s", q.busy(state))
	case state.Ready > 0 || q.workers > 0 && state.InFlight >= q.workers:
		return q.answer(WhyWorkersBusy, time.Time{}, "workers are busy with other jobs of its type: %s", q.busy(state))
	}
	return q.answer(WhyNext, time.Time{}, "nothing holds it back: it is about to start")
}

func (q *question) busy(state bulk.TypeState) string {
	text := fmt.Sprintf("%d jobs of type %q are in flight and %d ready", state.InFlight, q.action.Type, state.Ready)
	if q.workers > 0 {
		text += fmt.Sprintf(", for %d workers", q.workers)
	}
	return text
}

// setLimits sets the limits that apply to the action.
func (q *question) setLimits(s *bulk.Settings) {
	if s.Limits != nil {
		q.all = s.Limits.Limit()
	}
	tenant, target, jobType := s.Tenants[q.action.Tenant], s.Targets[q.action.TargetName()], s.Types[q.action.Type]
	q.tenant, q.target = tenant.Limit(), target.Limit()
	if target.Auto {
		q.target.RequestsPerSecond = 1
	}
	if q.action.Target == nil {
		q.target = jobType.Limit()
	}
}

// usedUp explains that a limit admits no more, by its rate or by its concurrency.
func (q *question) usedUp(l bulk.Limit, whose, rate, concurrency string) Explanation {
	held := q.held(concurrency)
	if most := int64(l.Concurrency); most > 0 && held >= most {
		return q.answer(concurrency, time.Time{}, "%s has %d jobs, the %d that it may have at a time", whose, held, most)
	}
	ends := q.backlog.WindowEnds
	return q.answer(rate, ends, "the limit of %s is used up in this window, which ends at %s", whose, clock(ends))
}

// held counts the jobs that are ready or in flight of what a reason is about.
func (q *question) held(reason string) (jobs int64) {
	for of, n := range q.backlog.Held {
		if q.about(reason, of) {
			jobs += n
		}
	}
	return jobs
}

// about reports whether a holder has some of what a reason is about.
func (q *question) about(reason string, of bulk.Holder) bool {
	switch reason {
	case WhyGlobalLimit, WhyGlobalConcurrency:
		return true
	case WhyTenantLimit, WhyTenantConcurrency:
		return of.Tenant == q.action.Tenant
	case WhyTargetLimit, WhyTargetConcurrency, WhyTargetDown, WhyCongestion:
		return of.Target == q.action.Callee()
	}
	return of.Type == q.action.Type
}

// holdOfTarget returns which bound of its target holds the job back.
func (q *question) holdOfTarget() Explanation {
	ends := q.backlog.WindowEnds
	held := q.held(WhyTargetConcurrency)
	whose := fmt.Sprintf("its target %q", q.action.TargetName())
	if q.action.Target == nil {
		whose = fmt.Sprintf("its type %q", q.action.Type)
	}
	switch {
	case q.limited && (q.target.RequestsPerSecond > 0 || q.target.Concurrency > 0 && held >= int64(q.target.Concurrency)):
		return q.usedUp(q.target, whose, WhyTargetLimit, WhyTargetConcurrency)
	case q.limited:
		return q.answer(WhyCongestion, ends, "%s throttles, and gets as many as have passed before: more from %s on", whose, clock(ends))
	}
	return q.answer(WhyTargetConcurrency, time.Time{}, "%s has %d jobs, about as many as it was found to take at a time (%d)", whose, held, q.found.Concurrency)
}

// place returns how many jobs of the line go before the job, by the order of Divide: all of better
// classes; of the job's key those before it; and of each other key of its class as many as have a
// turn before that of the job.
func (q *question) place(line *bulk.Line, own *bulk.Waiting) int64 {
	if q.job.Before < 0 {
		return bulk.NotKnown
	}
	turn, before, keys := own.Turns()+q.job.Before, q.job.Before, map[string][]*bulk.Waiting{}
	for i := range line.Waiting {
		w := &line.Waiting[i]
		switch order := cmp.Compare(bulk.ClassRank(w.Class), bulk.ClassRank(own.Class)); {
		case order < 0:
			before += w.Jobs
		case order == 0 && w.Key != own.Key:
			keys[w.Key] = append(keys[w.Key], w)
		case order == 0 && w != own && w.GoesBefore(own):
			turn, before = turn+w.Jobs, before+w.Jobs
		}
	}
	for _, actions := range keys {
		before += jobsBefore(actions, own, turn)
	}
	return before
}

// jobsBefore returns how many jobs of a key go before a job of another key's action, in the turn of
// that job: one in each turn before it, and one in that turn if the action which is then the key's
// first goes before the other.
func jobsBefore(actions []*bulk.Waiting, own *bulk.Waiting, turn int64) (before int64) {
	slices.SortFunc(actions, func(a, b *bulk.Waiting) int {
		if a.GoesBefore(b) {
			return -1
		}
		return 1
	})
	turns := max(0, turn-actions[0].Turns())
	for _, w := range actions {
		if turns < before+w.Jobs {
			if before = turns; turn >= w.Turns() && w.GoesBefore(own) {
				before++
			}
			return before
		}
		before += w.Jobs
	}
	return before
}

// holders returns who holds most of what a reason is about.
func (q *question) holders(reason string) (most []TenantJobs) {
	held := map[string]int64{}
	for of, jobs := range q.backlog.Held {
		if jobs > 0 && q.about(reason, of) {
			held[of.Tenant] += jobs
		}
	}
	for tenant, jobs := range held {
		most = append(most, TenantJobs{tenant, jobs})
	}
	slices.SortFunc(most, func(a, b TenantJobs) int {
		return cmp.Or(cmp.Compare(b.Jobs, a.Jobs), cmp.Compare(a.Tenant, b.Tenant))
	})
	return most[:min(len(most), MaxHeldBy)]
}
