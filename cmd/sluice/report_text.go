package main

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
	"github.com/jedib0t/go-pretty/v6/text"
)

// totals writes the figures of the run as a whole.
func (r *runReport) totals(w io.Writer, jain float64, windows int) {
	ended := "every job is accounted for"
	if !r.Accounted() {
		ended = humanize.Comma(r.All.Total-r.All.Done()) + " NOT ACCOUNTED FOR"
	}
	parts := []string{humanize.Comma(r.All.Succeeded) + " succeeded", humanize.Comma(r.All.Failed) + " failed"}
	if r.All.Canceled > 0 {
		parts = append(parts, humanize.Comma(r.All.Canceled)+" canceled")
	}
	fmt.Fprintf(w, "%s: %s; %s\n", counted(r.All.Total, "job"), strings.Join(parts, ", "), ended)
	pace := fmt.Sprintf("%s, %s", spell(r.Makespan), perSecond(r.pace()))
	if r.All.Throttled > 0 || r.All.Retried > 0 {
		pace += fmt.Sprintf("; %s, %s", counted(r.All.Throttled, "throttle"), plural(r.All.Retried, "retry", "retries"))
	}
	fmt.Fprintln(w, pace)
	if windows > 0 {
		fmt.Fprintf(w, "fairness: Jain index %.4f over %s (1 is even)\n", jain, counted(int64(windows), "window"))
	}
	for _, line := range r.Errors {
		fmt.Fprintf(w, "FAILED: %s\n", printable(line))
	}
}

// pace is the jobs finished per second of the makespan.
func (r *runReport) pace() float64 {
	if r.Makespan <= 0 {
		return 0
	}
	return float64(r.All.Done()) / r.Makespan.Seconds()
}

func plural(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return humanize.Comma(n) + " " + many
}

// Verdict is nil if every job is accounted for and no action failed.
func (r *runReport) Verdict() error {
	switch {
	case !r.Accounted():
		return fmt.Errorf("%s of %s have no outcome", humanize.Comma(r.All.Total-r.All.Done()), counted(r.All.Total, "job"))
	case len(r.Errors) == 1:
		return fmt.Errorf("1 action FAILED: %s", printable(r.Errors[0]))
	case len(r.Errors) > 1:
		return fmt.Errorf("%d actions FAILED, the first: %s", len(r.Errors), printable(r.Errors[0]))
	}
	return nil
}

// runResult is the last line of "bulk run --json".
type runResult struct {
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

func (r *runReport) json(merged *aggregates, jain float64, windows int) runResult {
	result := runResult{
		Actions: len(r.Rows), Jobs: r.All.Total, Succeeded: r.All.Succeeded, Failed: r.All.Failed,
		Canceled: r.All.Canceled, Throttled: r.All.Throttled,
		Aggregates: merged.Merged, PerAction: merged.PerAction,
		ElapsedMS: r.Makespan.Milliseconds(),
	}
	if windows > 0 {
		result.Jain = &jain
	}
	return result
}

// writeJSON writes the report as one line.
func (r *runReport) writeJSON(w io.Writer, merged *aggregates, jain float64, windows int) error {
	return json.NewEncoder(w).Encode(r.json(merged, jain, windows))
}

// write writes the aggregates: one line for each that holds for the whole, and a
// table of those that hold for one tenant each.
func (a *aggregates) write(w io.Writer, columns, top int, r *runReport) {
	width := 0
	names := slices.Sorted(maps.Keys(a.Merged))
	for _, name := range names {
		width = max(width, text.StringWidth(name))
	}
	if len(names) > 0 {
		fmt.Fprintln(w)
	}
	for _, name := range names {
		fmt.Fprintf(w, "%s  %s\n", left(printable(name), width), plainJSON(a.Merged[name]))
	}
	if len(a.PerAction) == 0 {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(a.PerAction)) {
		a.perTenant(w, name, columns, top, r)
	}
}

// perTenant writes an aggregate that each tenant has for itself.
func (a *aggregates) perTenant(w io.Writer, name string, columns, top int, r *runReport) {
	g := grid{Header: []string{"tenant", printable(name) + ", by tenant"}, Left: map[int]bool{0: true, 1: true}}
	rows, _, folded := r.fold(top)
	for _, row := range rows {
		g.Rows = append(g.Rows, []string{clip(printable(row.Name), longestName), plainJSON(a.PerAction[name][row.Name])})
	}
	fmt.Fprintln(w)
	g.Write(w, columns)
	if folded > 0 {
		fmt.Fprintf(w, "+%s more: see --top 0 or --json\n", humanize.Comma(int64(folded)))
	}
}

// plainJSON shows the result of an aggregate in one line.
func plainJSON(raw json.RawMessage) string {
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
		return printable(*s)
	case json.Unmarshal(raw, &known) == nil && known.Errors != nil:
		parts := make([]string, len(known.Errors))
		for i, e := range known.Errors {
			parts[i] = fmt.Sprintf("%d × %s", e.Count, e.Error)
		}
		return cmp.Or(printable(strings.Join(parts, ", ")), "none")
	case json.Unmarshal(raw, &known) == nil && known.P50 != "":
		return fmt.Sprintf("p50 %s, p90 %s, p99 %s, max %s",
			spellMS(known.P50), spellMS(known.P90), spellMS(known.P99), spellMS(known.Max))
	case json.Compact(&compact, raw) != nil:
		return "–"
	}
	return printable(compact.String())
}

// listedMessages is how many messages of failures are shown.
const listedMessages = 5

// write lists the most frequent messages of failed jobs.
func (f *failures) write(w io.Writer, columns int) {
	if f.Read == 0 {
		return
	}
	of := ""
	if f.Read == mostLetters {
		of = fmt.Sprintf(" (of the first %s)", humanize.Comma(mostLetters))
	}
	fmt.Fprintf(w, "\nfailed%s because of\n", of)
	for i, message := range f.top() {
		if i == listedMessages {
			fmt.Fprintf(w, "  … and %s\n", plural(int64(len(f.Messages)-i), "other message", "other messages"))
			return
		}
		const indent = 11
		text := text.WrapSoft(clip(cmp.Or(message, "(no message)"), 2*(columns-indent)), columns-indent)
		fmt.Fprintf(w, "%s  %s\n", right(humanize.Comma(f.Messages[message]), indent-2),
			strings.ReplaceAll(text, "\n", "\n"+strings.Repeat(" ", indent)))
	}
}

// top returns the messages, the most frequent first.
func (f *failures) top() []string {
	return slices.SortedFunc(maps.Keys(f.Messages), func(a, b string) int {
		return cmp.Or(cmp.Compare(f.Messages[b], f.Messages[a]), cmp.Compare(a, b))
	})
}

// unfinishedTable lists those that have not finished.
func unfinishedTable(w io.Writer, lines []standing, columns, top int) {
	g := grid{Header: []string{"tenant", "jobs", "finished", "in flight", "unfinished"}, Left: map[int]bool{0: true}}
	row := func(s *standing) []string {
		return []string{
			clip(printable(s.Name), longestName), humanize.Comma(s.Total), humanize.Comma(s.Done()),
			humanize.Comma(s.InFlight), humanize.Comma(s.Total - s.Done()),
		}
	}
	var open []standing
	for _, s := range lines {
		if s.Done() < s.Total {
			open = append(open, s)
		}
	}
	keep := keepUnfolded(len(open), top)
	for i := range open[:keep] {
		g.Rows = append(g.Rows, row(&open[i]))
	}
	if keep < len(open) {
		rest := sum(fmt.Sprintf("+%d more", len(open)-keep), open[keep:])
		g.Rows = append(g.Rows, row(&rest))
	}
	g.Write(w, columns)
}
