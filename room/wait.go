package room

import (
	"math"
	"time"
)

// Outlook is what is known about the wait of one visitor.
type Outlook struct {
	// Room has settings with defaults.
	Room *Room
	Now  time.Time
	// Ahead is how many are before the visitor, who waits; negative: that is not known,
	// before the lottery is drawn.
	Ahead int64
	// Status is the room's as it was a short while ago, and Flow what was measured.
	Status Status
	Flow   Flow
}

// EstimateWait returns how long it takes until the visitor is called; nil if that is
// not known: the room is paused, nobody was let in lately, the lottery is not drawn, or
// the room ends before.
//
// In a room with mode Park it counts ticks: at the earliest those before the visitor
// leave the line as fast as they did lately, and at the latest as many as lately miss
// their place and take another. With mode Teller the calls are taken as random, at the
// rate of the last minute: the range is that in which 90 % of such waits end, as far as
// the rate can be known from how many were let in.
func EstimateWait(o Outlook) *Wait {
	settings := &o.Room.Settings
	if o.Room.Paused || o.Ahead < 0 {
		return nil
	}
	// Those who are called are counted as ahead until they come, and take no other turn.
	turn := max(o.Ahead-o.Status.Called, 0) + 1
	var wait *Wait
	if settings.Mode == Park {
		wait = o.parkWait(turn)
	} else {
		wait = o.tellerWait(turn)
	}
	if wait == nil || !settings.EndsAt.IsZero() && !o.Now.Add(wait.Low).Before(settings.EndsAt) {
		return nil
	}
	return wait
}

// untilOpening is how long it takes until the room opens; 0: it is open.
func (o *Outlook) untilOpening() time.Duration { return max(o.Room.Opening().Sub(o.Now), 0) }

// departed is how many of those before the visitor left the line while it was watched:
// they leave from anywhere in it.
func (o *Outlook) departed() float64 {
	return float64(o.Flow.Departed) * float64(o.Ahead) / float64(max(o.Status.Waiting, o.Ahead, 1))
}

func (o *Outlook) parkWait(turn int64) *Wait {
	settings, opening := &o.Room.Settings, o.Room.Opening()
	next := NextTick(opening, settings.Interval, o.Now)
	first := next
	if tick, _, open := TickAt(opening, settings.Interval, o.Now); open && o.Status.Tick < tick.UnixMilli() {
		first = tick // its batch is called any moment
	}
	interval, batch := settings.Interval.Seconds(), float64(settings.Batch)
	leaving, missing := 0.0, 0.0
	if perInterval := o.departed() / max(o.Flow.Over.Seconds(), 1) * interval; perInterval > 0 {
		leaving = perInterval / (perInterval + batch)
	}
	if o.Flow.Called > 0 {
		missing = min(float64(o.Flow.Missed)/float64(o.Flow.Called), 0.9)
	}
	before := float64(turn - 1)
	early := math.Floor(before * (1 - leaving) / batch)
	late := math.Floor(before / (1 - missing) / batch)
	return ordered(first.Sub(o.Now).Seconds()+early*interval, next.Sub(o.Now).Seconds()+late*interval)
}

func (o *Outlook) tellerWait(turn int64) *Wait {
	opening := o.untilOpening()
	// At the opening all places are free. Later whoever waits has found none, whatever
	// was counted a moment before.
	soon := opening.Seconds() + 1
	if opening > 0 {
		if turn -= o.Room.Settings.Capacity; turn <= 0 {
			return ordered(opening.Seconds(), soon)
		}
	}
	over, n, k := o.Flow.Over.Seconds(), float64(turn), float64(o.Flow.freed())
	if o.Flow.Over < outflowAtLeast || k == 0 {
		return nil
	}
	// Who leaves from before the visitor moves the line as well, if they go on doing so.
	quick := k + o.departed()
	return ordered(
		opening.Seconds()+over*n/quick*ratioQuantile(n, quick, -z90),
		max(opening.Seconds()+over*n/k*ratioQuantile(n, k, z90), soon))
}

// z90 bounds, below and above, the middle 90 % of a normal distribution.
const z90 = 1.645

// ratioQuantile is a quantile of the time until n more random events, over what is
// expected when k of them were seen: of the F distribution with 2n and 2k degrees of
// freedom, by the approximation of Paulson, where z is the quantile of the normal
// distribution.
func ratioQuantile(n, k, z float64) float64 {
	a, b := 1/(9*n), 1/(9*k)
	p, q := 1-a, 1-b
	root := math.Sqrt(max(q*q*a+p*p*b-z*z*a*b, 0))
	x := (p*q + z*root) / (q*q - z*z*b)
	return math.Max(x, 0) * math.Max(x, 0) * math.Max(x, 0)
}

// maxWait is the longest wait that is told.
const maxWait = 30 * 24 * time.Hour

// ordered returns a wait of seconds, to the millisecond and within 0 and maxWait.
func ordered(low, high float64) *Wait {
	bound := func(seconds float64) time.Duration {
		if !(seconds < maxWait.Seconds()) {
			return maxWait
		}
		return time.Duration(math.Max(seconds, 0)*1000) * time.Millisecond
	}
	return &Wait{bound(low), max(bound(low), bound(high))}
}
