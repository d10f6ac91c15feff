package room

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"time"
)

// Visit describes a visitor who enters.
type Visit struct {
	// Key identifies a person, a user's id for example: a person with a key has one
	// place. Optional; at most MaxVisitorKey bytes. With [WithTokenKeys] it needs a Token.
	Key string
	// Token is a JWT in which the shop says what the Key is; see [TokenKeys]. Optional.
	Token string
	// Code is one of [Engine.MakeCodes]: its visitor has the code's key and lane, whatever Key and Token
	// say. Optional.
	Code string
	// Client is the visitor's address, for the limit of joins and for bound tickets;
	// invalid if it is not known.
	Client netip.Addr
	// Shared reports that Client is no visitor's own address but one of many visitors, such as a
	// proxy's: only a JoinsPerMinute that was set bounds it.
	Shared bool
	// Proven reports that the visitor has passed a challenge: the ticket says so.
	Proven bool
	// Provisional keeps a free slot for ClaimWindow only, until the visitor asks: for edges
	// that do not know whether the visitor will bring the ticket back.
	Provisional bool
}

// MaxVisitorKey is the most bytes of a visitor's key.
const MaxVisitorKey = 256

// KeyError reports what is wrong with a visitor's key.
type KeyError struct{ Why string }

func (e *KeyError) Error() string { return "visitor: " + e.Why }

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
	// Gone: the place does not exist any more; Place.Reason is the reason.
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
	// SoldOut: the room has closed because there is nothing left, with the visitor still
	// waiting.
	SoldOut Reason = "sold_out"
	// Forgotten: gone for longer than KeepGone, for any reason.
	Forgotten Reason = "forgotten"
)

// KeepGone is how long a store keeps, at least, the reason why a visitor is gone.
const KeepGone = time.Hour

// statusNames are the states in answers to visitors.
var statusNames = [...]string{Waiting: "waiting", Called: "called", Inside: "inside", Gone: "gone"}

// String returns the state as in answers to visitors.
func (s State) String() string {
	if int(s) >= len(statusNames) || s == 0 {
		return "State(" + strconv.Itoa(int(s)) + ")"
	}
	return statusNames[s]
}

// Place is where a visitor is.
type Place struct {
	Number int64
	State  State
	// Lane is that of one who waits; 0 for others.
	Lane int
	// Ahead is how many visitors are before one who waits, in its lane, including those who are
	// skipped, or called and have not claimed. It never rises from DrawUntil on. 0 for
	// others.
	Ahead int64
	// Drawn reports whether the lottery decided the place; false once the visitor is gone.
	Drawn bool
	// Until is the end of a called visitor's claim window, or of the pass of a visitor
	// inside.
	Until time.Time
	// Since is when a visitor who is called or inside was called.
	Since time.Time
	// Reason is why the visitor is gone.
	Reason Reason
	// New reports whether this Enter made the place.
	New bool
	// Now is the store's time of the operation.
	Now time.Time
}

// ErrNoVisitor: no visitor with that key or ticket waits or is inside.
var ErrNoVisitor = errors.New("no such visitor waits or is inside")

// GoneError reports that a place does not exist any more.
type GoneError struct {
	Reason Reason
	// ID is the visitor's number.
	ID int64
}

// goneText says in words why a place is gone.
var goneText = map[Reason]string{
	Left:      "it was given up",
	Expired:   "the visit has ended",
	Abandoned: "nobody asked for it for too long",
	Revoked:   "it was revoked",
	Ended:     "the room has closed",
	SoldOut:   "the room is sold out",
	Forgotten: "it is unknown, or was gone long ago",
}

func (e *GoneError) Error() string {
	return fmt.Sprintf("place %d is gone: %s", e.ID, goneText[e.Reason])
}

// Key is the hash of a visitor's key; the zero Key is none.
type Key [16]byte

// Bearer names a visitor to a store as a ticket or a pass does.
type Bearer struct {
	Number int64
	// Fingerprint is that of the ticket; 0, as of passes of earlier releases, matches any.
	Fingerprint Fingerprint
}

// Fingerprint is a short hash of a ticket; 0 is none. A store that has lost its last
// operations gives their numbers again, to other visitors: their fingerprints differ, except
// for one in 65,535.
type Fingerprint uint16

// Is reports whether the bearer is the visitor of a fingerprint, which is 0 for one who
// entered with an earlier release.
func (b Bearer) Is(visitor Fingerprint) bool {
	return b.Fingerprint == visitor || b.Fingerprint == 0 || visitor == 0
}

// Arrival is a visitor who enters.
type Arrival struct {
	Key Key
	// Fingerprint is that of the visitor's ticket.
	Fingerprint Fingerprint
	// Lane is the visitor's, 0 to MaxLanes - 1; 0 is that of a room without lanes.
	Lane int
	// Draw is the visitor's place in the lottery, 0 to MaxDraw. Equal draws are ordered
	// by number.
	Draw int64
	// Provisional visitors do not claim by entering.
	Provisional bool
}

// MaxDraw is the highest Draw: together with the numbers it fits 53 bits, which a
// sorted set of Redis holds exactly.
const MaxDraw = 1<<52 - 1
