package view

import (
	"regexp"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"
)

// Bounds of the regular expressions of a filter. Their engine takes a step for
// each instruction of the pattern and each byte of the text at most, some 5 ns.
const (
	// PatternSize is the most instructions that a pattern may compile to:
	// "[a-z]{100}" has about 100.
	PatternSize = 1000
	// patternSteps bounds one match, to some 0.2 s. A text that is too long for
	// its pattern does not match.
	patternSteps = 32 << 20
)

// constantPatterns refuses patterns that come with the record: whoever sends it
// would choose what they cost.
type constantPatterns struct{}

// Name implements cel.ASTValidator.
func (constantPatterns) Name() string { return "sluice.constant_patterns" }

// Validate implements cel.ASTValidator.
func (constantPatterns) Validate(_ *cel.Env, _ cel.ValidatorConfig, checked *ast.AST, issues *cel.Issues) {
	for _, call := range ast.MatchDescendants(ast.NavigateAST(checked), ast.FunctionMatcher(overloads.Matches)) {
		arguments := call.AsCall().Args()
		if pattern := arguments[len(arguments)-1]; pattern.Kind() != ast.LiteralKind {
			issues.ReportErrorAtID(pattern.ID(), `the pattern of matches is not a constant: want a text in quotes`)
		}
	}
}

// boundedMatches compiles the pattern of a form of matches once, and bounds what a
// match may take. It is named by its overload, which comes before the optimization
// of the library, which is for all of them.
func boundedMatches(overload string) *interpreter.RegexOptimization {
	return &interpreter.RegexOptimization{
		Function:   overloads.Matches,
		OverloadID: overload,
		RegexIndex: interpreter.MatchesRegexOptimization.RegexIndex,
		Factory:    newBoundedMatch,
	}
}

func newBoundedMatch(call interpreter.InterpretableCall, pattern string) (interpreter.InterpretableCall, error) {
	compiled, err := regexp.Compile(pattern)
	if err != nil {
		return nil, err
	}
	size, err := types.RegexProgramSize(pattern)
	if err != nil {
		return nil, err
	}
	most := patternSteps / size
	return interpreter.NewCall(call.ID(), call.Function(), call.OverloadID(), call.Args(), func(values ...ref.Val) ref.Val {
		text, isText := values[0].(types.String)
		if !isText {
			return types.MaybeNoSuchOverloadErr(values[0])
		}
		if len(text) > most {
			return types.NewErr("a text of %d bytes is too long for the pattern, which takes at most %d", len(text), most)
		}
		return types.Bool(compiled.MatchString(string(text)))
	}), nil
}
