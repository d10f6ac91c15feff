package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/sluice-project/sluice/bulk"
)

// demoResult is what a demo reports.
type demoResult struct {
	*runReport
	merged   *aggregates
	failures *failures
	balance  *balance
	events   *eventsResult
	rooms    *roomsResult
	sum      string
	// Ideal is the least time that all jobs take at the lower of the two rates.
	Ideal time.Duration
	Rates demoRates
	Told  telling
	// Jain is the mean index of Windows full windows.
	Jain    float64
	Windows int
}

// result gathers what the demo reports.
func (d *demo) result(ctx context.Context, engine runner, target *demoTarget, r *runReport, actions []bulk.Action, b *balance) (*demoResult, error) {
	result := &demoResult{runReport: r, balance: b, sum: d.sum, Rates: d.rates, Told: d.told}
	var err error
	if result.merged, err = mergeAggregates([]string{"count", "sum:" + d.sum}, actions); err != nil {
		return nil, err
	}
	failed := &failedSum{field: d.sum}
	if result.failures, err = readFailures(ctx, engine, actions, failed.Add); err != nil {
		return nil, err
	}
	if failed.err != nil {
		return nil, failed.err
	}
	var succeeded string
	if err := json.Unmarshal(result.merged.Merged["sum:"+d.sum], &succeeded); err != nil {
		return nil, fmt.Errorf("the sum over what succeeded: %w", err)
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
	result.Jain, result.Windows = engine.Jain()
	return result, nil
}

// Verdict is nil if every job is accounted for, the sums are equal, all events came,
// and the rooms have kept what they promise.
func (r *demoResult) Verdict() error {
	return errors.Join(r.runReport.Verdict(), r.balance.Wrong(), r.events.Err, r.rooms.Verdict())
}

func (r *demoResult) writeText(w io.Writer, columns, top int, p paint) {
	fmt.Fprintln(w)
	r.tenantTable(w, columns, top)
	fmt.Fprintln(w)
	writeChecked(w, r.facts(), p)
	r.failures.write(w, columns)
	r.events.writeTail(w, columns)
}

// factColumns is the width of the names of facts.
const factColumns = 12

// fact is one thing that the report says of the run as a whole.
type fact struct {
	name, text  string
	checked, ok bool
}

// writeChecked writes facts below one another, with marks before those that are checked.
func writeChecked(w io.Writer, facts []fact, p paint) {
	for _, fact := range facts {
		mark := ""
		if fact.checked {
			mark = p.with(text.FgGreen, "✓ ")
			if !fact.ok {
				mark = p.with(text.FgRed, "✗ ")
			}
		}
		indent := "\n" + strings.Repeat(" ", factColumns)
		fmt.Fprintln(w, left(fact.name, factColumns)+mark+strings.ReplaceAll(fact.text, "\n", indent))
	}
}

func (r *demoResult) facts() []fact {
	b := r.balance
	facts := []fact{
		{
			name: "accounted", checked: true, ok: b.Succeeded+b.Failed == b.Received && b.Received == b.Rows && b.Letters == b.Failed,
			text: fmt.Sprintf("%s rows = %s received = %s succeeded + %s failed",
				humanize.Comma(b.Rows), humanize.Comma(b.Received), humanize.Comma(b.Succeeded), humanize.Comma(b.Failed)),
		},
		{
			name: "exact sum", checked: true, ok: b.Both().Equal(&b.Input),
			text: fmt.Sprintf("%s of the file, added up independently\n= %s of what succeeded + %s of what failed",
				&b.Input, &b.SucceededSum, &b.FailedSum),
		},
		{
			name: "the target", checked: true, ok: b.TargetDone == b.Succeeded,
			text: fmt.Sprintf("did %s: what succeeded here, each once", counted(b.TargetDone, "job")),
		},
	}
	facts = append(facts, r.events.facts()...)
	return append(facts, []fact{
		{name: "makespan", text: r.makespanText()},
		{name: "throttled", text: r.throttledText()},
		{name: "retried", text: fmt.Sprintf("%s after an error: %.3f per job", counted(r.All.Retried, "time"), ratio(r.All.Retried, r.All.Total))},
		{name: "fairness", text: r.fairnessText()},
	}...)
}

func ratio(part, whole int64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

func (r *demoResult) makespanText() string {
	over := 100 * (r.Makespan.Seconds()/r.Ideal.Seconds() - 1)
	text := fmt.Sprintf("%s; ideal %s, all jobs at %s: %+.1f %%", spell(r.Makespan), spell(r.Ideal),
		perSecond(min(r.Rates.Target, r.Rates.Limit)), over)
	if over < 0 {
		text += "\n(limits hold per second of the clock: one that has begun counts in full)"
	}
	return text
}

func (r *demoResult) throttledText() string {
	text := fmt.Sprintf("%s: %.3f per job; our limit is %s, the target's %s",
		counted(r.All.Throttled, "time"), ratio(r.All.Throttled, r.All.Total), perSecond(r.Rates.Limit), perSecond(r.Rates.Target))
	if r.Told.After > 0 {
		after := "none"
		if n := r.All.Throttled - r.Told.Throttled; n > 0 {
			after = humanize.Comma(n)
		}
		text += fmt.Sprintf("\n%s of them after %s, when the target's was configured", after, spell(r.Told.After))
	}
	return text
}

func (r *demoResult) fairnessText() string {
	jain := "no full window of backlogged tenants to measure"
	if r.Windows > 0 {
		jain = fmt.Sprintf("Jain index %.4f over %s (1 is even)", r.Jain, counted(int64(r.Windows), "window"))
	}
	farthest, worst := reportRow{}, -1.0
	for i := range r.Rows {
		if off := math.Abs(r.Rows[i].Half - r.Rows[i].Fair); off > worst {
			farthest, worst = r.Rows[i], off
		}
	}
	if worst < 0 {
		return jain
	}
	return jain + fmt.Sprintf("\n1st half of the run: farthest from its fair share is\n%s: %s instead of %s",
		printable(farthest.Name), partOf(farthest.Half), partOf(farthest.Fair))
}

// demoJSON is the last line of "demo --json".
type demoJSON struct {
	runResult
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
	// Error says what is not accounted for; empty if all is.
	Error string `json:"error,omitempty"`
}

func (r *demoResult) writeJSON(w io.Writer) error {
	result := demoJSON{
		runResult: r.json(r.merged, r.Jain, r.Windows), Retried: r.All.Retried,
		IdealMS: r.Ideal.Milliseconds(), InputSum: r.balance.Input.String(), FailedSum: r.balance.FailedSum.String(),
		Target: r.Rates.Target, Limit: r.Rates.Limit, Events: r.events.All, Committed: r.events.Committed,
		Rooms: r.rooms.json(),
	}
	if err := r.Verdict(); err != nil {
		result.Error = err.Error()
	}
	return json.NewEncoder(w).Encode(result)
}
