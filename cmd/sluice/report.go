package main

import (
	"cmp"
	"slices"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

// runReport is what became of a run: one row for each action, and their sum.
type runReport struct {
	Rows []reportRow // most jobs first
	// All sums the counts of the rows.
	All standing
	// Makespan is the time from when the first action entered the fair queue to
	// the end of the last job; 0 if nothing ended.
	Makespan time.Duration
	// Errors are the actions that FAILED, each with its reason.
	Errors []string
}

// reportRow is what became of one action.
type reportRow struct {
	standing
	// Wait is the time to the first finished job; Elapsed that to the last one.
	// Both count from when the action entered the fair queue; -1: not known.
	Wait, Elapsed time.Duration
	// Half is the action's part, 0 to 1, of the jobs that finished in the first
	// half of the makespan; Fair is the part that an even division gives it, no
	// action getting more than it has jobs.
	Half, Fair float64
}

// newReport reads the last state of the actions that the tracker followed.
func newReport(actions []bulk.Action, t *tracker) *runReport {
	r := &runReport{Rows: make([]reportRow, len(actions))}
	entered, finished := span(actions)
	if !entered.IsZero() && finished.After(entered) {
		r.Makespan = finished.Sub(entered)
	}
	done := t.DoneAt(entered.Add(r.Makespan / 2))
	fair := fairDivision(actions, total(done))
	for i := range actions {
		a := &actions[i]
		row := reportRow{standing: standingOf(a.Tenant, a), Wait: t.Wait(i, a), Elapsed: -1}
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
		r.All.Add(&row.standing)
	}
	slices.SortStableFunc(r.Rows, func(a, b reportRow) int {
		return cmp.Or(cmp.Compare(b.Total, a.Total), cmp.Compare(a.Name, b.Name))
	})
	return r
}

// Accounted tells whether every job has an end.
func (r *runReport) Accounted() bool { return r.All.Done() == r.All.Total }

// span is from when the first action entered to when the last one finished.
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

// fairDivision divides capacity evenly among the actions, none getting more than
// it has jobs: what small ones leave over goes to the others (max-min fairness).
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

// fold keeps the largest rows and sums up the rest in one: their counts and
// shares add, of their times the longest stands.
func (r *runReport) fold(top int) (rows []reportRow, rest *reportRow, folded int) {
	keep := keepUnfolded(len(r.Rows), top)
	rows = r.Rows[:keep]
	if keep == len(r.Rows) {
		return rows, nil, 0
	}
	rest = &reportRow{Wait: -1, Elapsed: -1}
	for _, row := range r.Rows[keep:] {
		rest.Add(&row.standing)
		rest.Wait, rest.Elapsed = max(rest.Wait, row.Wait), max(rest.Elapsed, row.Elapsed)
		rest.Half, rest.Fair = rest.Half+row.Half, rest.Fair+row.Fair
	}
	return rows, rest, len(r.Rows) - keep
}
