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
	if rate <= 0 {
		return NoLimit
	}
	scaled := math.Round(rate * window.Seconds() * budgetScale)
	if scaled >= math.MaxInt64/2 {
		return NoLimit
	}
	perWindow := int64(scaled)
	whole, fraction := perWindow/budgetScale, perWindow%budgetScale
	// The sequence repeats every budgetScale windows, which keeps products small.
	i := index % budgetScale
	if i < 0 {
		i += budgetScale
	}
	return whole + (i+1)*fraction/budgetScale - i*fraction/budgetScale
}
