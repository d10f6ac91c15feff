package room

import "time"

// Terms are what an operation on a room may do: the policies' answer for one revision
// of it. All times are of the store's clock, to the millisecond.
type Terms struct {
	Room     string
	Revision uint64

	// Capacity is the most visitors that may be active when one is called; 0: nobody is
	// called.
	Capacity int64
	// Calls is how many may be called in all at this tick, if Tick is not 0.
	Calls int64
	// Tick is when the batch is due, in milliseconds since the epoch; 0: there are no
	// ticks. With ticks only Expire calls, once for each tick, if Tick is higher than that
	// of the last batch and not after Now; unused calls lapse. A tick at which nobody may
	// be called, because Capacity is 0 or it is not between From and Until, is not used up.
	Tick int64
	// Nobody is called before From, nor from Until on. A zero Until is never.
	From, Until time.Time

	// EnterFrom and EnterUntil bound when visitors may enter. A zero EnterUntil is never.
	EnterFrom, EnterUntil time.Time
	// DrawUntil is the end of the lottery: earlier arrivals are ordered by their draw.
	// Zero: there is no lottery.
	DrawUntil time.Time
	// Shares are the lanes' shares of the calls; one of 0 counts as 1. See [Turns].
	Shares [MaxLanes]int64
	// MaxWaiting is how many may wait.
	MaxWaiting int64

	// TTL is how long a pass lasts from the claim on; of a visitor called at a tick, from
	// that tick on.
	TTL time.Duration
	// Sliding passes last TTL from each Ask on.
	Sliding bool
	// Renewals is how often a pass may be renewed.
	Renewals int

	// Claim is how long a called visitor may take to claim.
	Claim time.Duration
	// Abandon is the silence after which a visitor is skipped, Grace how much longer
	// the place is kept.
	Abandon, Grace time.Duration
	// Tender is the instance that calls Expire; "": an Expire acts whoever tends the room.
	// Another takes over Tend after its last one, or Late after something was due.
	Tender     string
	Tend, Late time.Duration
	// Away is the time between two calls of Expire after which the service counts as
	// having been away.
	Away time.Duration

	// Events is how many events may wait to be published. Further events are dropped and
	// counted, so that visitors are served in any case. 0: no event is kept, numbered or
	// counted.
	Events int64
}

// awayAfter is the time without an Expire after which the service counts as having been
// away: at least twice the longest interval between two, so that a slow machine does not
// count as away, and at most half a claim window where that is longer.
func awayAfter(claim time.Duration) time.Duration {
	return min(max(claim/2, 1500*time.Millisecond), 3*time.Second)
}

// tendTime is how long after its last Expire an instance is a room's tender: longer than a
// tender pauses, and shorter than any Terms.Away, so that a takeover is no absence.
const tendTime = time.Second

// tendLate is how late a tender may be with what is due. Another instance that takes over
// too early does no harm.
const tendLate = 200 * time.Millisecond

// terms returns what an operation on a room may do now, by the store's clock; events is
// how many events may wait to be published.
func terms(r *Room, now time.Time, events int64) Terms {
	s := &r.Settings
	closing, _ := r.closing()
	t := Terms{
		Room:     r.Name,
		Revision: r.Revision,
		From:     s.OpensAt, Until: closing,
		EnterFrom: s.PrequeueFrom, EnterUntil: closing,
		MaxWaiting: s.MaxWaiting,
		Claim:      s.ClaimWindow,
		Abandon:    s.AbandonAfter,
		Grace:      max(0, s.Grace),
		Away:       awayAfter(s.ClaimWindow),
		Tend:       tendTime,
		Late:       tendLate,
		Events:     events,
	}
	if s.Method == Lottery {
		t.DrawUntil = s.OpensAt
	}
	for number, lane := range s.lanes() {
		t.Shares[number] = lane.Share
	}
	if s.Mode == Park {
		parkTerms(&t, r, now)
	} else {
		tellerTerms(&t, r)
	}
	if r.Paused {
		t.Capacity = 0
	}
	return t
}

// drawn reports whether the lottery of a room has been drawn.
func drawn(r *Room, now time.Time) bool { return !now.Before(r.Settings.OpensAt) }

// nextCall returns when the schedule next lets visitors be called, after an Expire with
// those terms at now; zero if calling is not bound to a time.
func nextCall(r *Room, t *Terms, now time.Time) time.Time {
	s := &r.Settings
	if now.Before(s.OpensAt) {
		return s.OpensAt
	}
	if s.Mode != Park {
		return time.Time{}
	}
	// The terms may be of just before a tick, and the Expire of just after it.
	tick := time.UnixMilli(t.Tick)
	if tick.After(now) {
		return tick
	}
	return tick.Add(s.Interval)
}
