package view

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"

	"github.com/sluice-project/sluice/topic"
)

// Bounds of a filter.
const (
	// FilterCostLimit bounds what evaluating a filter for one record may cost,
	// in CEL's units: one for each step, and one for each 10 bytes that a
	// step looks at. A filter that needs more for a record does not match it.
	FilterCostLimit = 1_000_000
	// FilterBytes is the most bytes of an expression.
	FilterBytes = 4096
)

// Error says what is wrong with the expression of a filter. It is an
// ErrInvalidSetting.
type Error struct {
	Where string
	// Line and Column say where, from 1; 0 if it is the expression as a whole.
	Line, Column int
	// Problem says what is wrong, and what would be right.
	Problem string
}

func (e *Error) Error() string {
	place := ""
	switch {
	case e.Line > 1:
		place = fmt.Sprintf(" at line %d, column %d", e.Line, e.Column)
	case e.Line == 1:
		place = fmt.Sprintf(" at column %d", e.Column)
	}
	return fmt.Sprintf("%v: filter %q%s: %s", topic.ErrInvalidSetting, e.Where, place, e.Problem)
}

// Unwrap makes it an ErrInvalidSetting.
func (e *Error) Unwrap() error { return topic.ErrInvalidSetting }

// Filter decides which records a view shows. It may be used from many goroutines.
type Filter struct {
	where   string
	program cel.Program
	// headers reports whether the expression looks at them, costly whether one
	// record may take long.
	headers, costly bool

	records, matched, failed atomic.Int64

	mu     sync.Mutex
	hidden map[any]*HiddenRanges
}

// Counts are what a filter has done since it was compiled.
type Counts struct {
	// Records is how many it looked at, of which Matched passed. For Failed of
	// them it could not be evaluated; they did not pass.
	Records, Matched, Failed int64
}

// Counts returns what the filter has done.
func (f *Filter) Counts() Counts {
	return Counts{f.records.Load(), f.matched.Load(), f.failed.Load()}
}

// HiddenOf returns the ranges that are known to be hidden in a partition, which is any comparable key.
func (f *Filter) HiddenOf(p any) *HiddenRanges {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.hidden[p] == nil {
		if f.hidden == nil {
			f.hidden = map[any]*HiddenRanges{}
		}
		f.hidden[p] = &HiddenRanges{}
	}
	return f.hidden[p]
}

// filterVariables is what an expression may use.
const filterVariables = "key (string), value (bytes), headers (map of strings), timestamp (timestamp)"

var filterEnvironment = newFilterEnvironment()

func newFilterEnvironment() *cel.Env {
	environment, err := cel.NewEnv(
		cel.Variable("key", cel.StringType),
		cel.Variable("value", cel.BytesType),
		cel.Variable("headers", cel.MapType(cel.StringType, cel.StringType)),
		cel.Variable("timestamp", cel.TimestampType),
		cel.ParserExpressionSizeLimit(FilterBytes),
		cel.ParserRecursionLimit(64),
		cel.RegexProgramSizeLimit(PatternSize),
		// Literals that never work are found when the view is made.
		cel.ASTValidators(constantPatterns{}, cel.ValidateRegexLiterals(), cel.ValidateDurationLiterals(), cel.ValidateTimestampLiterals(), cel.ValidateComprehensionNestingLimit(2)),
	)
	if err != nil {
		panic(err) // all is constant
	}
	return environment
}

// Compile returns the filter of an expression in CEL, the Common
// Expression Language. It must be a boolean of these variables: key (string),
// value (bytes), headers (map of strings, the last of a name wins) and
// timestamp. A null key or value is empty. The error is a *FilterError.
//
// A record for which the expression cannot be evaluated does not match, for
// example where it uses a header that the record does not have.
func Compile(where string) (*Filter, error) {
	if strings.TrimSpace(where) == "" {
		return nil, &Error{Where: where, Problem: `it is empty: want a boolean expression such as headers.tag == "paid"`}
	}
	if len(where) > FilterBytes {
		return nil, &Error{Where: where[:64] + "…", Problem: fmt.Sprintf("it has %d bytes: want at most %d", len(where), FilterBytes)}
	}
	checked, issues := filterEnvironment.Compile(where)
	if issues.Err() != nil {
		return nil, filterProblem(where, issues)
	}
	if kind := checked.OutputType(); !kind.IsExactType(cel.BoolType) {
		return nil, &Error{Where: where, Problem: fmt.Sprintf("it is of type %v: want bool, for example by a comparison", kind)}
	}
	options := []cel.ProgramOption{cel.EvalOptions(cel.OptOptimize),
		cel.OptimizeRegex(boundedMatches(overloads.Matches), boundedMatches(overloads.MatchesString))}
	// Counting takes half of the time: it is for what may get expensive only.
	most, err := filterEnvironment.EstimateCost(checked, anySize{})
	costly := err != nil || most.Max > FilterCostLimit
	if costly {
		options = append(options, cel.CostLimit(FilterCostLimit))
	}
	program, err := filterEnvironment.Program(checked, options...)
	if err != nil {
		return nil, &Error{Where: where, Problem: err.Error()}
	}
	filter := &Filter{where: where, program: program, costly: costly}
	for _, reference := range checked.NativeRep().ReferenceMap() {
		filter.headers = filter.headers || reference.Name == "headers"
	}
	return filter, nil
}

// anySize says that nothing is known of how large keys, values and headers are.
type anySize struct{}

// EstimateSize has no answer.
func (anySize) EstimateSize(cost.AstNode) *cost.SizeEstimate { return nil }

// EstimateCallCost has no answer either: functions cost what CEL says.
func (anySize) EstimateCallCost(_, _ string, _ *cost.AstNode, _ []cost.AstNode) *cost.CallEstimate {
	return nil
}

func filterProblem(where string, issues *cel.Issues) error {
	first := slices.MinFunc(issues.Errors(), func(a, b *cel.Error) int {
		if a.Location.Line() != b.Location.Line() {
			return a.Location.Line() - b.Location.Line()
		}
		return a.Location.Column() - b.Location.Column()
	})
	problem := first.Message
	if strings.HasPrefix(problem, "undeclared reference") {
		problem = strings.TrimSuffix(problem, " (in container '')") + ": want " + filterVariables
	}
	return &Error{Where: where, Line: max(first.Location.Line(), 1), Column: max(first.Location.Column()+1, 1), Problem: problem}
}

// String returns the expression.
func (f *Filter) String() string { return f.where }

// Match reports whether the filter lets a record pass. The error says why it could
// not be evaluated; such a record does not pass.
func (f *Filter) Match(record *topic.Record) (bool, error) {
	return f.match(&filterVars{record: record})
}

func (f *Filter) match(vars *filterVars) (bool, error) {
	value, _, err := f.program.Eval(vars)
	if err != nil {
		return false, err
	}
	matches, isBool := value.(types.Bool)
	if !isBool {
		return false, errors.New("the result is no boolean")
	}
	return bool(matches), nil
}

// filterVars gives a program the variables that it asks for.
type filterVars struct {
	record *topic.Record
}

// ResolveName is how a program asks for a variable.
func (v *filterVars) ResolveName(name string) (any, bool) {
	switch name {
	case "key":
		return types.String(v.record.Key), true
	case "value":
		if v.record.Value == nil {
			return types.Bytes{}, true
		}
		return types.Bytes(v.record.Value), true
	case "headers":
		return headerMap{headers: v.record.Headers}, true
	case "timestamp":
		return types.Timestamp{Time: time.UnixMilli(v.record.Timestamp).UTC()}, true
	}
	return nil, false
}

// Parent has no more variables.
func (v *filterVars) Parent() cel.Activation { return nil }
