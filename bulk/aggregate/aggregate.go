package aggregate

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/sluice-project/sluice/bulk"
)

// Limits of one action's aggregates.
const (
	maxNames        = 32
	maxFieldBytes   = 256
	maxExcerptBytes = 64
)

// Set is the compiled form of the aggregates that an action asks for: a MapReduce over the outcomes of an
// action's jobs. It has no state and is safe for concurrent use.
//
// The built-in aggregates are:
//
//   - count: the number of jobs that succeeded.
//   - sum:FIELD, min:FIELD, max:FIELD, avg:FIELD: over a field of the jobs' results. They are
//     exact decimals in any order of the jobs, each a string such as "1618853.645685". If no
//     job has a value, the sum is "0" and the others are null.
//   - top-errors, top-errors:K: the K (default 10, at most 1,000) most frequent errors of
//     failed jobs, with their counts.
//   - latency: p50, p90, p99, max and mean of the duration of each job's last attempt, in
//     milliseconds; null if there is no job.
//
// FIELD is a key of the result, which is a JSON object, or a dotted path into nested objects,
// such as order.amount. A key that is spelled like the whole path takes precedence, because
// the names of CSV columns may contain dots. If a key occurs twice, the last one counts, as
// in encoding/json. A value is a JSON number, or a string that contains one, in which
// surrounding spaces, a plus sign and leading zeros are allowed. A number has at most 100
// digits and an exponent from -100 to 100. A field that is missing, null or "" is skipped.
// Any other value, and a result that is not JSON, is an error of the aggregation.
//
// Map is called for each result, then Reduce for each batch of outcomes, then Result. The
// result does not depend on the order of the outcomes or on the batches; for top-errors, only
// as long as it is exact.
type Set struct {
	outputs []output
	fields  []field
	customs []customAggregate
	// errors and latency report whether the state has those parts.
	errors, latency bool
}

// output renders one named result of the state.
type output struct {
	name   string
	render renderFunc
}

type renderFunc func(*totals) (json.RawMessage, error)

// Error is the error of an aggregate that cannot be computed. Value is an excerpt of
// the wrong value; empty if the error is not about one value.
type Error struct {
	Name  string
	Value string
	Err   error
}

func (e *Error) Error() string {
	if e.Value == "" {
		return fmt.Sprintf("aggregate %s: %v", e.Name, e.Err)
	}
	return fmt.Sprintf("aggregate %s: value %s: %v", e.Name, e.Value, e.Err)
}

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Err }

func newError[T ~string | ~[]byte](name string, value T, err error) *Error {
	text := string(value[:min(len(value), maxExcerptBytes)])
	if len(value) > maxExcerptBytes {
		text += "…"
	}
	printable := func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}
	return &Error{Name: name, Value: strings.Map(printable, strings.ToValidUTF8(text, "\uFFFD")), Err: err}
}

// builtIn has the built-in aggregates. Each function returns how the result is
// rendered, or an error if its argument is wrong.
var builtIn = map[string]func(a *Set, name, argument string) (renderFunc, error){
	"count":      (*Set).parseCount,
	"sum":        numberKind((*numberState).renderSum),
	"min":        numberKind((*numberState).renderMin),
	"max":        numberKind((*numberState).renderMax),
	"avg":        numberKind((*numberState).renderAverage),
	"top-errors": (*Set).parseTopErrors,
	"latency":    (*Set).parseLatency,
}

const knownNames = "count, sum:FIELD, min:FIELD, max:FIELD, avg:FIELD, top-errors, top-errors:K, latency"

// Parse compiles names: at most 32, without duplicates. Without names, the set is
// empty. Custom has the aggregates that the program defines, by name. An error says which name
// is wrong, and what would be right.
func Parse(names []string, custom map[string]MapReduce) (*Set, error) {
	if len(names) > maxNames {
		return nil, fmt.Errorf("%d names: want at most %d", len(names), maxNames)
	}
	a := &Set{}
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			return nil, fmt.Errorf("%q is named twice", name)
		}
		render, err := a.parse(name, custom)
		if err != nil {
			return nil, fmt.Errorf("%.300q: %w", name, err)
		}
		a.outputs = append(a.outputs, output{name, render})
	}
	return a, nil
}

func (a *Set) parse(name string, custom map[string]MapReduce) (renderFunc, error) {
	kind, argument, hasArgument := strings.Cut(name, ":")
	parse, isBuiltIn := builtIn[kind]
	aggregator, isCustom := custom[name]
	switch {
	case isBuiltIn && isCustom:
		return nil, fmt.Errorf("%s is built in: give the program's own aggregate another name", kind)
	case isCustom:
		return a.addCustom(name, aggregator), nil
	case !isBuiltIn:
		known := append([]string{knownNames}, slices.Sorted(maps.Keys(custom))...)
		return nil, fmt.Errorf("not known: want %s", strings.Join(known, ", "))
	case hasArgument && argument == "":
		return nil, fmt.Errorf("nothing follows the colon: want %s", knownNames)
	}
	return parse(a, name, argument)
}

func (a *Set) parseCount(_, argument string) (renderFunc, error) {
	if argument != "" {
		return nil, fmt.Errorf("count takes no argument: want count")
	}
	return func(s *totals) (json.RawMessage, error) { return json.Marshal(s.succeeded) }, nil
}

// Len returns the number of aggregates.
func (a *Set) Len() int { return len(a.outputs) }

// Map takes from a job's result what the aggregates need, as bytes to be stored with the
// job's outcome: see [bulk.Outcome]. The bytes are empty if no aggregate needs the result,
// or the result has no value. An error is an *Error.
func (a *Set) Map(result []byte) (values []byte, err error) {
	values = []byte{valuesVersion}
	if len(a.fields) > 0 {
		if values, err = a.mapFields(values, result); err != nil {
			return nil, err
		}
	}
	for i := range a.customs {
		if values, err = a.customs[i].appendMapped(values, result); err != nil {
			return nil, err
		}
	}
	if len(values) == 1 {
		return nil, nil
	}
	return values, nil
}

// Reduce adds a batch of outcomes to a partial state, nil at first, and returns the new
// state. It does not change partial, and ignores the values of failed jobs. It returns an
// *Error if a custom aggregate failed, and another error if the state or a job's
// values are damaged.
//
// A state takes at most a few KiB, except for top-errors, which keeps up to 1,000 messages,
// and custom aggregates.
func (a *Set) Reduce(partial []byte, outcomes []bulk.Outcome) ([]byte, error) {
	state, err := a.decodeState(partial)
	if err != nil {
		return nil, err
	}
	custom := make([][][]byte, len(a.customs))
	for i := range outcomes {
		if err := a.add(state, &outcomes[i], custom); err != nil {
			return nil, err
		}
	}
	for i, values := range custom {
		if len(values) == 0 {
			continue
		}
		if state.customs[i], err = a.customs[i].reduce(state.customs[i], values); err != nil {
			return nil, err
		}
	}
	return a.encodeState(state), nil
}

// add adds one outcome to the state. It collects the values of custom aggregates, which
// reduce a batch at a time.
func (a *Set) add(state *totals, outcome *bulk.Outcome, custom [][][]byte) error {
	if a.latency {
		state.latency.add(outcome.Took)
	}
	if !outcome.Succeeded {
		if a.errors {
			state.errors.add(outcome.Error)
		}
		return nil
	}
	state.succeeded++
	if len(a.fields)+len(a.customs) == 0 {
		return nil
	}
	if err := a.addValues(state, outcome.Values, custom); err != nil {
		return fmt.Errorf("values of job %d: %w", outcome.Index, err)
	}
	return nil
}

// ReduceBatch adds outcomes to the partial state. It leaves out the values of a job whose result
// could not be mapped, and, where Reduce fails, all of the outcomes: then why says so.
func (a *Set) ReduceBatch(partial []byte, outcomes []bulk.Outcome) (reduced []byte, why string) {
	reduced, err := a.Reduce(partial, outcomes)
	if err != nil {
		return partial, fmt.Sprintf("the results leave out %d jobs: %v", len(outcomes), err)
	}
	for i := range outcomes {
		if o := &outcomes[i]; o.Succeeded && o.Error != "" {
			return reduced, fmt.Sprintf("the results leave out the values of job %d, and of others like it: %s", o.Index, o.Error)
		}
	}
	return reduced, ""
}

// Result renders the final values of a partial state, by name.
func (a *Set) Result(partial []byte) (map[string]json.RawMessage, error) {
	state, err := a.decodeState(partial)
	if err != nil {
		return nil, err
	}
	results := make(map[string]json.RawMessage, len(a.outputs))
	for _, output := range a.outputs {
		if results[output.name], err = output.render(state); err != nil {
			return nil, err
		}
	}
	return results, nil
}
