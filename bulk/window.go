package bulk

import (
	"math"
	"time"
)

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
