package keys

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"

	"github.com/sluice-project/sluice/bulk"
)

const (
	// maxKey bounds the bytes of a key; the key is the hash of one that is longer.
	maxKey = 128
	// maxPattern bounds the instructions of the pattern of a regular expression.
	maxPattern = 1000
	// maxCost bounds what evaluating an expression for one job may cost, in CEL's units. A job for
	// which it costs more has no key.
	maxCost = 100_000
)

// Keys computes the keys of a tenant's jobs. It is safe for concurrent use.
type Keys struct {
	of          []keyProgram // in the order of their expressions
	readPayload bool
}

// keyProgram computes the key by one expression.
type keyProgram struct {
	expression string
	program    cel.Program
	cost       cel.Program // nil: each attempt counts 1
}

// usable is what an expression may use.
const usable = "payload (the JSON value), tenant, type, target and key (strings) and cost (a number)"

var environment = newEnvironment()

func newEnvironment() *cel.Env {
	environment, err := cel.NewEnv(
		cel.Variable("payload", cel.DynType), cel.Variable("tenant", cel.StringType), cel.Variable("type", cel.StringType),
		cel.Variable("target", cel.StringType), cel.Variable("key", cel.StringType), cel.Variable("cost", cel.IntType),
		cel.ParserExpressionSizeLimit(bulk.MaxKeyExpression), cel.ParserRecursionLimit(32), cel.RegexProgramSizeLimit(maxPattern),
		cel.ASTValidators(cel.ValidateRegexLiterals(), cel.ValidateComprehensionNestingLimit(1)),
	)
	if err != nil {
		panic(err) // all is constant
	}
	return environment
}

// Compile compiles the expressions of limits by key; nil if there are none. The error is a
// *bulk.SettingError.
func Compile(limits map[string]bulk.KeyLimit) (*Keys, error) {
	if len(limits) == 0 {
		return nil, nil
	}
	if len(limits) > bulk.MaxKeyLimits {
		return nil, &bulk.SettingError{Field: "keys", Why: fmt.Sprintf("%d expressions: want at most %d", len(limits), bulk.MaxKeyLimits)}
	}
	k := &Keys{}
	for _, expression := range slices.Sorted(maps.Keys(limits)) {
		limit := limits[expression]
		program, reads, err := compile(expression, "a string, a number or a boolean", cel.StringType, cel.BoolType, cel.IntType, cel.UintType, cel.DoubleType, cel.DynType)
		if err != nil {
			return nil, err
		}
		of := keyProgram{expression: expression, program: program}
		if limit.Cost != "" {
			cost, readsToo, err := compile(limit.Cost, "a number", cel.IntType, cel.UintType, cel.DoubleType, cel.DynType)
			if err != nil {
				return nil, err
			}
			of.cost, reads = cost, reads || readsToo
		}
		if limit.Cost != "" && limit.RequestsPerSecond == 0 {
			return nil, &bulk.SettingError{Field: "keys", Why: fmt.Sprintf("expression %.64q: its cost counts in requests_per_second: set that too", expression)}
		}
		if err := limit.Limit().Validate(); err != nil {
			return nil, err
		}
		k.of = append(k.of, of)
		k.readPayload = k.readPayload || reads
	}
	return k, nil
}

func compile(expression, want string, kinds ...*cel.Type) (program cel.Program, readsPayload bool, err error) {
	wrong := func(why string) (cel.Program, bool, error) {
		return nil, false, &bulk.SettingError{Field: "keys", Why: fmt.Sprintf("expression %.64q: %s", expression, why)}
	}
	if expression == "" || len(expression) > bulk.MaxKeyExpression || strings.ContainsFunc(expression, func(r rune) bool { return r < ' ' }) {
		return wrong(fmt.Sprintf("want one line of 1 to %d bytes, such as payload.customer", bulk.MaxKeyExpression))
	}
	checked, issues := environment.Compile(expression)
	if issues.Err() != nil {
		return wrong(fmt.Sprintf("%s: want an expression in CEL of %s", issues.Errors()[0].Message, usable))
	}
	if kind := checked.OutputType(); !slices.ContainsFunc(kinds, kind.IsExactType) {
		return wrong(fmt.Sprintf("its value is of type %v: want %s", kind, want))
	}
	if program, err = environment.Program(checked, cel.EvalOptions(cel.OptOptimize), cel.CostLimit(maxCost)); err != nil {
		return wrong(err.Error())
	}
	for _, reference := range checked.NativeRep().ReferenceMap() {
		readsPayload = readsPayload || reference.Name == "payload"
	}
	return program, readsPayload, nil
}

// Of returns what an attempt of a job uses, in the order of the expressions. A job has no key by an
// expression that cannot be evaluated for it, as where it names a field that the payload does not
// have, or whose value is empty, or is no string, number or boolean. A nil Keys has none.
func (k *Keys) Of(spec *bulk.Spec, payload []byte) []bulk.KeyUse {
	if k == nil {
		return nil
	}
	variables := map[string]any{
		"payload": nil, "tenant": spec.Tenant, "type": spec.Type, "target": spec.TargetName(), "key": spec.Key,
		"cost": max(1, spec.Cost),
	}
	if k.readPayload {
		var value any
		if json.Unmarshal(payload, &value) == nil {
			variables["payload"] = value
		}
	}
	uses := []bulk.KeyUse{}
	for _, p := range k.of {
		value, _, err := p.program.Eval(variables)
		text := textOf(value)
		if err != nil || text == "" {
			continue
		}
		use := bulk.KeyUse{JobKey: bulk.JobKey{Expression: p.expression, Key: text}}
		if p.cost != nil {
			value, _, _ := p.cost.Eval(variables)
			use.Cost = charge(value)
		}
		uses = append(uses, use)
	}
	return uses
}

// charge returns the value of an expression as a cost.
func charge(value any) int64 {
	switch v := value.(type) {
	case types.Int:
		return bulk.BoundCost(int64(v))
	case types.Uint:
		return bulk.BoundCost(int64(min(v, bulk.MaxCost)))
	case types.Double:
		if v >= 1 { // it may be no number
			return bulk.BoundCost(int64(math.Ceil(min(float64(v), bulk.MaxCost))))
		}
	}
	return 1
}

// textOf returns the value of an expression as a key; "" if it is none.
func textOf(value any) (text string) {
	switch v := value.(type) {
	case types.String:
		text = string(v)
	case types.Bool:
		text = strconv.FormatBool(bool(v))
	case types.Int:
		text = strconv.FormatInt(int64(v), 10)
	case types.Uint:
		text = strconv.FormatUint(uint64(v), 10)
	case types.Double:
		text = strconv.FormatFloat(float64(v), 'f', -1, 64)
	}
	if len(text) > maxKey {
		sum := sha256.Sum256([]byte(text))
		text = "sha256:" + hex.EncodeToString(sum[:])
	}
	return text
}
