package engine

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/sluice-project/sluice/room"
)

// Wait is an estimate: with a probability of about 90 % the wait is between Low and High.
type Wait struct{ Low, High time.Duration }

// Outlook holds what is known about the wait of one visitor.
type Outlook struct {
	// Room has settings with defaults.
	Room *Room
	Now  time.Time
	// Ahead is how many visitors are before this one; negative before the lottery is
	// drawn.
	Ahead int64
	// Lane is the visitor's.
	Lane int
	// Status is a recent status of the room, and Flow what was measured.
	Status room.Status
	Flow   Flow
}

// EstimateWait returns how long it takes until the visitor is called; nil if that is not
// known: the room is paused, nobody was let in lately, the lottery is not drawn, or the
// room ends before.
//
// In a lane the range is from all calls being for the lane to somebody waiting in every lane.
//
// In mode Park it counts ticks: the earliest if visitors ahead leave the line as fast as
// lately, and the latest if as many as lately are no-shows and take another slot. In mode
// Teller it takes calls as random, at about the rate of the last minute: the range is that in
// which 90 % of such waits end, as far as so few observations show the rate; see mostSeen.
func EstimateWait(o Outlook) *Wait {
	settings := &o.Room.Settings
	if o.Room.Paused || o.Ahead < 0 {
		return nil
	}
	// Called visitors count as ahead until they claim, and need no further slot.
	nth := max(o.Ahead-o.Status.Called, 0) + 1
	last := nth // with lanes, which call the visitor's is at the latest
	if settings.Lanes != "" {
		last = int64(math.Ceil(float64(o.Ahead+1) * settings.LaneWeight(o.Lane)))
	}
	var wait *Wait
	if settings.Mode == room.Park {
		wait = o.parkWait(nth, last)
	} else {
		wait = o.tellerWait(nth, last)
	}
	if wait == nil || !settings.EndsAt.IsZero() && !o.Now.Add(wait.Low).Before(settings.EndsAt) {
		return nil
	}
	return wait
}

// untilOpening returns how long it takes until the room opens; 0: it is open.
func (o *Outlook) untilOpening() time.Duration { return max(o.Room.Opening().Sub(o.Now), 0) }

// departed estimates how many of the visitors ahead left the line while it was watched:
// visitors leave from anywhere in it.
func (o *Outlook) departed() float64 {
	return float64(o.Flow.Departed) * float64(o.Ahead) / float64(max(o.Status.Waiting, o.Ahead, 1))
}

func (o *Outlook) parkWait(nth, last int64) *Wait {
	settings, opening := &o.Room.Settings, o.Room.Opening()
	next := NextTick(opening, settings.Interval, o.Now)
	first := next
	if tick, _, open := TickAt(opening, settings.Interval, o.Now); open && o.Status.Tick < tick.UnixMilli() {
		first = tick // its batch is called any moment
	}
	interval, batch := settings.Interval.Seconds(), float64(o.Room.Limit())
	leaving, missing := 0.0, 0.0
	if perInterval := o.departed() / max(o.Flow.Over.Seconds(), 1) * interval; perInterval > 0 {
		leaving = perInterval / (perInterval + batch)
	}
	if o.Flow.Called > 0 {
		missing = min(float64(o.Flow.NoShows)/float64(o.Flow.Called), 0.9)
	}
	early := math.Floor(float64(nth-1) * (1 - leaving) / batch)
	late := math.Floor(float64(last-1) / (1 - missing) / batch)
	return ordered(first.Sub(o.Now).Seconds()+early*interval, next.Sub(o.Now).Seconds()+late*interval)
}

func (o *Outlook) tellerWait(nth, last int64) *Wait {
	opening := o.untilOpening()
	// At the opening all slots are free. Later a waiting visitor has found none free,
	// even if the last count differs.
	soon := opening.Seconds() + 1
	if opening > 0 {
		nth, last = max(nth-o.Room.Limit(), 0), last-o.Room.Limit()
		if last <= 0 {
			return ordered(opening.Seconds(), soon)
		}
	}
	over, n, most, k := o.Flow.Over.Seconds(), float64(nth), float64(last), float64(o.Flow.freed())
	if o.Flow.Over < outflowAtLeast || k == 0 {
		return nil
	}
	// Visitors ahead who leave the line advance it as well.
	quick := k + o.departed()
	low := opening.Seconds()
	if n > 0 {
		low += over * n / quick * ratioQuantile(n, min(quick, mostSeen), -z90)
	}
	return ordered(low, max(opening.Seconds()+over*most/k*ratioQuantile(most, min(k, mostSeen), z90), soon))
}

// mostSeen is how many observations a rate is believed to be known from at most. More would make it exact,
// and the line is not: visits become longer and shorter, and visitors ahead stop asking. So a range covers
// a rate that becomes 15 % higher or lower.
const mostSeen = 40

// z90 bounds, below and above, the middle 90 % of a normal distribution.
const z90 = 1.645

// ratioQuantile returns a quantile of the time until n more random events, relative to
// the expectation when k of them were seen: of the F distribution with 2n and 2k degrees
// of freedom, by the approximation of Paulson, where z is the quantile of the normal
// distribution.
func ratioQuantile(n, k, z float64) float64 {
	a, b := 1/(9*n), 1/(9*k)
	p, q := 1-a, 1-b
	root := math.Sqrt(max(q*q*a+p*p*b-z*z*a*b, 0))
	x := (p*q + z*root) / (q*q - z*z*b)
	return math.Max(x, 0) * math.Max(x, 0) * math.Max(x, 0)
}

// maxWait is the longest wait that is shown.
const maxWait = 30 * 24 * time.Hour

// ordered returns a wait of seconds, to the millisecond and between 0 and maxWait.
func ordered(low, high float64) *Wait {
	bound := func(seconds float64) time.Duration {
		if !(seconds < maxWait.Seconds()) {
			return maxWait
		}
		return time.Duration(math.Max(seconds, 0)*1000) * time.Millisecond
	}
	return &Wait{bound(low), max(bound(low), bound(high))}
}

// measured is the result of the last count of a room's visitors: the status, the recent
// flow, and the flow of the line, if there is one.
type measured struct {
	status     room.Status
	flow, line Flow
}

const (
	// callPoll bounds the time until a called visitor asks again, in case the answer was
	// lost.
	callPoll = time.Second
	// insidePoll bounds the time until a visitor inside asks again: half the life of a
	// pass.
	insidePoll = MaxPassLife / 2
)

// estimate sets when the visitor should ask again, and the estimated wait.
func (e *Engine) estimate(op *operation, a *Answer, place room.Place) {
	switch place.State {
	case room.Called:
		a.NextPoll = min(callPoll, op.terms.Claim/4)
		return
	case room.Inside:
		a.NextPoll = max(min(insidePoll, place.Until.Sub(place.Now)/2), time.Millisecond)
		return
	}
	outlook := Outlook{Room: op.room, Now: place.Now, Ahead: place.Ahead, Lane: place.Lane}
	if a.Position == 0 {
		outlook.Ahead = -1
	}
	if m := op.cached.measured.Load(); m != nil {
		outlook.Status, outlook.Flow = m.status, m.line
		a.Wait = EstimateWait(outlook)
	}
	a.NextPoll = NextPoll(outlook, a.Wait, rand.Float64())
}
