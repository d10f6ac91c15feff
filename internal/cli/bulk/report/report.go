package report

import (
	"cmp"
	"slices"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/engine"
	"github.com/sluice-project/sluice/internal/cli/term"
)

// Run is the result of a run: one row for each action, and their sum.
type Run struct {
	Rows []ReportRow // most jobs first
	// All sums the counts of the rows.
	All term.Standing
	// Makespan is the time from the moment when the first action entered the fair queue to the end
	// of the last job; 0 if no job ended.
	Makespan time.Duration
	// Errors are the FAILED actions, each with its reason.
	Errors []string
	// Merged are the aggregates, set by Merge, and Fairness is the engine's.
	Merged   *Aggregates
	Fairness engine.Fairness
}

// ReportRow is the result of one action.
type ReportRow struct {
	term.Standing
	// Wait is the time to the first finished job, Elapsed the time to the last one. Both count from
	// the moment when the action entered the fair queue; -1: not known.
	Wait, Elapsed time.Duration
	// Half is the action's share, 0 to 1, of the jobs that finished in the first half of the
	// makespan. Fair is the share that an even division gives it, where no action gets more than it
	// has jobs.
	Half, Fair float64
}

// New builds the result from the last state of the actions that the tracker followed.
func New(actions []bulk.Action, t *Tracker) *Run {
	r := &Run{Rows: make([]ReportRow, len(actions))}
	entered, finished := span(actions)
	if !entered.IsZero() && finished.After(entered) {
		r.Makespan = finished.Sub(entered)
	}
	done := t.DoneAt(entered.Add(r.Makespan / 2))
	fair := fairDivision(actions, total(done))
	for i := range actions {
		a := &actions[i]
		row := ReportRow{Standing: StandingOf(a.Tenant, a), Wait: t.Wait(i, a), Elapsed: -1}
		if !a.FinishedAt.IsZero() && !a.EnteredAt.IsZero() {
			row.Elapsed = a.FinishedAt.Sub(a.EnteredAt)
		}
		if all := total(done); all > 0 {
			row.Half, row.Fair = done[i]/all, fair[i]/all
		}
		if a.Status == bulk.Failed {
			r.Errors = append(r.Errors, a.Tenant+" ("+a.ID+"): "+a.Error)
		}
		r.Rows[i] = row
		r.All.Add(&row.Standing)
	}
	slices.SortStableFunc(r.Rows, func(a, b ReportRow) int {
		return cmp.Or(cmp.Compare(b.Total, a.Total), cmp.Compare(a.Name, b.Name))
	})
	return r
}

// Accounted reports whether every job has an outcome.
func (r *Run) Accounted() bool { return r.All.Done() == r.All.Total }

// span returns when the first action entered and when the last one finished.
func span(actions []bulk.Action) (entered, finished time.Time) {
	for i := range actions {
		a := &actions[i]
		if !a.EnteredAt.IsZero() && (entered.IsZero() || a.EnteredAt.Before(entered)) {
			entered = a.EnteredAt
		}
		if a.FinishedAt.After(finished) {
			finished = a.FinishedAt
		}
	}
	return entered, finished
}

func total(values []float64) (all float64) {
	for _, v := range values {
		all += v
	}
	return all
}

// fairDivision divides capacity evenly among the actions; none gets more than it has jobs, and the
// rest goes to the others (max-min fairness).
func fairDivision(actions []bulk.Action, capacity float64) []float64 {
	order := make([]int, len(actions))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(actions[a].Total, actions[b].Total) })
	fair := make([]float64, len(actions))
	for place, i := range order {
		even := capacity / float64(len(order)-place)
		fair[i] = min(even, float64(actions[i].Total))
		capacity -= fair[i]
	}
	return fair
}

// fold keeps the largest rows and folds the rest into one: their counts and shares are added, and
// their longest times are kept.
func (r *Run) fold(top int) (rows []ReportRow, rest *ReportRow, folded int) {
	keep := term.KeepUnfolded(len(r.Rows), top)
	rows = r.Rows[:keep]
	if keep == len(r.Rows) {
		return rows, nil, 0
	}
	rest = &ReportRow{Wait: -1, Elapsed: -1}
	for _, row := range r.Rows[keep:] {
		rest.Add(&row.Standing)
		rest.Wait, rest.Elapsed = max(rest.Wait, row.Wait), max(rest.Elapsed, row.Elapsed)
		rest.Half, rest.Fair = rest.Half+row.Half, rest.Fair+row.Fair
	}
	return rows, rest, len(r.Rows) - keep
}
