package aggregate

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/bulk"
)

func topErrors(t fataler, a *Set, name string, batches ...[]bulk.Outcome) (result topErrorsResult) {
	t.Helper()
	if err := json.Unmarshal([]byte(reduceAll(t, a, batches...)[name]), &result); err != nil {
		t.Fatal(err)
	}
	return result
}

func failedWith(messages ...string) (outcomes []bulk.Outcome) {
	for _, message := range messages {
		outcomes = append(outcomes, bulk.Outcome{Error: message})
	}
	return outcomes
}

func TestTopErrors(t *testing.T) {
	a := mustParse(t, "top-errors", "top-errors:2")
	outcomes := failedWith("b", "a", "c", "c", "", "b", "d")
	for i := range 20 {
		outcomes = append(outcomes, bulk.Outcome{Error: fmt.Sprint("once ", i)}, bulk.Outcome{Succeeded: true, Error: "of an earlier attempt"})
	}
	got := topErrors(t, a, "top-errors:2", outcomes[:3], outcomes[3:])
	if fmt.Sprint(got) != "{[{b 2} {c 2}] true 0}" {
		t.Errorf("the first two: %v", got)
	}
	if got = topErrors(t, a, "top-errors", outcomes); len(got.Errors) != 10 || got.Errors[2] != (topError{"", 1}) {
		t.Errorf("the default: %v", got)
	}
}

func TestErrorMessagesAreCut(t *testing.T) {
	a := mustParse(t, "top-errors")
	kept := strings.Repeat("x", bulk.MaxErrorBytes-1)
	got := topErrors(t, a, "top-errors", failedWith(kept+"é", kept+"è", strings.Repeat("y", bulk.MaxErrorBytes+5)))
	want := []topError{{kept, 2}, {strings.Repeat("y", bulk.MaxErrorBytes), 1}}
	if fmt.Sprint(got.Errors) != fmt.Sprint(want) {
		t.Errorf("got %v", got)
	}
}

func TestTopErrorsAreExactUpToTheBound(t *testing.T) {
	a := mustParse(t, "top-errors:1000")
	var outcomes []bulk.Outcome
	for range 3 {
		for i := range maxErrorMessages {
			outcomes = append(outcomes, bulk.Outcome{Error: fmt.Sprint(i)})
		}
	}
	got := topErrors(t, a, "top-errors:1000", outcomes[:1500], outcomes[1500:])
	if !got.Exact || len(got.Errors) != maxErrorMessages || got.Errors[999].Count != 3 {
		t.Errorf("exact %v, %d messages, the last %v", got.Exact, len(got.Errors), got.Errors[len(got.Errors)-1])
	}
	if got = topErrors(t, a, "top-errors:1000", outcomes, failedWith("one more")); got.Exact || got.CountTooLowBy != 1 {
		t.Errorf("beyond the bound: exact %v, too low by %d", got.Exact, got.CountTooLowBy)
	}
}

// TestTopErrorsBeyondTheBound checks that no count is too high, none is lower than the result
// says, and frequent messages are found.
func TestTopErrorsBeyondTheBound(t *testing.T) {
	a := mustParse(t, "top-errors:1000")
	rapid.Check(t, func(t *rapid.T) {
		var messages []string
		for i := range rapid.IntRange(1001, 4000).Draw(t, "rare") {
			messages = append(messages, fmt.Sprint("rare ", i))
		}
		for kind := range rapid.IntRange(0, 5).Draw(t, "frequent") {
			for range rapid.IntRange(1, 500).Draw(t, "times") {
				messages = append(messages, fmt.Sprint("frequent ", kind))
			}
		}
		rnd := rapid.Uint64().Draw(t, "seed")
		truth := map[string]uint64{}
		for i := range messages {
			rnd = rnd*6364136223846793005 + 1442695040888963407
			j := i + int(rnd>>33)%(len(messages)-i)
			messages[i], messages[j] = messages[j], messages[i]
			truth[messages[i]]++
		}
		at := rapid.IntRange(0, len(messages)).Draw(t, "cut")
		got := topErrors(t, a, "top-errors:1000", failedWith(messages[:at]...), failedWith(messages[at:]...))
		if got.Exact || got.CountTooLowBy > uint64(len(messages)/(maxErrorMessages+1)) {
			t.Fatalf("exact %v, too low by %d of %d", got.Exact, got.CountTooLowBy, len(messages))
		}
		counted := map[string]uint64{}
		for _, e := range got.Errors {
			counted[e.Error] = e.Count
		}
		for message, count := range truth {
			if counted[message] > count || counted[message]+got.CountTooLowBy < count {
				t.Fatalf("%s: %d, in truth %d, too low by at most %d", message, counted[message], count, got.CountTooLowBy)
			}
		}
	})
}

func BenchmarkReduceDistinctErrors(b *testing.B) {
	a := mustParse(b, "top-errors")
	var outcomes []bulk.Outcome
	for i := range 1000 {
		outcomes = append(outcomes, bulk.Outcome{Error: fmt.Sprintf("POST https://example.com/orders/%d: 500 Internal Server Error", i*7)})
	}
	partial, err := a.Reduce(nil, outcomes)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(len(partial)), "state-bytes")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := a.Reduce(partial, outcomes); err != nil {
			b.Fatal(err)
		}
	}
}
