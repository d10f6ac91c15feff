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
