package room

import "time"

// Answer is what a visitor is told.
type Answer struct {
	// Ticket is to be shown from now on: signed with the newest key.
	Ticket string
	// ID is the visitor's number in the room.
	ID    int64
	State State
	// Position counts from 1; 0 if there is none: inside, gone, or before the lottery
	// is drawn. Ahead is Position-1.
	Position int64
	// Wait is how long it will probably take; nil if that is not known.
	Wait *Wait
	// NextPoll is when to ask again.
	NextPoll time.Duration
	// Pass is there if the visitor is inside. It is renewed with each answer, and ends
	// at most MaxPassLife from now; PassExpiresAt is when the visit ends.
	Pass          string
	PassExpiresAt time.Time
	// Draw is the visitor's number in the lottery, shown once it is drawn; nil if the
	// place is not of a lottery.
	Draw *int64
	// New says that this answer made the place.
	New bool
}

// Wait is an estimate: with a probability of about 90 % it takes no less than Low and
// no more than High.
type Wait struct{ Low, High time.Duration }

// MaxPassLife is how long a pass that was handed out can be believed without asking.
const MaxPassLife = time.Minute

// View is a room as an operator sees it.
type View struct {
	Room   Room
	Status Status
	Phase  Phase
	// Outflow is how many are let in per second, measured over the last minute; nil
	// while nobody was let in, or the service has just begun.
	Outflow *float64
}
