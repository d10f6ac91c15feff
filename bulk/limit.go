package bulk

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
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
)

// Limit bounds the attempts of the whole service, of a tenant, against a target or by the
// handlers of a type, over all instances. The zero value of each field is no limit.
type Limit struct {
	// RequestsPerSecond bounds the attempts that start; exact in each window, see Pacing.
	RequestsPerSecond float64
	// Concurrency bounds the attempts in flight.
	Concurrency int
	// Pacing is how RequestsPerSecond is spread over time. Default PaceWindow.
	Pacing Pacing
}

// Pacing is how the attempts that a rate allows are spread over time.
type Pacing string

const (
	// PaceWindow allows the attempts of a window (Config.Window) at any time within it: where
	// two windows meet, a second may see twice the rate.
	PaceWindow Pacing = "window"
	// PaceSmooth allows them in steps of 25 ms, so that any span of a second holds at most the
	// rate, rounded up. It takes 93 % of the rate, so that this is so where the attempts
	// arrive, too, if they are at most 50 ms late.
	PaceSmooth Pacing = "smooth"
)

const (
	// paceStep is the length of a step of PaceSmooth. A second touches at most 41 of them; a
	// second and the delay, 43.
	paceStep   = 25 * time.Millisecond
	pacedSteps = 43
)

func (l Limit) smooth() bool { return l.Pacing == PaceSmooth && l.RequestsPerSecond > 0 }

// Window returns the length of the windows in which attempts are counted for the limit, which
// is the given one unless the limit is paced.
func (l Limit) Window(window time.Duration) time.Duration {
	if l.smooth() {
		return paceStep
	}
	return window
}

// Paced returns the attempts per second that the limit lets start; 0 is no limit.
func (l Limit) Paced() float64 {
	if l.smooth() {
		return l.RequestsPerSecond / (pacedSteps * paceStep.Seconds())
	}
	return l.RequestsPerSecond
}

// Budget returns how many attempts the limit allows in a window, whose length and index are
// those of Window; NoLimit if it has no rate.
func (l Limit) Budget(window time.Duration, index int64) int64 {
	return Budget(l.Paced(), l.Window(window), index)
}

// validate returns a *SettingError if a value is out of range.
func (l Limit) validate() error {
	switch {
	case !(l.RequestsPerSecond == 0 || l.RequestsPerSecond >= MinRate && l.RequestsPerSecond <= math.MaxFloat64):
		return &SettingError{"requests_per_second", "want at least 0.001, or 0 for no limit"}
	case l.Concurrency < 0:
		return &SettingError{"concurrency", "want at least 1, or 0 for no limit"}
	case l.Pacing != "" && l.Pacing != PaceWindow && l.Pacing != PaceSmooth:
		return &SettingError{"pacing", "want window or smooth"}
	}
	return nil
}

// MinRate is the minimum rate, in attempts per second: about one attempt in a quarter of
// an hour.
const MinRate = 0.001

// MaxWindow is the longest window.
const MaxWindow = time.Minute

// WindowIndex returns the index of the fixed window that contains now. Instances that
// share a clock have the same windows.
func WindowIndex(now time.Time, window time.Duration) int64 {
	nanos := now.UnixNano()
	index := nanos / int64(window)
	if nanos < 0 && nanos%int64(window) != 0 {
		index--
	}
	return index
}

// WindowStart returns when the window with that index begins.
func WindowStart(index int64, window time.Duration) time.Time {
	return time.Unix(0, index*int64(window))
}

// budgetScale is the resolution of a window's budget: a millionth of an attempt.
const budgetScale = 1_000_000

// Budget returns how many attempts a rate, in attempts per second, allows in a window.
// Fractions are carried over by arithmetic, not by state: the budgets of windows 0 to i
// add up to floor((i+1) · rate · window). So 2.5 per second gives 2, 3, 2, 3, … and
// every instance computes the same, also after a restart. Rates are rounded to a
// millionth of an attempt per window. A rate of 0 or less is NoLimit.
func Budget(rate float64, window time.Duration, index int64) int64 {
	scaled := perWindow(rate, window)
	if scaled == NoLimit {
		return NoLimit
	}
	return budgets(scaled, index, 1)
}

// perWindow returns a rate in millionths of an attempt per window; NoLimit if it is none.
func perWindow(rate float64, window time.Duration) int64 {
	scaled := math.Round(rate * window.Seconds() * budgetScale)
	if rate <= 0 || scaled >= math.MaxInt64/2 {
		return NoLimit
	}
	return int64(scaled)
}

// phase returns the place of a window in the sequence of budgets, which repeats every budgetScale
// windows: that keeps products small.
func phase(index int64) int64 {
	if i := index % budgetScale; i >= 0 {
		return i
	}
	return index%budgetScale + budgetScale
}

// PerWindow returns the limit's rate in millionths of an attempt per window, whose length is that of
// Window, for scripts that compute Budget and NextBudget themselves; 0 if it has no rate.
func (l Limit) PerWindow(window time.Duration) int64 {
	if scaled := perWindow(l.Paced(), l.Window(window)); scaled != NoLimit {
		return scaled
	}
	return 0
}

// Budgets returns the sum of the budgets of n windows from one on, at most a million; NoLimit if the
// limit has no rate.
func (l Limit) Budgets(window time.Duration, from, n int64) int64 {
	scaled := l.PerWindow(window)
	if scaled == 0 {
		return NoLimit
	}
	return budgets(scaled, from, n)
}

func budgets(scaled, from, n int64) int64 {
	i, part := phase(from), scaled%budgetScale
	return scaled/budgetScale*n + (i+n)*part/budgetScale - i*part/budgetScale
}

// NextBudget returns the first window after one by which as much is allowed as is needed, from the
// next window on, as Budget numbers them; at most a million windows later.
func (l Limit) NextBudget(window time.Duration, index, needed int64) int64 {
	scaled := l.PerWindow(window)
	if scaled == 0 {
		return index + 1
	}
	// The budgets of n windows add up to n times the rate, rounded up or down.
	n := max(1, (needed-1)*budgetScale/scaled)
	if scaled < budgetScale {
		i := phase(index + 1)
		n = ((i*scaled/budgetScale+needed)*budgetScale+scaled-1)/scaled - i
	}
	for n < budgetScale && budgets(scaled, index+1, n) < needed {
		n++
	}
	return index + min(n, budgetScale)
}

// Bounds of the limits by key.
const (
	// MaxKeyLimits bounds the expressions of one tenant, and MaxKeyExpression the bytes of one.
	MaxKeyLimits     = 8
	MaxKeyExpression = 512
	// MaxKeyLimited is about how many jobs of a tenant wait for their keys at most: with as many, no
	// more of the tenant's jobs are admitted.
	MaxKeyLimited = 100_000
	// KeyKept is how long a place of a key is kept at most for the job that waited for it: until then
	// the job should have come through its line again.
	KeyKept = 5 * time.Second
	// maxKey bounds the bytes of a key; the key is the hash of one that is longer.
	maxKey = 128
	// MaxCost bounds what one attempt counts in a rate.
	MaxCost = 1_000_000
	// keyPattern bounds the instructions of the pattern of a regular expression.
	keyPattern = 1000
	// keyCost bounds what evaluating an expression for one job may cost, in CEL's units. A job for
	// which it costs more has no key.
	keyCost = 100_000
)

// KeyLimit bounds the attempts of a tenant's jobs that have one key, for each key. The zero value of
// each field is no limit.
type KeyLimit struct {
	// RequestsPerSecond, Concurrency and Pacing are those of a Limit.
	RequestsPerSecond float64 `json:"requests_per_second,omitempty"`
	Concurrency       int     `json:"concurrency,omitempty"`
	Pacing            Pacing  `json:"pacing,omitempty"`
	// Cost is the expression of what an attempt counts in RequestsPerSecond: a number from 1 to
	// MaxCost, rounded up. Where it has no value, an attempt counts 1. An attempt starts if
	// anything is left; what it takes beyond that is taken from the windows that follow. Default:
	// each attempt counts 1.
	Cost string `json:"cost,omitempty"`
}

// Limit returns the limit of each key.
func (l KeyLimit) Limit() Limit { return Limit{l.RequestsPerSecond, l.Concurrency, l.Pacing} }

// JobKey is the key of a job by an expression.
type JobKey struct{ Expression, Key string }

// KeyUse is what an attempt of a job uses of a limit by key.
type KeyUse struct {
	JobKey
	// Cost is what the attempt counts in the rate by the limit's KeyLimit.Cost; 0 if that is not
	// set: then it counts 1.
	Cost int64
}

// Charge returns what the attempt counts in the rate.
func (u KeyUse) Charge() int64 { return max(1, u.Cost) }

// Keys computes the keys of a tenant's jobs. It is safe for concurrent use.
type Keys struct {
	of          []keyProgram // in the order of their expressions
	readPayload bool
}

type keyProgram struct {
	expression string
	program    cel.Program
	cost       cel.Program // nil: each attempt counts 1
}

// keyVariables is what an expression may use.
const keyVariables = "payload (the JSON value), tenant, type, target and key (strings) and cost (a number)"

var keyEnvironment = newKeyEnvironment()

func newKeyEnvironment() *cel.Env {
	environment, err := cel.NewEnv(
		cel.Variable("payload", cel.DynType), cel.Variable("tenant", cel.StringType), cel.Variable("type", cel.StringType),
		cel.Variable("target", cel.StringType), cel.Variable("key", cel.StringType), cel.Variable("cost", cel.IntType),
		cel.ParserExpressionSizeLimit(MaxKeyExpression), cel.ParserRecursionLimit(32), cel.RegexProgramSizeLimit(keyPattern),
		cel.ASTValidators(cel.ValidateRegexLiterals(), cel.ValidateComprehensionNestingLimit(1)),
	)
	if err != nil {
		panic(err) // all is constant
	}
	return environment
}

// NewKeys compiles the expressions of limits by key; nil if there are none. The error is a
// *SettingError.
func NewKeys(limits map[string]KeyLimit) (*Keys, error) {
	if len(limits) == 0 {
		return nil, nil
	}
	if len(limits) > MaxKeyLimits {
		return nil, &SettingError{"keys", fmt.Sprintf("%d expressions: want at most %d", len(limits), MaxKeyLimits)}
	}
	k := &Keys{}
	for _, expression := range slices.Sorted(maps.Keys(limits)) {
		limit := limits[expression]
		program, reads, err := compileKey(expression, "a string, a number or a boolean", cel.StringType, cel.BoolType, cel.IntType, cel.UintType, cel.DoubleType, cel.DynType)
		if err != nil {
			return nil, err
		}
		of := keyProgram{expression: expression, program: program}
		if limit.Cost != "" {
			cost, readsToo, err := compileKey(limit.Cost, "a number", cel.IntType, cel.UintType, cel.DoubleType, cel.DynType)
			if err != nil {
				return nil, err
			}
			of.cost, reads = cost, reads || readsToo
		}
		if limit.Cost != "" && limit.RequestsPerSecond == 0 {
			return nil, &SettingError{"keys", fmt.Sprintf("expression %.64q: its cost counts in requests_per_second: set that too", expression)}
		}
		if err := limit.Limit().validate(); err != nil {
			return nil, err
		}
		k.of = append(k.of, of)
		k.readPayload = k.readPayload || reads
	}
	return k, nil
}

func compileKey(expression, want string, kinds ...*cel.Type) (program cel.Program, readsPayload bool, err error) {
	wrong := func(why string) (cel.Program, bool, error) {
		return nil, false, &SettingError{"keys", fmt.Sprintf("expression %.64q: %s", expression, why)}
	}
	if expression == "" || len(expression) > MaxKeyExpression || strings.ContainsFunc(expression, func(r rune) bool { return r < ' ' }) {
		return wrong(fmt.Sprintf("want one line of 1 to %d bytes, such as payload.customer", MaxKeyExpression))
	}
	checked, issues := keyEnvironment.Compile(expression)
	if issues.Err() != nil {
		return wrong(fmt.Sprintf("%s: want an expression in CEL of %s", issues.Errors()[0].Message, keyVariables))
	}
	if kind := checked.OutputType(); !slices.ContainsFunc(kinds, kind.IsExactType) {
		return wrong(fmt.Sprintf("its value is of type %v: want %s", kind, want))
	}
	if program, err = keyEnvironment.Program(checked, cel.EvalOptions(cel.OptOptimize), cel.CostLimit(keyCost)); err != nil {
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
func (k *Keys) Of(spec *Spec, payload []byte) []KeyUse {
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
	uses := []KeyUse{}
	for _, p := range k.of {
		value, _, err := p.program.Eval(variables)
		text := keyText(value)
		if err != nil || text == "" {
			continue
		}
		use := KeyUse{JobKey: JobKey{p.expression, text}}
		if p.cost != nil {
			value, _, _ := p.cost.Eval(variables)
			use.Cost = keyCharge(value)
		}
		uses = append(uses, use)
	}
	return uses
}

// keyCharge returns the value of an expression as a cost.
func keyCharge(value any) int64 {
	switch v := value.(type) {
	case types.Int:
		return BoundCost(int64(v))
	case types.Uint:
		return BoundCost(int64(min(v, MaxCost)))
	case types.Double:
		if v >= 1 { // it may be no number
			return BoundCost(int64(math.Ceil(min(float64(v), MaxCost))))
		}
	}
	return 1
}

// BoundCost returns the cost from 1 to MaxCost that is nearest to n.
func BoundCost(n int64) int64 { return min(max(n, 1), MaxCost) }

// keyText returns the value of an expression as a key; "" if it is none.
func keyText(value any) (text string) {
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
