package storetest

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/bulk"
)

// TestBudget compares the suite's own budget with the policy's.
func TestBudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := float64(rapid.IntRange(0, 40_000).Draw(t, "eighths")) / 8
		window := rapid.SampledFrom([]time.Duration{100 * time.Millisecond, time.Second, time.Minute}).Draw(t, "window")
		index := rapid.Int64Range(0, 20_000_000_000).Draw(t, "index")
		if got, want := bulk.Budget(rate, window, index), budget(rate, window, index); got != want {
			t.Fatalf("Budget(%g, %v, %d) is %d, want %d", rate, window, index, got, want)
		}
	})
}

// TestVerdicts checks which verdicts the model allows.
func TestVerdicts(t *testing.T) {
	a, now := &modelAction{}, time.Now()
	job := &modelJob{}
	live := &modelLease{action: a, job: job, live: true, deadline: now.Add(time.Hour)}
	late := &modelLease{action: a, job: job, live: true, deadline: now.Add(-time.Hour)}
	settled := &modelLease{action: a, job: job, settled: true}
	job.lease = settled
	for name, c := range map[string]struct {
		lease *modelLease
		want  []bulk.Verdict
	}{
		"never was":            {nil, []bulk.Verdict{bulk.Expired, bulk.Unknown}},
		"live":                 {live, []bulk.Verdict{bulk.Accepted}},
		"past its deadline":    {late, []bulk.Verdict{bulk.Accepted, bulk.Expired}},
		"settled":              {settled, []bulk.Verdict{bulk.Duplicate}},
		"settled, job went on": {&modelLease{action: a, job: job, settled: true}, []bulk.Verdict{bulk.Duplicate, bulk.Expired}},
		"expired":              {&modelLease{action: a, job: job}, []bulk.Verdict{bulk.Expired}},
	} {
		got := []bulk.Verdict{}
		for v := bulk.Accepted; v <= bulk.Unknown; v++ {
			if c.lease.allowed(v) {
				got = append(got, v)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: allows %v, want %v", name, got, c.want)
		}
	}
}

// TestPolicyTables checks the tables that stores are checked against with the policies.
func TestPolicyTables(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, c := range verdictTable {
		state := c.state
		if state.Fence = 2; !state.Known && !state.Finished {
			state.Fence = 0
		}
		if state.Deadline.IsZero() {
			state.Deadline = now
		}
		got := fences{state.Verdict(0, now), state.Verdict(1, now), state.Verdict(2, now), state.Verdict(3, now)}
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
	for _, c := range effectTable {
		for i, want := range []bulk.Effect{c.first, c.last, c.firstOfCanceled, c.lastOfCanceled} {
			if got := c.kind.Effect(i >= 2, 1+i%2, 2); got != want {
				t.Errorf("kind %d, case %d: effect %d, want %d", c.kind, i, got, want)
			}
		}
	}
	tags, virtual := map[string]float64{}, 0.0
	for i, c := range tagTable {
		tags[c.tenant], virtual = bulk.Charge(tags[c.tenant], virtual, c.jobs, c.weight)
		if tags[c.tenant] != c.taken || virtual != c.virtual {
			t.Errorf("after step %d: tag %g and virtual time %g, want %g and %g", i, tags[c.tenant], virtual, c.taken, c.virtual)
		}
	}
}
