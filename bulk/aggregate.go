package bulk

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
)

// Bounds of what one action may aggregate.
const (
	maxAggregates   = 32
	maxFieldBytes   = 256
	maxExcerptBytes = 64
)

// Aggregates is the compiled form of [Spec.Aggregate]: a MapReduce over the
// outcomes of an action's jobs. It holds no state of its own, so it is safe for
// concurrent use.
//
// The aggregates that are built in:
//
//   - count: how many jobs succeeded, a number.
//   - sum:FIELD, min:FIELD, max:FIELD, avg:FIELD: of a field of the jobs'
//     results, exact decimals whatever the order, each a string such as
//     "1618853.645685". With no value to go by, the sum is "0" and the others
//     are null.
//   - top-errors, top-errors:K: the K (default 10, at most 1,000) most frequent
//     errors of jobs that failed, with their counts.
//   - latency: p50, p90, p99, max and mean of the time that the last attempt of
//     each job took, in milliseconds; null if there is no job.
//
// FIELD is a key of the result, a JSON object, or a dotted path into objects
// within it, such as order.amount; a key that is spelt like the whole path goes
// first, because a CSV column may have dots in its name. Of a key that comes
// twice, the last counts, as in encoding/json. A value is a JSON number, or a
// string that holds one; spaces around it, a plus sign and leading zeros are
// allowed. A number has at most 100 digits and an exponent from -100 to 100. A
// field that is missing, null or "" is left out. Anything else, and a result
// that is not JSON, is an error of the aggregation.
//
// The methods are used in this order: Map for each result, Reduce for each
// batch of outcomes, Result at the end. However outcomes are ordered and cut
// into batches, the result is the same; for top-errors this holds while it is
// exact.
type Aggregates struct {
	outputs []aggregateOutput
	fields  []aggregateField
	customs []customAggregate
	// errors and latency tell whether the state has those parts.
	errors, latency bool
}

// aggregateOutput renders one named result of the state.
type aggregateOutput struct {
	name   string
	render aggregateRender
}

type aggregateRender func(*aggregateState) (json.RawMessage, error)

// AggregateError says which aggregate cannot be computed, and why. Value is an
// excerpt of what it was given; empty if one value is not to blame.
type AggregateError struct {
	Name  string
	Value string
	Err   error
}

func (e *AggregateError) Error() string {
	if e.Value == "" {
		return fmt.Sprintf("aggregate %s: %v", e.Name, e.Err)
	}
	return fmt.Sprintf("aggregate %s: value %s: %v", e.Name, e.Value, e.Err)
}

// Unwrap returns the reason alone.
func (e *AggregateError) Unwrap() error { return e.Err }

func newAggregateError[T ~string | ~[]byte](name string, value T, err error) *AggregateError {
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
	return &AggregateError{Name: name, Value: strings.Map(printable, strings.ToValidUTF8(text, "\uFFFD")), Err: err}
}

// aggregateKinds has the aggregates that are built in. Each returns how its
// result is rendered, or why its argument is wrong.
var aggregateKinds = map[string]func(a *Aggregates, name, argument string) (aggregateRender, error){
	"count":      (*Aggregates).parseCount,
	"sum":        numberKind((*numberState).renderSum),
	"min":        numberKind((*numberState).renderMin),
	"max":        numberKind((*numberState).renderMax),
	"avg":        numberKind((*numberState).renderAverage),
	"top-errors": (*Aggregates).parseTopErrors,
	"latency":    (*Aggregates).parseLatency,
}

const knownAggregates = "count, sum:FIELD, min:FIELD, max:FIELD, avg:FIELD, top-errors, top-errors:K, latency"

// ParseAggregates compiles names, at most 32 and none of them twice; no names
// are an empty set. Custom has the aggregates that the program defines itself,
// by name. An error is a *SpecError of the field "aggregate".
func ParseAggregates(names []string, custom map[string]Aggregator) (*Aggregates, error) {
	if len(names) > maxAggregates {
		return nil, &SpecError{"aggregate", fmt.Sprintf("%d names: want at most %d", len(names), maxAggregates)}
	}
	a := &Aggregates{}
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			return nil, &SpecError{"aggregate", fmt.Sprintf("%q is named twice", name)}
		}
		render, err := a.parse(name, custom)
		if err != nil {
			return nil, &SpecError{"aggregate", fmt.Sprintf("%.300q: %v", name, err)}
		}
		a.outputs = append(a.outputs, aggregateOutput{name, render})
	}
	return a, nil
}

func (a *Aggregates) parse(name string, custom map[string]Aggregator) (aggregateRender, error) {
	kind, argument, hasArgument := strings.Cut(name, ":")
	parse, isBuiltIn := aggregateKinds[kind]
	aggregator, isCustom := custom[name]
	switch {
	case isBuiltIn && isCustom:
		return nil, fmt.Errorf("%s is built in: give the program's own aggregate another name", kind)
	case isCustom:
		return a.addCustom(name, aggregator), nil
	case !isBuiltIn:
		known := append([]string{knownAggregates}, slices.Sorted(maps.Keys(custom))...)
		return nil, fmt.Errorf("not known: want %s", strings.Join(known, ", "))
	case hasArgument && argument == "":
		return nil, fmt.Errorf("nothing follows the colon: want %s", knownAggregates)
	}
	return parse(a, name, argument)
}

func (a *Aggregates) parseCount(_, argument string) (aggregateRender, error) {
	if argument != "" {
		return nil, fmt.Errorf("count takes no argument: want count")
	}
	return func(s *aggregateState) (json.RawMessage, error) { return json.Marshal(s.succeeded) }, nil
}

// Len returns how many aggregates there are.
func (a *Aggregates) Len() int { return len(a.outputs) }

// Map takes from a job's result what the aggregates need, as bytes to be stored
// with the job's outcome: see [Outcome.Values]. They are empty where nothing is
// needed of the result, or nothing is in it. An error is an *AggregateError.
func (a *Aggregates) Map(result []byte) (values []byte, err error) {
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

// Reduce adds a batch of outcomes to a partial state, nil at first, and returns
// the new state; the partial it was given is not changed. Values of jobs that
// failed are not looked at. An error says that a custom aggregate failed
// (*AggregateError), or that the state or a job's values are damaged.
//
// A state takes at most a few KiB, but for top-errors, which keeps up to 1,000
// messages, and for what custom aggregates keep.
func (a *Aggregates) Reduce(partial []byte, outcomes []Outcome) ([]byte, error) {
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

// add adds one outcome to the state; what belongs to custom aggregates is
// collected, because they reduce a batch at a time.
func (a *Aggregates) add(state *aggregateState, outcome *Outcome, custom [][][]byte) error {
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

// Result renders the final values of a partial state, one for each name.
func (a *Aggregates) Result(partial []byte) (map[string]json.RawMessage, error) {
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
