package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/internal/cli/bulk/local"
	"github.com/sluice-project/sluice/internal/cli/bulk/report"
	"github.com/sluice-project/sluice/internal/cli/term"
)

// demoResult is the result of a demo.
type demoResult struct {
	*report.Run
	failures *report.Failures
	balance  *balance
	events   *eventsResult
	rooms    *roomsResult
	sum      string
	// Ideal is the time that all jobs take at the lower of the two rates.
	Ideal   time.Duration
	Rates   demoRates
	Changed rateChange
}

// result gathers the result of the jobs.
func (d *demo) result(ctx context.Context, engine local.Engine, target *demoTarget, r *report.Run, actions []bulk.Action, b *balance) (*demoResult, error) {
	result := &demoResult{Run: r, balance: b, sum: d.sum, Rates: d.rates, Changed: d.changed}
	err := r.Merge([]string{"count", "sum:" + d.sum}, actions)
	if err != nil {
		return nil, err
	}
	failed := &failedSum{field: d.sum}
	if result.failures, err = report.ReadFailures(ctx, engine, actions, failed.Add); err != nil {
		return nil, err
	}
	if failed.err != nil {
		return nil, failed.err
	}
	var succeeded string
	if err := json.Unmarshal(r.Merged.Merged["sum:"+d.sum], &succeeded); err != nil {
		return nil, fmt.Errorf("the sum over jobs that succeeded: %w", err)
	}
	if err := b.SucceededSum.Add(succeeded); err != nil {
		return nil, err
	}
	b.FailedSum, b.Letters = failed.sum, failed.rows
	for i := range actions {
		b.Received += actions[i].Received
	}
	b.Succeeded, b.Failed = r.All.Succeeded, r.All.Failed
	b.TargetDone = target.Done()
	slowest := min(d.rates.Target, d.rates.Limit)
	result.Ideal = time.Duration(float64(r.All.Total) / slowest * float64(time.Second))
	r.Fairness = engine.Fairness()
	return result, nil
}

// Verdict returns nil if every job is accounted for, the sums match, all events
// arrived, and the rooms kept their promises.
func (r *demoResult) Verdict() error {
	return errors.Join(r.Run.Verdict(), r.balance.Wrong(), r.events.Err, r.rooms.Verdict())
}

func (r *demoResult) writeText(w io.Writer, columns, top int, p term.Paint) {
	fmt.Fprintln(w)
	r.TenantTable(w, columns, top)
	fmt.Fprintln(w)
	writeFacts(w, r.checks(), r.figures(), p)
	r.failures.Write(w, columns)
	r.events.writeTail(w, columns)
}

// factColumns is the width of the names of facts.
const factColumns = 12

// fact is one line of the report on the run as a whole.
type fact struct {
	name, text string
	err        error // of a check
}

// writeFacts writes checks, each with its result, and below them figures.
func writeFacts(w io.Writer, checks, figures []fact, p term.Paint) {
	indent := "\n" + strings.Repeat(" ", factColumns)
	for i, fact := range slices.Concat(checks, figures) {
		mark := ""
		switch {
		case i >= len(checks):
		case fact.err != nil:
			mark = p.With(text.FgRed, "✗ ")
		default:
			mark = p.With(text.FgGreen, "✓ ")
		}
		fmt.Fprintln(w, term.Left(fact.name, factColumns)+mark+strings.ReplaceAll(fact.text, "\n", indent))
	}
}

func (r *demoResult) checks() []fact {
	b := r.balance
	return append([]fact{
		{"accounted", fmt.Sprintf("%s rows = %s received = %s succeeded + %s failed",
			humanize.Comma(b.Rows), humanize.Comma(b.Received), humanize.Comma(b.Succeeded), humanize.Comma(b.Failed)), b.Counts()},
		{"exact sum", fmt.Sprintf("%s of the file, added up independently\n= %s of succeeded + %s of failed jobs",
			&b.Input, &b.SucceededSum, &b.FailedSum), b.Sums()},
		{"the target", fmt.Sprintf("did %s: those that succeeded here, each once", term.Counted(b.TargetDone, "job")), b.Target()},
	}, r.events.checks()...)
}

func (r *demoResult) figures() []fact {
	return []fact{
		{name: "makespan", text: r.makespanText()},
		{name: "throttled", text: r.throttledText()},
		{name: "retried", text: fmt.Sprintf("%s after an error: %.3f per job", term.Counted(r.All.Retried, "time"), ratio(r.All.Retried, r.All.Total))},
		{name: "fairness", text: r.fairnessText()},
	}
}

func ratio(part, whole int64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

func (r *demoResult) makespanText() string {
	over := 100 * (r.Makespan.Seconds()/r.Ideal.Seconds() - 1)
	text := fmt.Sprintf("%s; ideal %s, all jobs at %s: %+.1f %%", term.Spell(r.Makespan), term.Spell(r.Ideal),
		term.PerSecond(min(r.Rates.Target, r.Rates.Limit)), over)
	if over < 0 {
		text += "\n(limits hold per second of the clock: one that has begun counts in full)"
	}
	return text
}

func (r *demoResult) throttledText() string {
	text := fmt.Sprintf("%s: %.3f per job; our limit is %s, the target's %s",
		term.Counted(r.All.Throttled, "time"), ratio(r.All.Throttled, r.All.Total), term.PerSecond(r.Rates.Limit), term.PerSecond(r.Rates.Target))
	if r.Changed.After > 0 {
		after := "none"
		if n := r.All.Throttled - r.Changed.Throttled; n > 0 {
			after = humanize.Comma(n)
		}
		text += fmt.Sprintf("\n%s of them after %s, when the target's was configured", after, term.Spell(r.Changed.After))
	}
	return text
}

func (r *demoResult) fairnessText() string {
	jain := "no full window of backlogged tenants to measure"
	if r.Fairness.Windows > 0 {
		jain = r.JainText()
	}
	farthest, worst := report.ReportRow{}, -1.0
	for i := range r.Rows {
		if off := math.Abs(r.Rows[i].Half - r.Rows[i].Fair); off > worst {
			farthest, worst = r.Rows[i], off
		}
	}
	if worst < 0 {
		return jain
	}
	return jain + fmt.Sprintf("\n1st half of the run: farthest from its fair share is\n%s: %s instead of %s",
		term.Printable(farthest.Name), report.PartOf(farthest.Half), report.PartOf(farthest.Fair))
}

// demoJSON is the last line of "demo --json".
type demoJSON struct {
	report.Result
	Retried   int64   `json:"retried"`
	IdealMS   int64   `json:"ideal_ms"`
	InputSum  string  `json:"input_sum"`
	FailedSum string  `json:"failed_sum"`
	Target    float64 `json:"target_requests_per_second"`
	Limit     float64 `json:"requests_per_second"`
	// Events is how many events there are, Committed how many of them the consumer
	// group has read and committed.
	Events    int64 `json:"events"`
	Committed int64 `json:"events_committed"`
	// Rooms is about the waiting rooms.
	Rooms *roomsJSON `json:"rooms"`
	// Error says what is not accounted for; it is empty if everything is.
	Error string `json:"error,omitempty"`
}

func (r *demoResult) writeJSON(w io.Writer) error {
	result := demoJSON{
		Result: r.JSON(), Retried: r.All.Retried,
		IdealMS: r.Ideal.Milliseconds(), InputSum: r.balance.Input.String(), FailedSum: r.balance.FailedSum.String(),
		Target: r.Rates.Target, Limit: r.Rates.Limit, Events: r.events.All, Committed: r.events.Committed,
		Rooms: r.rooms.json(),
	}
	if err := r.Verdict(); err != nil {
		result.Error = err.Error()
	}
	return json.NewEncoder(w).Encode(result)
}
