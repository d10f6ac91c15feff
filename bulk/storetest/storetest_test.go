package storetest

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/bulk"
)

// faultVariable names the mistake that the store in memory makes, in the process
// that TestFaults starts.
const faultVariable = "SLUICE_STORETEST_FAULT"

func memoryFactory(fault string) Factory {
	reopen := func(_ testing.TB, s bulk.Store) bulk.Store { return s.(*memory).reopen() }
	return Factory{
		Open:   func(_ testing.TB, config bulk.Config) bulk.Store { return newMemory(config, fault) },
		Reopen: reopen,
		Crash:  reopen,
	}
}

// TestMemory runs the suite against the store in memory.
func TestMemory(t *testing.T) { Run(t, memoryFactory(os.Getenv(faultVariable))) }

// faults are the mistakes that the store in memory can make, with the groups of
// cases that must find each: without SLUICE_LONG, the first of them.
var faults = map[string][]string{
	"create overwrites":           {"upload"},
	"append after seal":           {"upload", "model"},
	"overlap appended":            {"upload", "model"},
	"payload not copied":          {"upload"},
	"last in first out":           {"upload", "model"},
	"pause leaves ready":          {"admit", "model"},
	"cancel keeps non-ready":      {"admit", "model"},
	"unfinished forgets canceled": {"actions", "model"},
	"reopen forgets starts":       {"restart", "model"},
	"reopen ends remote leases":   {"restart", "model"},
	"ready not counted":           {"limits", "model"},
	"idle types hold slots":       {"limits", "model"},
	"concurrency ignored":         {"limits", "model"},
	"paused in backlog":           {"admit", "model"},
	"weight ignored":              {"admit"},
	"newcomer claims the past":    {"admit"},
	"types not in turn":           {"lease"},
	"auto without a limit":        {"auto"},
	"auto learns nothing":         {"auto"},
	"auto ignores throttles":      {"auto"},
	"auto rises when idle":        {"auto"},
	"auto learns at once":         {"auto"},
	"auto starts anew":            {"auto"},
	"auto outlives its setting":   {"auto"},
	"reopen forgets auto":         {"auto"},
	"lease ignores limits":        {"limits", "model"},
	"fence stands still":          {"lease", "model"},
	"outcomes without aggregate":  {"results", "model"},
	"counts twice":                {"lease", "model"},
	"extend does nothing":         {"lease", "model"},
	"throttle uses an attempt":    {"retry", "model"},
	"spec attempts ignored":       {"retry", "model"},
	"retry-after ignored":         {"retry", "model"},
	"canceled jobs come back":     {"admit", "model"},
	"errors not cut":              {"results"},
	"no dead letters":             {"results", "model"},
	"dispatch in index order":     {"retry"},
	"dispatch too early":          {"retry", "model"},
	"returned jobs go last":       {"retry"},
	"expired for ever":            {"lease", "model"},
	"crash uses an attempt":       {"restart", "model"},
	"crashes for ever":            {"restart", "model"},

	"schedules without revisions": {"schedules"},
	"schedules begin anew":        {"schedules"},
	"schedules forgotten":         {"schedules"},
	"schedules without bound":     {"schedules"},
	"schedules of one name":       {"schedules"},
	"schedules as they came":      {"schedules"},
	"schedules stay":              {"schedules"},

	"pause tells nobody":             {"events", "model"},
	"failures tell nobody":           {"events", "model"},
	"jobs tell twice":                {"events", "model"},
	"job events unasked":             {"events", "model"},
	"newest first":                   {"events", "model"},
	"ids change":                     {"events", "model"},
	"ids of each action":             {"events", "model"},
	"published comes again":          {"events", "model"},
	"reopen forgets events":          {"events", "model"},
	"turning off empties the outbox": {"events"},
	"large results":                  {"events"},
	"outbox without bound":           {"events"},
}

// TestFaults makes the store in memory err in one way at a time, and checks that
// the suite finds it: each in a process of its own, where TestMemory must fail.
func TestFaults(t *testing.T) {
	for fault, groups := range faults {
		if os.Getenv(longVariable) != "1" {
			groups = groups[:1]
		}
		for _, group := range groups {
			t.Run(fault+" by "+group, func(t *testing.T) {
				command := exec.Command(os.Args[0], "-test.run=TestMemory/"+group, "-test.failfast", "-rapid.nofailfile", "-rapid.shrinktime=1ms")
				command.Env = append(os.Environ(), faultVariable+"="+fault, longVariable+"=1")
				output, err := command.CombinedOutput()
				if err == nil {
					t.Fatalf("%s passes a store with the fault %q", group, fault)
				}
				if !strings.Contains(string(output), "--- FAIL: TestMemory/"+group) || strings.Contains(string(output), "panic:") {
					t.Fatalf("the suite broke instead of failing:\n%s", output)
				}
			})
		}
	}
}

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
