package room

import "time"

// Room is a room as it is stored: what was set, and what was done to it.
type Room struct {
	// Name is 1 to 64 of lower-case letters, digits and "-", beginning with a letter
	// or digit.
	Name     string   `json:"name"`
	Settings Settings `json:"settings"`
	// Paused rooms let nobody in; one may still come and wait.
	Paused bool `json:"paused,omitempty"`
	// Epoch is raised when all passes are revoked: those of before are void.
	Epoch int64 `json:"epoch"`
	// Generation is random, and never that of a room of the same name before: it
	// is part of what tickets and passes sign.
	Generation string `json:"generation"`
	// Seed decides the lottery: 32 random bytes, secret until the room has opened.
	Seed      []byte    `json:"seed"`
	CreatedAt time.Time `json:"created_at"`

	// Revision is the store's, raised by each change of the above.
	Revision uint64 `json:"-"`
}

// MaxRooms is how many rooms there may be.
const MaxRooms = 1_000

// Opening is when the room opens: ticks count from here.
func (r *Room) Opening() time.Time {
	if r.Settings.OpensAt.IsZero() {
		return r.CreatedAt
	}
	return r.Settings.OpensAt
}

// Phase is what a room does at present.
type Phase string

// The phases.
const (
	// Open: who comes is let in at once (teller), or at the next tick (park).
	Open Phase = "open"
	// Queueing: there is a line, or the room has not opened yet.
	Queueing Phase = "queueing"
	// Paused: one may come, and nobody is let in.
	Paused Phase = "paused"
	// Closed: before PrequeueFrom, or after EndsAt.
	Closed Phase = "closed"
)

// State is where a visitor is.
type State uint8

// The states.
const (
	// Waiting in line.
	Waiting State = iota + 1
	// Called: the visitor has a slot, and claims it by asking before Place.Until.
	Called
	// Inside until Place.Until.
	Inside
	// Gone: the place does not exist any more. Place.Reason says why.
	Gone
)

// Reason is why a visitor is gone.
type Reason string

// The reasons.
const (
	// Left by itself, or released by the origin.
	Left Reason = "left"
	// Expired: the pass ended.
	Expired Reason = "expired"
	// Abandoned: has not asked for AbandonAfter and Grace.
	Abandoned Reason = "abandoned"
	// Revoked by an operator.
	Revoked Reason = "revoked"
	// Ended: the room has closed, with the visitor still waiting.
	Ended Reason = "ended"
	// Forgotten: gone for longer than KeepGone, whatever the reason was.
	Forgotten Reason = "forgotten"
)

// KeepGone is for how long a store remembers at least why a visitor is gone.
const KeepGone = time.Hour
