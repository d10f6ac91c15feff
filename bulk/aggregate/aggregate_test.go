package aggregate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/bulk"
)

// maxLength is an MapReduce defined by a program, for tests.
var maxLength = New(
	func(result []byte) (int, error) { return len(result), nil },
	func(a, b int) int { return max(a, b) },
)

func mustParse(t testing.TB, names ...string) *Set {
	t.Helper()
	a, err := Parse(names, map[string]MapReduce{"max-length": maxLength})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

type fataler interface {
	Helper()
	Fatal(args ...any)
}

// succeeded returns the outcome of a job that succeeded with a result.
func succeeded(t fataler, a *Set, result string) bulk.Outcome {
	t.Helper()
	values, err := a.Map([]byte(result))
	if err != nil {
		t.Fatal(err)
	}
	return bulk.Outcome{Succeeded: true, Values: values}
}

func reduceAll(t fataler, a *Set, batches ...[]bulk.Outcome) map[string]string {
	t.Helper()
	var partial []byte
	var err error
	for _, batch := range batches {
		if partial, err = a.Reduce(partial, batch); err != nil {
			t.Fatal(err)
		}
	}
	result, err := a.Result(partial)
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for name, raw := range result {
		texts[name] = string(raw)
	}
	return texts
}

func TestParseAggregatesRefuses(t *testing.T) {
	many := make([]string, 33)
	for i := range many {
		many[i] = fmt.Sprintf("sum:f%d", i)
	}
	for _, c := range []struct {
		names []string
		want  string
	}{
		{[]string{"median:x"}, "latency, max-length"},
		{[]string{""}, "not known"},
		{[]string{"count:x"}, "count takes no argument"},
		{[]string{"latency:99"}, "latency takes no argument"},
		{[]string{"latency:"}, "nothing follows the colon"},
		{[]string{"sum"}, "name the field"},
		{[]string{"sum:"}, "nothing follows the colon"},
		{[]string{"sum:\xff"}, "UTF-8"},
		{[]string{"avg:" + strings.Repeat("x", 257)}, "256 bytes"},
		{[]string{"top-errors:0"}, "K from 1 to 1000"},
		{[]string{"top-errors:1001"}, "K from 1 to 1000"},
		{[]string{"top-errors:x"}, "K from 1 to 1000"},
		{[]string{"count", "sum:x", "count"}, "named twice"},
		{[]string{"sum:own"}, "built in"},
		{many, "at most 32"},
	} {
		_, err := Parse(c.names, map[string]MapReduce{"max-length": maxLength, "sum:own": maxLength})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.60q: error %v, want one of aggregate with %q", c.names, err, c.want)
		}
	}
}

func TestEmptySet(t *testing.T) {
	a := mustParse(t)
	values, err := a.Map([]byte("not json"))
	if a.Len() != 0 || values != nil || err != nil {
		t.Fatalf("Len %d, Map %v %v", a.Len(), values, err)
	}
	if got := reduceAll(t, a, []bulk.Outcome{{Succeeded: true}, {}}); len(got) != 0 {
		t.Fatalf("result %v", got)
	}
}

func TestValuesAreEmptyWhereNoResultIsNeeded(t *testing.T) {
	a := mustParse(t, "count", "latency", "top-errors", "top-errors:3")
	for _, result := range []string{"", "{", `{"x":1}`} {
		if values, err := a.Map([]byte(result)); len(values) != 0 || err != nil {
			t.Errorf("Map(%q) = %v, %v", result, values, err)
		}
	}
	a = mustParse(t, "sum:x", "min:y")
	if values, err := a.Map([]byte(`{"x":null,"y":"","z":7}`)); len(values) != 0 || err != nil {
		t.Errorf("all fields left out: %v, %v", values, err)
	}
}

func TestNothingReduced(t *testing.T) {
	a := mustParse(t, "count", "sum:x", "min:x", "max:x", "avg:x", "top-errors", "latency", "max-length")
	want := map[string]string{
		"count": "0", "sum:x": `"0"`, "min:x": "null", "max:x": "null", "avg:x": "null",
		"top-errors": `{"errors":[],"exact":true}`, "latency": "null", "max-length": "null",
	}
	if got := reduceAll(t, a); !reflect.DeepEqual(got, want) {
		t.Errorf("no batch: %v", got)
	}
	if got := reduceAll(t, a, nil, nil); !reflect.DeepEqual(got, want) {
		t.Errorf("empty batches: %v", got)
	}
}

func TestReduceCountsByOutcome(t *testing.T) {
	a := mustParse(t, "sum:x", "count", "top-errors:1", "latency", "max-length")
	got := reduceAll(t, a, []bulk.Outcome{
		succeeded(t, a, `{"x":1.5}`),
		succeeded(t, a, `{"x":"2.25"}`),
		succeeded(t, a, `{}`),
		{Error: "gone", Values: []byte("not looked at"), Took: 2 * time.Millisecond},
		{Error: "gone"},
		{Error: "away"},
	})
	want := map[string]string{
		"sum:x": `"3.75"`, "count": "3", "max-length": "12",
		"top-errors:1": `{"errors":[{"error":"gone","count":2}],"exact":true}`,
		"latency":      `{"p50_ms":0,"p90_ms":2,"p99_ms":2,"max_ms":2,"mean_ms":0.333333}`,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// drawOutcomes draws outcomes whose results contain numbers of all kinds.
func drawOutcomes(t *rapid.T, a *Set) (outcomes []bulk.Outcome, numbers []string) {
	for range rapid.IntRange(0, 60).Draw(t, "jobs") {
		took := time.Duration(rapid.Int64Range(0, int64(24*time.Hour)).Draw(t, "took"))
		if rapid.IntRange(0, 3).Draw(t, "fate") == 0 {
			message := rapid.SampledFrom([]string{"", "a", "b", "c\xff", "é"}).Draw(t, "error")
			outcomes = append(outcomes, bulk.Outcome{Error: message, Took: took})
			continue
		}
		result := `{"other":"x"}`
		if rapid.IntRange(0, 5).Draw(t, "left out") > 0 {
			number := drawNumber(t)
			numbers = append(numbers, number)
			result = `{"x":"` + number + `"}`
		}
		outcome := succeeded(t, a, result)
		outcome.Took = took
		outcomes = append(outcomes, outcome)
	}
	return outcomes, numbers
}

func drawNumber(t *rapid.T) string {
	return rapid.OneOf(
		rapid.StringMatching(`-?[0-9]{1,3}\.[0-9]{2}`),
		rapid.StringMatching(`[+-]?[0-9]{1,25}(\.[0-9]{0,25})?([eE][+-]?[0-9]{1,2})?`),
		rapid.StringMatching(`-?9{17,19}`),
		rapid.SampledFrom([]string{"9223372036854775807", "-9223372036854775808", "9223372036854775808", "1e100", "-1e-100"}),
	).Draw(t, "number")
}

// cut shuffles outcomes and splits them into batches.
func cut(t *rapid.T, outcomes []bulk.Outcome) (batches [][]bulk.Outcome) {
	rest := outcomes
	if len(rest) > 1 {
		rest = rapid.Permutation(outcomes).Draw(t, "order")
	}
	for len(rest) > 0 {
		n := rapid.IntRange(1, len(rest)).Draw(t, "batch")
		batches, rest = append(batches, rest[:n]), rest[n:]
	}
	return batches
}

func TestOrderAndBatchesCannotBeSeen(t *testing.T) {
	a := mustParse(t, "count", "sum:x", "min:x", "max:x", "avg:x", "top-errors", "latency", "max-length")
	rapid.Check(t, func(t *rapid.T) {
		outcomes, _ := drawOutcomes(t, a)
		want := reduceAll(t, a, outcomes)
		if got := reduceAll(t, a, cut(t, outcomes)...); !reflect.DeepEqual(got, want) {
			t.Fatalf("got  %v\nwant %v", got, want)
		}
	})
}

func TestEqualStatesHaveEqualBytes(t *testing.T) {
	a := mustParse(t, "count", "sum:x", "top-errors", "latency")
	rapid.Check(t, func(t *rapid.T) {
		outcomes, _ := drawOutcomes(t, a)
		batches := cut(t, outcomes)
		var partial []byte
		for _, batch := range batches {
			before := bytes.Clone(partial)
			next, err := a.Reduce(partial, batch)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(before, partial) {
				t.Fatal("Reduce changed the state it was given")
			}
			partial = next
		}
		whole, err := a.Reduce(nil, outcomes)
		if err != nil {
			t.Fatal(err)
		}
		if len(outcomes) > 0 && !bytes.Equal(partial, whole) {
			t.Fatalf("by batches %x\nat once    %x", partial, whole)
		}
	})
}

func TestDamagedBytes(t *testing.T) {
	a := mustParse(t, "count", "sum:x", "top-errors", "latency", "max-length")
	outcome := succeeded(t, a, `{"x":"12345678901234567890.5"}`)
	state, err := a.Reduce(nil, []bulk.Outcome{outcome, {Error: "gone", Took: time.Second}})
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; n < len(state); n++ {
		if _, err := a.Result(state[:n]); err == nil {
			t.Errorf("a state cut to %d of %d bytes was accepted", n, len(state))
		}
	}
	for n := range outcome.Values {
		if _, err := a.Reduce(nil, []bulk.Outcome{{Succeeded: true, Values: outcome.Values[:n]}}); err == nil {
			t.Errorf("values cut to %d of %d bytes were accepted", n, len(outcome.Values))
		}
	}
	state[0]++
	if _, err := a.Result(state); err == nil || !strings.Contains(err.Error(), "version 2") {
		t.Errorf("another version: %v", err)
	}
	state[0]--
	if _, err := a.Result(append(state, 0)); !errors.Is(err, errDamaged) {
		t.Errorf("a byte too many: %v", err)
	}
}

// TestReduceBatch: a result that could not be mapped is left out, and the others of its batch are
// not. Where values are damaged, the state stays as it was.
func TestReduceBatch(t *testing.T) {
	a := mustParse(t, "sum:x")
	good := succeeded(t, a, `{"x":1}`)
	partial, why := a.ReduceBatch(nil, []bulk.Outcome{good, {Error: "it failed"}})
	if why != "" {
		t.Fatal(why)
	}
	for want, bad := range map[string]bulk.Outcome{
		"the results leave out 3 jobs: values of job 7: the stored bytes are damaged": {Index: 7, Succeeded: true, Values: good.Values[:2]},
		"the results leave out 3 jobs: values of job 7: format version 9 is not":      {Index: 7, Succeeded: true, Values: []byte{9}},
	} {
		after, why := a.ReduceBatch(partial, []bulk.Outcome{good, bad, good})
		if !strings.HasPrefix(why, want) || !bytes.Equal(after, partial) {
			t.Errorf("%s: got %q, state %x, before %x", want, why, after, partial)
		}
	}
	after, why := a.ReduceBatch(partial, []bulk.Outcome{good, {Index: 7, Succeeded: true, Error: "it is not a number"}, good})
	result, err := a.Result(after)
	if why != "the results leave out the values of job 7, and of others like it: it is not a number" || err != nil || string(result["sum:x"]) != `"3"` {
		t.Errorf("got %q, %v, %s", why, err, result["sum:x"])
	}
}

// FuzzReduceBytes checks that no stored bytes cause a panic, and that an accepted state has
// the same meaning after it was written again.
func FuzzReduceBytes(f *testing.F) {
	a := mustParse(f, "count", "sum:x", "min:x", "avg:x", "max:y", "top-errors", "latency", "max-length")
	outcome := succeeded(f, a, `{"x":"-12345678901234567890.5","y":1e-3}`)
	state, err := a.Reduce(nil, []bulk.Outcome{outcome, {Error: "gone", Took: time.Second}, {Error: "away"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(state, outcome.Values)
	f.Add([]byte(nil), []byte(nil))
	f.Add([]byte{1}, []byte{1, 0, 0, 0})
	f.Fuzz(func(t *testing.T, state, values []byte) {
		again, err := a.Reduce(state, nil)
		before, beforeErr := a.Result(state)
		if err == nil {
			after, afterErr := a.Result(again)
			if !reflect.DeepEqual(before, after) || (beforeErr == nil) != (afterErr == nil) {
				t.Fatalf("before %v %v, after %v %v", before, beforeErr, after, afterErr)
			}
		} else if beforeErr == nil {
			t.Fatalf("Result accepts what Reduce refuses: %v", err)
		}
		next, err := a.Reduce(state, []bulk.Outcome{{Succeeded: true, Values: values}, {Error: "x", Took: time.Hour}})
		if err == nil && bytes.Equal(next, again) {
			t.Fatal("two outcomes left no trace")
		}
	})
}

func TestCustom(t *testing.T) {
	type span struct{ Low, High string }
	spans := New(
		func(result []byte) (span, error) {
			var text string
			err := json.Unmarshal(result, &text)
			return span{text, text}, err
		},
		func(a, b span) span { return span{min(a.Low, b.Low), max(a.High, b.High)} },
	)
	a, err := Parse([]string{"spans", "count"}, map[string]MapReduce{"spans": spans})
	if err != nil {
		t.Fatal(err)
	}
	b, x, c := succeeded(t, a, `"b"`), succeeded(t, a, `"x"`), succeeded(t, a, `"c"`)
	want := map[string]string{"spans": `{"Low":"b","High":"x"}`, "count": "3"}
	if got := reduceAll(t, a, []bulk.Outcome{b, x}, []bulk.Outcome{{}}, []bulk.Outcome{c}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	var failed *Error
	if _, err := a.Map([]byte("7\n")); !errors.As(err, &failed) || failed.Name != "spans" || failed.Value != "7 " {
		t.Errorf("a mapper's error: %#v", err)
	}
}

// faulty is an MapReduce that makes mistakes.
type faulty struct{ mapped, reduced, result func() ([]byte, error) }

func (f faulty) Map([]byte) ([]byte, error)              { return f.mapped() }
func (f faulty) Reduce([]byte, [][]byte) ([]byte, error) { return f.reduced() }
func (f faulty) Result([]byte) (json.RawMessage, error)  { return f.result() }

func TestFaultyCustom(t *testing.T) {
	good := func() ([]byte, error) { return []byte("1"), nil }
	long := func() ([]byte, error) { return make([]byte, maxCustomState+1), nil }
	panics := func() ([]byte, error) { panic("oops") }
	for _, c := range []struct {
		aggregator faulty
		want       string
	}{
		{faulty{long, good, good}, "want at most 65536"},
		{faulty{panics, good, good}, "panic: oops"},
		{faulty{good, long, good}, "want at most 1048576"},
		{faulty{good, panics, good}, "panic: oops"},
		{faulty{good, good, panics}, "panic: oops"},
		{faulty{good, good, func() ([]byte, error) { return []byte("{"), nil }}, "not JSON"},
	} {
		a, err := Parse([]string{"own"}, map[string]MapReduce{"own": c.aggregator})
		if err != nil {
			t.Fatal(err)
		}
		err = run(a)
		var failed *Error
		if !errors.As(err, &failed) || failed.Name != "own" || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
}

// run maps, reduces and renders one result, and returns the first error.
func run(a *Set) error {
	values, err := a.Map([]byte("{}"))
	if err != nil {
		return err
	}
	partial, err := a.Reduce(nil, []bulk.Outcome{{Succeeded: true, Values: values}})
	if err != nil {
		return err
	}
	_, err = a.Result(partial)
	return err
}
