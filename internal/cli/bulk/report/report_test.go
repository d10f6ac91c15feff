package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/engine"
	"github.com/sluice-project/sluice/internal/cli/bulk/localtest"
	"github.com/sluice-project/sluice/internal/cli/clitest"
	"github.com/sluice-project/sluice/internal/cli/term"
)

var reportStart = time.Date(2025, 3, 4, 5, 6, 7, 0, time.UTC)

// finishedRun returns a run of several tenants and its tracker; the k-th tenant has 100·k jobs and
// is done after k seconds.
func finishedRun(count int) ([]bulk.Action, *Tracker) {
	actions := make([]bulk.Action, count)
	for i := range actions {
		jobs := int64(100 * (i + 1))
		actions[i] = bulk.Action{
			Spec:   bulk.Spec{ID: fmt.Sprintf("a-%d", i), Tenant: fmt.Sprintf("tenant-%02d", i)},
			Status: bulk.Completed, Total: jobs, EnteredAt: reportStart,
			FinishedAt: reportStart.Add(time.Duration(i+1) * time.Second),
			Counts:     bulk.Counts{Received: jobs, Succeeded: jobs - int64(i), Failed: int64(i), Throttled: int64(2 * i), Retried: int64(3 * i)},
		}
	}
	tracked := NewTracker(reportStart, count)
	for step := 1; step <= 10*count; step++ {
		at := time.Duration(step) * 100 * time.Millisecond
		looked := make([]bulk.Action, count)
		for i := range looked {
			looked[i] = actions[i]
			looked[i].Failed = 0
			looked[i].Succeeded = min(actions[i].Total, int64(10*step))
		}
		tracked.Observe(reportStart.Add(at), looked)
	}
	return actions, tracked
}

func TestReportGolden(t *testing.T) {
	actions, tracked := finishedRun(14)
	actions[3].Status, actions[3].Error = bulk.Failed, "3 of 400 jobs failed"
	for i := range actions {
		actions[i].Result = localtest.RawResult(map[string]any{
			"count": actions[i].Succeeded, "sum:amount": fmt.Sprintf("%d.25", i), "min:amount": nil,
			"avg:amount": "1.5", "top-errors": map[string]any{"errors": []any{map[string]any{"error": "500 Internal Server Error", "count": i}}, "exact": true},
		})
	}
	merged, err := mergeAggregates([]string{"count", "sum:amount", "min:amount", "avg:amount", "top-errors"}, actions)
	if err != nil {
		t.Fatal(err)
	}
	r := New(actions, tracked)
	var out bytes.Buffer
	for _, columns := range []int{80, 60} {
		fmt.Fprintf(&out, "# %d columns\n", columns)
		r.TenantTable(&out, columns, 5)
		merged.Write(&out, columns, 5, r)
	}
	out.WriteString("# totals\n")
	r.Fairness = engine.Fairness{Jain: 0.99934, Windows: 12}
	r.Totals(&out)
	failed := Failures{Messages: map[string]int64{}, Read: 21}
	for i := range 7 {
		failed.Messages[fmt.Sprintf("reason %d, %s", i, strings.Repeat("long ", 20))] = int64(i)
	}
	failed.Write(&out, 80)
	out.WriteString("# unfinished\n")
	lines := halfDone(8)
	lines[2].Succeeded = lines[2].Total - lines[2].Failed
	UnfinishedTable(&out, term.ByJobs(lines), 80, 3)
	clitest.Golden(t, "report", out.String())
}

func TestReportVerdict(t *testing.T) {
	actions, tracked := finishedRun(3)
	if err := New(actions, tracked).Verdict(); err != nil {
		t.Errorf("failed jobs alone are no failure of the run: %v", err)
	}
	actions[1].Status, actions[1].Error = bulk.Failed, "too many failed"
	if err := New(actions, tracked).Verdict(); err == nil || !strings.Contains(err.Error(), "tenant-01") {
		t.Errorf("an action FAILED, the verdict is %v", err)
	}
	actions[1].Succeeded--
	if err := New(actions, tracked).Verdict(); err == nil || !strings.Contains(err.Error(), "1 of 600 jobs have no outcome") {
		t.Errorf("a job is lost, the verdict is %v", err)
	}
}

func TestReportJSON(t *testing.T) {
	actions, tracked := finishedRun(2)
	r := New(actions, tracked)
	if err := r.Merge(nil, actions); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := r.WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	want := `{"actions":2,"jobs":300,"succeeded":299,"failed":1,"canceled":0,"throttled":2,"aggregates":{},"elapsed_ms":2000,"jain":null}` + "\n"
	if out.String() != want {
		t.Errorf("got  %swant %s", out.String(), want)
	}
}

func TestFairDivision(t *testing.T) {
	for _, test := range []struct {
		totals   []int64
		capacity float64
		want     []float64
	}{
		{[]int64{10, 10}, 10, []float64{5, 5}},
		{[]int64{2, 10}, 10, []float64{2, 8}},
		{[]int64{100, 1, 4}, 12, []float64{7, 1, 4}},
		{[]int64{1, 1}, 10, []float64{1, 1}},
		{nil, 10, []float64{}},
	} {
		actions := make([]bulk.Action, len(test.totals))
		for i := range actions {
			actions[i].Total = test.totals[i]
		}
		if got := fairDivision(actions, test.capacity); fmt.Sprint(got) != fmt.Sprint(test.want) {
			t.Errorf("fairDivision(%v, %g) = %v, want %v", test.totals, test.capacity, got, test.want)
		}
	}
}

// A merged sum is exact for any values in any order.
func TestMergeAggregatesExactly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Int64Range(-1e15, 1e15), 1, 20).Draw(t, "millionths")
		var all, least, most int64 = 0, math.MaxInt64, math.MinInt64
		actions := make([]bulk.Action, len(values))
		for i, v := range values {
			all += v
			least, most = min(least, v), max(most, v)
			text := millionths(v)
			actions[i].Result = localtest.RawResult(map[string]any{"sum:x": text, "min:x": text, "max:x": text, "count": 3})
		}
		merged, err := mergeAggregates([]string{"sum:x", "min:x", "max:x", "count"}, actions)
		if err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf(`{"count":%d,"max:x":%q,"min:x":%q,"sum:x":%q}`,
			3*len(values), millionths(most), millionths(least), millionths(all))
		if got, _ := json.Marshal(merged.Merged); string(got) != want {
			t.Fatalf("got %s, want %s", got, want)
		}
	})
}

// millionths formats v / 1,000,000 with six decimals.
func millionths(v int64) string {
	sign := ""
	if v < 0 {
		sign, v = "-", -v
	}
	return fmt.Sprintf("%s%d.%06d", sign, v/1e6, v%1e6)
}

func TestMergeAggregatesEdges(t *testing.T) {
	actions := []bulk.Action{
		{Spec: bulk.Spec{ID: "a", Tenant: "A"}, Result: localtest.RawResult(map[string]any{"min:x": nil, "avg:x": "1.5"})},
		{Spec: bulk.Spec{ID: "b", Tenant: "B"}, Result: localtest.RawResult(map[string]any{"min:x": "2.50", "avg:x": "3"})},
	}
	merged, err := mergeAggregates([]string{"min:x", "max:x", "avg:x"}, actions)
	if err != nil {
		t.Fatal(err)
	}
	got, _ := json.Marshal(merged)
	want := `{"Merged":{"max:x":null,"min:x":"2.50"},"PerAction":{"avg:x":{"A":"1.5","B":"3"}}}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	actions[0].Result = localtest.RawResult(map[string]any{"sum:x": "much"})
	if _, err := mergeAggregates([]string{"sum:x"}, actions); err == nil || !strings.Contains(err.Error(), "merge sum:x of action a") {
		t.Errorf("a sum that is no number: %v", err)
	}
}

// halfDone returns tenants with half of the jobs succeeded and some failed.
func halfDone(count int) []term.Standing {
	lines := make([]term.Standing, count)
	for i := range lines {
		total := int64(100 * (i + 1))
		lines[i] = term.Standing{Name: fmt.Sprintf("tenant-%02d", i), Total: total, Succeeded: total / 2, Failed: total / 20, InFlight: 1}
	}
	return lines
}
