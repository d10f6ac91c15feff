package engine

import (
	"math"
	"time"

	"github.com/sluice-project/sluice/internal/autorate"
)

// Upstream is how an upstream answered the requests of visitors inside, in one window.
type Upstream struct {
	// Length is the window's; about a second.
	Length time.Duration
	// Started counts the requests that began in the window. Answered and Refused count
	// those that ended in it: Refused those that the upstream was too busy for (status 429,
	// 503 or 504, or no answer), Answered the others. InFlight is how many have not ended.
	Started, Answered, Refused, InFlight int64
	// Took is how long the requests in Answered took in all, until the answer began.
	Took time.Duration
}

const (
	// visitorPace is the part per second by which a new measure changes what is known of how
	// many requests a visitor makes.
	visitorPace = 0.05
	// autoRise is the share by which a capacity rises in a second, or with a report, at the
	// most: visitors who come in together do not ask together, and nobody is sent away.
	autoRise = 0.1
	// autoFull is the share of the capacity that counts as all of it.
	autoFull = 0.95
	// autoOver is the share of the capacity above which visitors count as more than it: a
	// lower capacity holds only when enough of them have left.
	autoOver = 1.05
	// autoDrain is the least part of the capacity that is left while a queue drains.
	autoDrain = 0.92
	// wanted is the utilization to which an upstream is brought that reports its own.
	wanted = 0.85
)

// byUtilization returns how many visitors an upstream can hold that has so many inside, and so
// high a utilization. Few visitors say little: the number rises only when it was used up.
func byUtilization(capacity, inside, utilization float64) float64 {
	switch holds := inside * wanted / utilization; {
	case utilization > wanted:
		return min(capacity, max(holds, capacity/2))
	case inside < autoFull*capacity:
		return capacity
	case utilization == 0:
		return capacity * (1 + autoRise)
	default:
		return max(capacity, min(holds, capacity*(1+autoRise)))
	}
}

// autoCapacity finds how many visitors an upstream can hold: the requests per second that it
// sustains, which are found as for targets of bulk actions, divided by those that a visitor
// makes. It is used by one goroutine.
type autoCapacity struct {
	rate autorate.Finder
	// each is how many requests per second a visitor makes while the upstream is not slow.
	each   float64
	window int64
	// capacity is what was found.
	capacity float64
	// over is the sum of the windows of the present second in which more visitors were inside
	// than the capacity.
	over Upstream
}

// observe takes a window at whose end so many visitors were inside and waiting, and returns the
// capacity that was found, from low to high.
func (a *autoCapacity) observe(up Upstream, inside, waiting, low, high float64) float64 {
	a.window++
	a.capacity = min(max(a.capacity, low), high)
	switch {
	case inside == 0:
	case inside > autoOver*a.capacity+1:
		a.overrun(up)
	default:
		a.over = Upstream{}
		a.measure(up, inside)
		if a.each > 0 {
			a.follow(up, inside, waiting)
		}
	}
	a.capacity = min(max(a.capacity, low), high)
	return a.capacity
}

// measure learns how many requests a visitor makes.
func (a *autoCapacity) measure(up Upstream, inside float64) {
	each := float64(up.Started) / up.Length.Seconds() / inside
	switch {
	case a.each == 0:
		a.each = each
	case a.rate.Slow == 0:
		a.each += (each - a.each) * min(1, visitorPace*up.Length.Seconds())
	}
}

// follow brings the capacity to what the upstream sustains: down at once, up slowly.
func (a *autoCapacity) follow(up Upstream, inside, waiting float64) {
	if a.rate.PerSecond == 0 {
		a.rate = autorate.Finder{PerSecond: a.each * a.capacity, Window: a.window - 1}
	}
	a.rate.Observe(autorate.Sample{
		Window: a.window, Length: up.Length, Started: up.Started, Passed: up.Answered, Throttled: up.Refused,
		Took: up.Took, InFlight: up.InFlight, Spread: true,
		Held: waiting > 0 && inside+1 >= autoFull*a.sustained(), // a capacity is whole
	})
	a.capacity = min(a.sustained(), a.capacity*math.Pow(1+autoRise, up.Length.Seconds()))
}

// sustained returns how many visitors make the requests that the upstream sustains.
func (a *autoCapacity) sustained() float64 {
	return max(a.rate.Rate(), autoDrain*a.rate.PerSecond) / a.each
}

// overrun judges an upstream that has more visitors than the capacity. If it is slow, what it
// delivers is what it sustains.
func (a *autoCapacity) overrun(up Upstream) {
	a.over.Length += up.Length
	a.over.Answered += up.Answered
	a.over.Took += up.Took
	if a.over.Length < time.Second || a.rate.PerSecond == 0 {
		return
	}
	a.rate.Overrun(autorate.Sample{Length: a.over.Length, Passed: a.over.Answered, Took: a.over.Took})
	a.rate.Drain = 0 // The queue drains as visitors leave.
	a.capacity = a.sustained()
	a.over = Upstream{}
}
