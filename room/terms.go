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
