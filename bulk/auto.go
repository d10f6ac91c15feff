package bulk

import (
	"math"
	"time"
)

// AutoRate finds the rate that a target bears from what its attempts come to,
// for a target whose rate is set to "auto". It is the sender's side of
// congestion control as TCP has it, in attempts per second in place of bytes in
// flight:
//
//   - At first, as in slow start (Jacobson 1988), the rate doubles, but not
//     before most attempts of the rate before have ended: a target that answers
//     late is not run over.
//   - A round with throttles sets the rate to autoBackOff of what was let pass in
//     it: the multiplicative decrease of AIMD (Chiu and Jain 1989), from what the
//     target bore rather than from what was asked of it. What was let pass is the
//     ceiling.
//   - From there the rate approaches the ceiling, rests near it, and leaves it,
//     slowly at first, as CUBIC does (RFC 9438). At four times the ceiling, what
//     was learned no longer holds, and the rate doubles again.
//   - A target that answers ever later in place of throttling has a queue. The
//     time that attempts take above the least they have taken shows it (TCP Vegas,
//     Brakmo and Peterson 1995); the rate becomes what the target delivers, less
//     what drains the queue (BBR, Cardwell et al. 2016).
//
// The zero value has seen nothing. Its fields are exported so that a store can
// keep it, as JSON for one; they are nobody else's.
type AutoRate struct {
	// PerSecond is the rate; 0 before the first sample.
	PerSecond float64 `json:"per_second"`
	// Settled says that a ceiling was met: the rate does not double.
	Settled bool `json:"settled,omitempty"`
	// Ceiling is the rate that was last let pass when it was too high; 0 if none.
	Ceiling float64 `json:"ceiling,omitempty"`
	// Calm counts the rounds since then in which the rate was made use of.
	Calm float64 `json:"calm,omitempty"`
	// Drain is how much less is started in the present round, so that a queue of
	// the target empties.
	Drain float64 `json:"drain,omitempty"`
	// Window is the last one that was observed, and Round sums up those that were
	// not judged yet.
	Window int64     `json:"window"`
	Round  autoRound `json:"round"`
	// Trip is about the attempts that the present rate, while it doubles, has begun.
	Trip autoTrip `json:"trip"`
	// Old counts the attempts in flight that began before a queue was seen, and Late
	// the throttles to come of those that began before the last back-off.
	Old  int64 `json:"old,omitempty"`
	Late int64 `json:"late,omitempty"`
	// Delivered is what passed, per second, in the last rounds.
	Delivered [3]float64 `json:"delivered"`
	// Least and LeastBefore are the least mean time that attempts took, in the
	// present and the last span of autoSpan rounds; Rounds counts those of this one.
	Least       time.Duration `json:"least_ns,omitempty"`
	LeastBefore time.Duration `json:"least_before_ns,omitempty"`
	Rounds      int           `json:"rounds,omitempty"`
	// Slow is the mean time that attempts took when a queue of the target was seen
	// that is not drained yet; 0 if there is none.
	Slow time.Duration `json:"slow_ns,omitempty"`
	// Drained says that Slow is of attempts that began after that was seen.
	Drained bool `json:"drained,omitempty"`
}

// AutoSample is what became of the attempts on one target in one window, over
// all instances and shards: each field but Window and Length is a sum over them,
// and Held is true if it is for one.
type AutoSample struct {
	// Window is the index of the window, and Length how long it is.
	Window int64
	Length time.Duration
	// Started counts the attempts that began in the window.
	Started int64
	// Passed counts the attempts that ended in it and were not throttled, whether
	// they succeeded or failed, and Throttled those that were. An attempt that was
	// handed back, or whose lease expired, is neither.
	Passed, Throttled int64
	// Took is the sum of Settlement.Took over Passed, and ThrottledTook over
	// Throttled.
	Took, ThrottledTook time.Duration
	// InFlight is how many attempts were in flight when the window ended.
	InFlight int64
	// Held says that the rate was made use of: all of it was started, and more
	// jobs waited.
	Held bool
}

// autoRound sums up windows.
type autoRound struct {
	Windows   int           `json:"windows,omitempty"`
	Length    time.Duration `json:"length_ns,omitempty"`
	Started   int64         `json:"started,omitempty"`
	Passed    int64         `json:"passed,omitempty"`
	Throttled int64         `json:"throttled,omitempty"`
	Took      time.Duration `json:"took_ns,omitempty"`
	// ThrottledTook is to Throttled what Took is to Passed.
	ThrottledTook time.Duration `json:"throttled_took_ns,omitempty"`
	InFlight      int64         `json:"in_flight,omitempty"`
	Held          int           `json:"held,omitempty"`
}

// autoTrip tells when most attempts that a rate has begun have ended: those of
// its first round.
type autoTrip struct {
	Rounds int   `json:"rounds,omitempty"`
	First  int64 `json:"first,omitempty"`
	Since  int64 `json:"since,omitempty"`
}

const (
	// AutoFirst is the rate, in attempts per second, that a target set to "auto"
	// begins with.
	AutoFirst = 10.0
	// autoMost bounds the rate, as that of a limit that is set.
	autoMost = 1e9
	// autoLength is the least length of a round, in which windows are judged
	// together: in less, a target that counts by the second shows now all, now
	// nothing of what it bears. A round has at least one window.
	autoLength = time.Second
	// autoBackOff is the part of what passed that is asked for next.
	autoBackOff = 0.95
	// autoFall bounds how far the rate falls in one round.
	autoFall = 0.3
	// autoRest is how many rounds after a back-off the rate is at the ceiling again.
	autoRest = 10
	// autoAgain is how far above the ceiling, as a factor, the rate doubles again.
	autoAgain = 4
	// autoOutage: with less than so much of a round let pass, the target is out of
	// order, which tells nothing of its ceiling.
	autoOutage = 0.1
	// autoTimed is the least number of attempts whose times are compared.
	autoTimed = 10
	// autoSpan is how many rounds, or twice as many, a least time is believed.
	autoSpan = 100
	// autoQueue is how much of a round's attempts may wait in the target's queue.
	autoQueue = 0.1
)

// Rate is how many attempts per second may be started in the windows that follow;
// at least
// half of one in a round, which has a second or a window, and so never less than
// MinRate.
func (a *AutoRate) Rate() float64 {
	if a.PerSecond == 0 {
		return AutoFirst
	}
	return max(a.PerSecond/2, a.PerSecond-a.Drain)
}

// Observe learns from one window that has ended. Windows never fall; more of the
// last one is added to it. Windows that are left out had no attempts.
func (a *AutoRate) Observe(s AutoSample) {
	if a.PerSecond == 0 {
		a.PerSecond, a.Window = AutoFirst, s.Window-1
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
	if r.Length >= autoLength {
		a.judge()
	}
}

// judge ends a round and finds the rate of the next one.
func (a *AutoRate) judge() {
	r := a.Round
	a.Round, a.Drain = autoRound{}, 0
	copy(a.Delivered[1:], a.Delivered[:2])
	a.Delivered[0] = float64(r.Passed) / r.Length.Seconds()
	took, slow := a.timed(r)
	// Attempts that began before the last back-off tell of the rate before it.
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
		// The rate was not made use of, or there is nothing to tell by.
	case a.Settled:
		a.rise()
	case landed:
		a.double()
	}
}

// landed tells whether most attempts of the first round of the present rate have
// ended, if they end in the order in which they began.
func (a *AutoRate) landed(r autoRound) bool {
	t := &a.Trip
	if t.Rounds++; t.Rounds == 1 {
		t.First = r.Started
	} else {
		t.Since += r.Started
	}
	return r.InFlight-t.Since <= t.First/2
}

// set sets the rate, within its bounds: at least one attempt in a round.
func (a *AutoRate) set(rate float64, r autoRound) {
	a.PerSecond = min(max(rate, 1/max(r.Length, autoLength).Seconds()), autoMost)
	a.Trip = autoTrip{}
}

// throttled backs off from a rate that the target throttled. What it lets pass is
// told by what passed; but where it throttles within the round, and may answer much
// later, by what was started and not throttled.
func (a *AutoRate) throttled(r autoRound) {
	passed, behind := r.Passed, float64(r.ThrottledTook)/float64(r.Length)
	if behind < float64(r.Throttled)/2 {
		passed = max(0, r.Started-r.Throttled)
	}
	a.Late, a.Slow = min(int64(math.Ceil(behind)), r.InFlight), 0
	if float64(passed) < autoOutage*float64(passed+r.Throttled) {
		a.Settled = false
		a.set(autoFall*a.PerSecond, r)
		return
	}
	a.backOff(float64(passed)/r.Length.Seconds(), r)
}

func (a *AutoRate) backOff(bears float64, r autoRound) {
	ceiling := max(min(bears, a.PerSecond), autoFall/autoBackOff*a.PerSecond)
	a.Settled, a.Ceiling, a.Calm = true, ceiling, 0
	a.set(autoBackOff*ceiling, r)
}

// rise follows the curve of CUBIC, in rounds in place of seconds.
func (a *AutoRate) rise() {
	a.Calm++
	x := (a.Calm - autoRest) / autoRest
	rate := a.Ceiling * (1 + (1-autoBackOff)*x*x*x)
	a.PerSecond = min(max(a.PerSecond, rate), autoMost)
	if rate > autoAgain*a.Ceiling {
		a.Settled, a.Ceiling, a.Trip = false, 0, autoTrip{}
	}
}

// double doubles the rate: while no ceiling is known, or up to where a back-off
// would have left it.
func (a *AutoRate) double() {
	next := 2 * a.PerSecond
	if knee := autoBackOff * a.Ceiling; a.Ceiling > 0 && next >= knee {
		next, a.Settled, a.Calm = max(knee, a.PerSecond), true, 0
	}
	a.PerSecond, a.Trip = min(next, autoMost), autoTrip{}
}

// timed learns how long attempts take at least, and tells how long those of a round
// took on average, and whether that is much longer; 0 if they are too few to tell.
// What a window allows may start at once: at full load it then takes the target a
// window, and an attempt half of one on average. That much is no queue, nor is half
// of what attempts take at least.
func (a *AutoRate) timed(r autoRound) (took time.Duration, slow bool) {
	if r.Passed < autoTimed {
		return 0, false
	}
	took = max(1, r.Took/time.Duration(r.Passed))
	if a.Rounds++; a.Rounds > autoSpan {
		a.LeastBefore, a.Least, a.Rounds = a.Least, took, 1
	}
	if a.Least == 0 || took < a.Least {
		a.Least = took
	}
	least := a.least()
	window := r.Length / time.Duration(r.Windows)
	return took, took-least > window*6/10+least/2
}

func (a *AutoRate) least() time.Duration {
	if a.LeastBefore > 0 {
		return min(a.Least, a.LeastBefore)
	}
	return a.Least
}

// slowed backs off from a rate that made the target's queue grow, to what the
// target delivers.
func (a *AutoRate) slowed(r autoRound, took time.Duration) {
	a.backOff(max(a.Delivered[0], a.Delivered[1], a.Delivered[2]), r)
	a.Slow, a.Drained, a.Old = took, false, r.InFlight
	a.drain(r, took)
}

// drain lets the target's queue empty: what is in flight beyond what is, by Little's
// law, if nothing waits. Where attempts that began after the back-off take no less
// time, there is no queue: the target has become slower, at any rate.
func (a *AutoRate) drain(r autoRound, took time.Duration) {
	queue := (float64(r.InFlight) - a.PerSecond*a.least().Seconds()) / r.Length.Seconds()
	switch {
	case queue <= autoQueue*a.PerSecond:
		a.Slow = 0
	case a.Old > 0 || took == 0:
		a.Drain = queue
	case a.Drained && took > a.Slow-a.Slow/10:
		a.Least, a.LeastBefore, a.Rounds, a.Slow = took, 0, 1, 0
	default:
		a.Slow, a.Drained, a.Old, a.Drain = took, true, r.InFlight, queue
	}
}
