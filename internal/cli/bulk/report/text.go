package report

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/sluice-project/sluice/internal/cli/term"
)

// Totals writes the figures of the run as a whole.
func (r *Run) Totals(w io.Writer) {
	ended := "every job is accounted for"
	if !r.Accounted() {
		ended = humanize.Comma(r.All.Total-r.All.Done()) + " NOT ACCOUNTED FOR"
	}
	parts := []string{humanize.Comma(r.All.Succeeded) + " succeeded", humanize.Comma(r.All.Failed) + " failed"}
	if r.All.Canceled > 0 {
		parts = append(parts, humanize.Comma(r.All.Canceled)+" canceled")
	}
	fmt.Fprintf(w, "%s: %s; %s\n", term.Counted(r.All.Total, "job"), strings.Join(parts, ", "), ended)
	rate := fmt.Sprintf("%s, %s", term.Spell(r.Makespan), term.PerSecond(r.rate()))
	if r.All.Throttled > 0 || r.All.Retried > 0 {
		rate += fmt.Sprintf("; %s, %s", term.Counted(r.All.Throttled, "throttle"), term.Plural(r.All.Retried, "retry", "retries"))
	}
	fmt.Fprintln(w, rate)
	if r.Fairness.Windows > 0 {
		fmt.Fprintf(w, "fairness: %s\n", r.JainText())
	}
	for _, line := range r.Errors {
		fmt.Fprintf(w, "FAILED: %s\n", term.Printable(line))
	}
}

// JainText formats the fairness of a run with full windows.
func (r *Run) JainText() string {
	return fmt.Sprintf("Jain index %.4f over %s (1 is even)", r.Fairness.Jain, term.Counted(int64(r.Fairness.Windows), "window"))
}

// rate returns the jobs finished per second of the makespan.
func (r *Run) rate() float64 {
	if r.Makespan <= 0 {
		return 0
	}
	return float64(r.All.Done()) / r.Makespan.Seconds()
}

// Verdict returns nil if every job is accounted for and no action failed.
func (r *Run) Verdict() error {
	switch {
	case !r.Accounted():
		return fmt.Errorf("%s of %s have no outcome", humanize.Comma(r.All.Total-r.All.Done()), term.Counted(r.All.Total, "job"))
	case len(r.Errors) == 1:
		return fmt.Errorf("1 action FAILED: %s", term.Printable(r.Errors[0]))
	case len(r.Errors) > 1:
		return fmt.Errorf("%d actions FAILED, the first: %s", len(r.Errors), term.Printable(r.Errors[0]))
	}
	return nil
}

// Result is the last line of "bulk run --json".
type Result struct {
	Actions    int                                   `json:"actions"`
	Jobs       int64                                 `json:"jobs"`
	Succeeded  int64                                 `json:"succeeded"`
	Failed     int64                                 `json:"failed"`
	Canceled   int64                                 `json:"canceled"`
	Throttled  int64                                 `json:"throttled"`
	Aggregates map[string]json.RawMessage            `json:"aggregates"`
	PerAction  map[string]map[string]json.RawMessage `json:"per_action,omitempty"`
	ElapsedMS  int64                                 `json:"elapsed_ms"`
	Jain       *float64                              `json:"jain"`
}

func (r *Run) JSON() Result {
	result := Result{
		Actions: len(r.Rows), Jobs: r.All.Total, Succeeded: r.All.Succeeded, Failed: r.All.Failed,
		Canceled: r.All.Canceled, Throttled: r.All.Throttled,
		Aggregates: r.Merged.Merged, PerAction: r.Merged.PerAction,
		ElapsedMS: r.Makespan.Milliseconds(),
	}
	if r.Fairness.Windows > 0 {
		result.Jain = &r.Fairness.Jain
	}
	return result
}

// WriteJSON writes the report as one line.
func (r *Run) WriteJSON(w io.Writer) error { return json.NewEncoder(w).Encode(r.JSON()) }

// Write writes the aggregates: a line for each merged one, and a table for each that is per tenant.
func (a *Aggregates) Write(w io.Writer, columns, top int, r *Run) {
	var facts []term.Fact
	for _, name := range slices.Sorted(maps.Keys(a.Merged)) {
		facts = append(facts, term.Fact{term.Printable(name), PlainJSON(a.Merged[name])})
	}
	if len(facts) > 0 {
		fmt.Fprintln(w)
		term.WriteFacts(w, facts, 0)
	}
	for _, name := range slices.Sorted(maps.Keys(a.PerAction)) {
		a.perTenant(w, name, columns, top, r)
	}
}

// perTenant writes an aggregate that each tenant has of its own.
func (a *Aggregates) perTenant(w io.Writer, name string, columns, top int, r *Run) {
	g := term.Grid{Header: []string{"tenant", term.Printable(name) + ", by tenant"}, Left: map[int]bool{0: true, 1: true}}
	rows, _, folded := r.fold(top)
	for _, row := range rows {
		g.Rows = append(g.Rows, []string{term.Name(row.Name), PlainJSON(a.PerAction[name][row.Name])})
	}
	fmt.Fprintln(w)
	g.Write(w, columns)
	if folded > 0 {
		fmt.Fprintf(w, "+%s more: see --top 0 or --json\n", humanize.Comma(int64(folded)))
	}
}

// PlainJSON formats the result of an aggregate on one line.
func PlainJSON(raw json.RawMessage) string {
	var known struct {
		Errors []struct {
			Error string
			Count int64
		}
		P50 json.Number `json:"p50_ms"`
		P90 json.Number `json:"p90_ms"`
		P99 json.Number `json:"p99_ms"`
		Max json.Number `json:"max_ms"`
	}
	var s *string
	var compact bytes.Buffer
	switch {
	case len(raw) == 0:
		return "–"
	case json.Unmarshal(raw, &s) == nil:
		if s == nil {
			return "–"
		}
		return term.Printable(*s)
	case json.Unmarshal(raw, &known) == nil && known.Errors != nil:
		parts := make([]string, len(known.Errors))
		for i, e := range known.Errors {
			parts[i] = fmt.Sprintf("%d × %s", e.Count, e.Error)
		}
		return cmp.Or(term.Printable(strings.Join(parts, ", ")), "none")
	case json.Unmarshal(raw, &known) == nil && known.P50 != "":
		return fmt.Sprintf("p50 %s, p90 %s, p99 %s, max %s",
			term.SpellMS(known.P50), term.SpellMS(known.P90), term.SpellMS(known.P99), term.SpellMS(known.Max))
	case json.Compact(&compact, raw) != nil:
		return "–"
	}
	return term.Printable(compact.String())
}
