package autorate

import (
	"math"
	"time"
)

// Finder finds the rate that a target sustains from the outcomes of its attempts. It does what the sender does in TCP's congestion
// control, in attempts per second instead of bytes in flight:
//
//   - At first, as in slow start (Jacobson 1988), the rate doubles, but only when most
//     attempts at the previous rate have ended, so that a slow target is not overrun.
//   - A round with throttles sets the rate to backOff of the rate that passed in it: the
//     multiplicative decrease of AIMD (Chiu and Jain 1989), applied to the rate that passed
//     and not to the rate that was tried. The rate that passed is the ceiling.
//   - From there the rate approaches the ceiling, stays near it, and then exceeds it, slowly
//     at first, as in CUBIC (RFC 9438). At four times the ceiling, the ceiling is forgotten
//     and the rate doubles again.
//   - A target that becomes slower instead of throttling has a queue, which shows in attempts
//     that take longer than the minimum (TCP Vegas, Brakmo and Peterson 1995). The rate
//     becomes the rate that the target delivers, less what drains the queue (BBR, Cardwell et
//     al. 2016).
//
// The zero value is ready to use. The fields are exported only for stores to keep them.
type Finder struct {
	// PerSecond is the rate; 0 before the first sample.
	PerSecond float64 `json:"per_second"`
	// Settled reports whether a ceiling was reached: then the rate does not double.
	Settled bool `json:"settled,omitempty"`
	// Ceiling is the rate that passed when the rate was last too high; 0 if there is none.
	Ceiling float64 `json:"ceiling,omitempty"`
	// Calm counts the rounds since Ceiling was set in which the rate was used up.
	Calm float64 `json:"calm,omitempty"`
	// Drain is by how much the rate is lower in the present round, to drain the target's
	// queue.
	Drain float64 `json:"drain,omitempty"`
	// Window is the last observed window. Round is the sum of the windows not yet judged.
	Window int64 `json:"window"`
	Round  round `json:"round"`
	// Trip counts the attempts that the present rate has begun, while it doubles.
	Trip trip `json:"trip"`
	// Old counts the attempts in flight that began before a queue was detected. Late counts
	// the expected throttles of attempts that began before the last back-off.
	Old  int64 `json:"old,omitempty"`
	Late int64 `json:"late,omitempty"`
	// Delivered has the attempts that passed, per second, in each of the last rounds.
	Delivered [3]float64 `json:"delivered"`
	// Least and LeastBefore are the minimum mean duration of attempts in the present and in
	// the previous span of span rounds. Rounds counts the rounds of the present span.
	Least       time.Duration `json:"least_ns,omitempty"`
	LeastBefore time.Duration `json:"least_before_ns,omitempty"`
	Rounds      int           `json:"rounds,omitempty"`
	// Slow is the mean duration of attempts when the queue was detected that is being
	// drained; 0 if there is none.
	Slow time.Duration `json:"slow_ns,omitempty"`
	// Drained reports whether Slow was measured on attempts that began after the detection.
	Drained bool `json:"drained,omitempty"`
}

// Sample is the outcome of the attempts on one target in one window, over all instances
// and shards: each field except Window and Length is a sum over them, and Held is true if it
// is true for any.
type Sample struct {
	// Window is the index of the window, and Length its length.
	Window int64
	Length time.Duration
	// Started counts the attempts that began in the window.
	Started int64
	// Passed counts the attempts that ended in the window and were not throttled, whether
	// they succeeded or failed. Throttled counts those that were throttled. Attempts that
	// were handed back, or whose lease expired, count in neither.
	Passed, Throttled int64
	// Took is the total duration of the attempts in Passed, and ThrottledTook of those in
	// Throttled.
	Took, ThrottledTook time.Duration
	// InFlight is the number of attempts in flight at the end of the window.
	InFlight int64
	// Held reports whether the rate was used up: all attempts it allows were started, and
	// more waited.
	Held bool
	// Spread reports whether attempts begin at any time, and not together when a window
	// begins: then a shorter delay is a sign of a queue.
	Spread bool
}

// round is the sum of the windows of a round.
type round struct {
	Windows   int           `json:"windows,omitempty"`
	Length    time.Duration `json:"length_ns,omitempty"`
	Started   int64         `json:"started,omitempty"`
	Passed    int64         `json:"passed,omitempty"`
	Throttled int64         `json:"throttled,omitempty"`
	Took      time.Duration `json:"took_ns,omitempty"`
	// ThrottledTook is the total duration of the attempts in Throttled.
	ThrottledTook time.Duration `json:"throttled_took_ns,omitempty"`
	InFlight      int64         `json:"in_flight,omitempty"`
	Held          int           `json:"held,omitempty"`
	Spread        bool          `json:"spread,omitempty"`
}

// trip measures when most attempts of the first round of a rate have ended.
type trip struct {
	Rounds int   `json:"rounds,omitempty"`
	First  int64 `json:"first,omitempty"`
	Since  int64 `json:"since,omitempty"`
}

const (
	// First is the initial rate, in attempts per second, unless another was set.
	First = 10.0
	// most bounds the rate, like that of a configured limit.
	most = 1e9
	// length is the minimum length of a round, whose windows are judged together. In a
	// shorter one, a target that counts by the second would seem to pass either everything or
	// nothing. A round has at least one window.
	length = time.Second
	// backOff is the next rate after a back-off, as a fraction of the rate that passed.
	backOff = 0.95
	// fall bounds how far the rate falls in one round, as a factor.
	fall = 0.3
	// rest is the number of rounds after a back-off until the rate reaches the ceiling.
	rest = 10
	// again is the multiple of the ceiling at which the rate doubles again.
	again = 4
	// outage is the fraction of attempts that pass below which the target is considered
	// out of order: such a round does not determine its ceiling.
	outage = 0.1
	// timed is the minimum number of attempts whose durations are compared.
	timed = 10
	// span is for how many rounds a minimum duration is kept; at most twice as many.
	span = 100
	// queuePart is the fraction of a round's attempts that may wait in the target's queue.
	queuePart = 0.1
	// spreadNoise is by how much durations vary without a queue, if attempts are spread.
	spreadNoise = 5 * time.Millisecond
)

// Rate returns how many attempts per second may start in the next windows. It is at least
// half an attempt per round (a second, or a window if that is longer), so never less than
// MinRate.
func (a *Finder) Rate() float64 {
	if a.PerSecond == 0 {
		return First
	}
	return max(a.PerSecond/2, a.PerSecond-a.Drain)
}

// Observe adds one window that has ended. Window indexes must not decrease. Another sample of
// the last window is added to it. Omitted windows had no attempts.
func (a *Finder) Observe(s Sample) {
	if a.PerSecond == 0 {
		a.PerSecond, a.Window = First, s.Window-1
	}
	r := &a.Round
	if s.Window > a.Window+1 && r.Windows > 0 {
		a.judge()
	}
	if s.Window > a.Window {
		r.Windows++
		r.Length += s.Length
		r.InFlight = 0
		if s.Held {
			r.Held++
		}
	}
	a.Window = s.Window
	r.Started += s.Started
	r.Passed += s.Passed
	r.Throttled += s.Throttled
	r.Took += s.Took
	r.ThrottledTook += s.ThrottledTook
	r.InFlight += s.InFlight
	r.Spread = s.Spread
	if r.Length >= length {
		a.judge()
	}
}

// judge ends a round and finds the rate of the next one.
func (a *Finder) judge() {
	r := a.Round
	a.Round, a.Drain = round{}, 0
	copy(a.Delivered[1:], a.Delivered[:2])
	a.Delivered[0] = float64(r.Passed) / r.Length.Seconds()
	took, slow := a.timed(r)
	// Attempts that began before the last back-off show the effect of the previous rate.
	late, old := min(a.Late, r.Throttled), min(a.Old, r.Passed+r.Throttled)
	a.Late, a.Old = min(a.Late-late, r.InFlight), min(a.Old-old, r.InFlight)
	switch landed := a.landed(r); {
	case r.Throttled > late:
		a.throttled(r)
	case a.Slow > 0:
		a.drain(r, took)
	case slow && old == 0:
		a.slowed(r, took)
	case 2*r.Held < r.Windows || r.Passed == 0:
		// The rate was not used up, or no attempt passed.
	case a.Settled:
		a.rise()
	case landed:
		a.double()
	}
}

// landed reports whether most attempts of the first round of the present rate have ended,
// assuming that attempts end in the order in which they began.
func (a *Finder) landed(r round) bool {
	t := &a.Trip
	if t.Rounds++; t.Rounds == 1 {
		t.First = r.Started
	} else {
		t.Since += r.Started
	}
	return r.InFlight-t.Since <= t.First/2
}

// set sets the rate, within its bounds: at least one attempt per round.
func (a *Finder) set(rate float64, r round) {
	a.PerSecond = min(max(rate, 1/max(r.Length, length).Seconds()), most)
	a.Trip = trip{}
}

// throttled backs off from a rate that the target throttled. The rate that the target
// sustains is the number of attempts that passed. But if the target throttles within the
// round, and attempts may pass much later, it is the number of attempts started and not
// throttled.
func (a *Finder) throttled(r round) {
	passed, behind := r.Passed, float64(r.ThrottledTook)/float64(r.Length)
	if behind < float64(r.Throttled)/2 {
		passed = max(0, r.Started-r.Throttled)
	}
	a.Late, a.Slow = min(int64(math.Ceil(behind)), r.InFlight), 0
	if float64(passed) < outage*float64(passed+r.Throttled) {
		a.Settled = false
		a.set(fall*a.PerSecond, r)
		return
	}
	a.backOff(float64(passed)/r.Length.Seconds(), r)
}

func (a *Finder) backOff(bears float64, r round) {
	ceiling := max(min(bears, a.PerSecond), fall/backOff*a.PerSecond)
	a.Settled, a.Ceiling, a.Calm = true, ceiling, 0
	a.set(backOff*ceiling, r)
}

// Overrun takes a sample in place of Observe while more is asked than the rate allows, of a caller
// that cannot lower the load at once. If attempts take much longer than without a queue, the rate
// becomes at most what passed.
func (a *Finder) Overrun(s Sample) {
	delivered := float64(s.Passed) / s.Length.Seconds()
	if s.Passed == 0 || delivered >= a.PerSecond || !a.late(s.Took/time.Duration(s.Passed), spreadNoise) {
		return
	}
	a.Round, a.Drain = round{}, 0
	a.backOff(delivered, round{Length: s.Length})
}

// rise follows the curve of CUBIC, with rounds instead of seconds.
func (a *Finder) rise() {
	a.Calm++
	x := (a.Calm - rest) / rest
	rate := a.Ceiling * (1 + (1-backOff)*x*x*x)
	a.PerSecond = min(max(a.PerSecond, rate), most)
	if rate > again*a.Ceiling {
		a.Settled, a.Ceiling, a.Trip = false, 0, trip{}
	}
}

// double doubles the rate. If there is a ceiling, the rate rises at most to backOff of
// it.
func (a *Finder) double() {
	next := 2 * a.PerSecond
	if knee := backOff * a.Ceiling; a.Ceiling > 0 && next >= knee {
		next, a.Settled, a.Calm = max(knee, a.PerSecond), true, 0
	}
	a.PerSecond, a.Trip = min(next, most), trip{}
}

// timed updates the minimum duration of attempts. It returns the mean duration of the round's
// attempts, or 0 if there are too few, and whether it is much longer than the minimum. All
// attempts of a window may start at once, unless they are spread: at full load, the target then
// takes one window, and a mean attempt half a window. So half a window more is no sign of a
// queue, nor is half of the minimum.
func (a *Finder) timed(r round) (took time.Duration, slow bool) {
	if r.Passed < timed {
		return 0, false
	}
	took = max(1, r.Took/time.Duration(r.Passed))
	if a.Rounds++; a.Rounds > span {
		a.LeastBefore, a.Least, a.Rounds = a.Least, took, 1
	}
	if a.Least == 0 || took < a.Least {
		a.Least = took
	}
	noise := r.Length / time.Duration(r.Windows) * 6 / 10
	if r.Spread {
		noise = spreadNoise
	}
	return took, a.late(took, noise)
}

// late reports whether attempts take much longer than the minimum.
func (a *Finder) late(took, noise time.Duration) bool { return took-a.least() > noise+a.least()/2 }

func (a *Finder) least() time.Duration {
	if a.LeastBefore > 0 {
		return min(a.Least, a.LeastBefore)
	}
	return a.Least
}

// slowed backs off from a rate at which the target's queue grew, to the rate that the target
// delivers.
func (a *Finder) slowed(r round, took time.Duration) {
	a.backOff(max(a.Delivered[0], a.Delivered[1], a.Delivered[2]), r)
	a.Slow, a.Drained, a.Old = took, false, r.InFlight
	a.drain(r, took)
}

// drain lets the target's queue empty. By Little's law, the queue is the number of attempts
// in flight beyond rate times minimum duration. If attempts that began after the back-off are
// not faster, there is no queue: the target is slower at any rate.
func (a *Finder) drain(r round, took time.Duration) {
	queue := (float64(r.InFlight) - a.PerSecond*a.least().Seconds()) / r.Length.Seconds()
	switch {
	case queue <= queuePart*a.PerSecond:
		a.Slow = 0
	case a.Old > 0 || took == 0:
		a.Drain = queue
	case a.Drained && took > a.Slow-a.Slow/10:
		a.Least, a.LeastBefore, a.Rounds, a.Slow = took, 0, 1, 0
	default:
		a.Slow, a.Drained, a.Old, a.Drain = took, true, r.InFlight, queue
	}
}
