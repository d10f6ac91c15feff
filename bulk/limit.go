package bulk

import (
	"math"
	"time"
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

// Validate returns a *SettingError if a value is out of range.
func (l Limit) Validate() error {
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
	// MaxCost bounds what one attempt counts in a rate.
	MaxCost = 1_000_000
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

// BoundCost returns the cost from 1 to MaxCost that is nearest to n.
func BoundCost(n int64) int64 { return min(max(n, 1), MaxCost) }
