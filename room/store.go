package room

import (
	"context"
	"errors"
	"time"
)

// Store holds rooms and their visitors. Each method is one atomic move, durable
// as far as the store is when it returns; all may be called from many goroutines,
// and a store on a server by many processes. The store's clock decides.
//
// What a move may do is in its [Terms]; a store makes no decision of its own. Moves
// with terms end with ErrStale, having done nothing, if the room has another
// revision. All moves about a room, but PutRoom and RemoveRoom, end with ErrNoRoom if
// there is none of that name; all after Close with ErrClosed.
//
// A store keeps for each room a line of those who wait and those who are called,
// ordered by key: their number, or for who came before Terms.DrawUntil their Draw,
// which comes before all numbers. It keeps the active, who are called or inside,
// by when that ends. Calling takes the first visitors of the line that wait and are
// not skipped; one that has not asked for Terms.Abandon is skipped instead, until it
// asks. Moves that call do so as the last thing they do. One that ends, calls or skips
// more than some thousand may leave the rest to the next Expire.
//
// Deadlines are whole milliseconds, due from that millisecond on, and act in Expire
// alone: until it has come, a visitor is where it was, also after Place.Until. So who is
// called may still claim, and a sliding pass still slides. Who wants to know whether a
// pass has ended compares Until with Now.
//
// The service counts as away in a room for which Expire was never called, or last
// longer than Terms.Away ago: while it does, moves that call skip nobody for being
// silent, for none could ask.
type Store interface {
	// Rooms returns the records of all rooms, by name.
	Rooms(ctx context.Context) ([]Record, error)
	// PutRoom stores a room's record if its revision is that one, 0 for a room that
	// must not exist, and returns the new revision; otherwise ErrConflict. A revision
	// is never used twice for a name, even after the room was removed. More than
	// MaxRooms: ErrTooManyRooms. It calls nobody.
	PutRoom(ctx context.Context, name string, record []byte, revision uint64) (uint64, error)
	// RemoveRoom removes a room with all its visitors and events: one that is made of
	// that name later begins from nothing. A room that is not there is removed already.
	RemoveRoom(ctx context.Context, name string) error

	// Enter puts a visitor at the end of the line, and calls. If the arrival has a
	// key that waits or is active, that visitor's place is the answer, as if it had
	// asked with claim, and nobody is called, nor anybody refused. The new visitor's
	// place is returned as after an Ask with claim: if the visitor was called, it is
	// inside. Numbers are 1, 2, 3 and so on, in the order of the moves.
	// ErrNotOpen before EnterFrom, ErrEnded from EnterUntil on, ErrLineFull if
	// Status.Waiting is MaxWaiting or more; then nothing happens.
	Enter(ctx context.Context, terms Terms, arrival Arrival) (Place, error)
	// Ask returns where visitors are, one after the other in their order, and notes that
	// they asked: who was skipped is skipped no more. With claim, who is called is inside
	// from now on. Sliding passes of who is inside last TTL from now, claim or not. A
	// visitor that nobody has heard of is Gone and Forgotten. It calls nobody. At most
	// MaxAsk at once.
	Ask(ctx context.Context, terms Terms, numbers []int64, claim bool) ([]Place, error)
	// Renew gives a pass that is not sliding TTL from now, if it was renewed fewer
	// than terms.Renewals times; otherwise, and if passes are sliding, ErrNotRenewable
	// with the place as it is. A visitor who is not inside: its place, and no error; it
	// has neither asked nor claimed.
	Renew(ctx context.Context, terms Terms, number int64) (Place, error)
	// Leave makes a visitor gone for a reason, and calls. The place is that of
	// before; Gone, with the first reason, if the visitor was gone already, and then
	// nothing happens.
	Leave(ctx context.Context, terms Terms, number int64, reason Reason) (Place, error)
	// Find returns the number of the visitor with a key who waits or is active; 0 if
	// there is none.
	Find(ctx context.Context, terms Terms, key Key) (int64, error)
	// Clear makes all who are active gone, as Revoked, in the order of Expire, and then
	// calls. Their slots are free when it returns. It may take more than one step, and
	// nobody is called in between.
	Clear(ctx context.Context, terms Terms) error
	// Expire does what is due: ends passes; takes the slot from who was called and
	// has not come, who waits at its old place again and is skipped until it asks; makes
	// gone who waits, those included, and has not asked for Abandon and Grace; and calls.
	// The first two in one order: by when they were due, then by number; then the third
	// in that order. It does some thousand at a time.
	//
	// It is called for each room at least every second while the service lives. If the
	// service was away until this call, who waits or is called counts as having asked now
	// (but who is skipped stays so until it really asks), and who is called has at least
	// the claim window from now on. An embedded store that was opened has been away.
	Expire(ctx context.Context, terms Terms) (Due, error)
	// Status returns how many there are.
	Status(ctx context.Context, name string) (Status, error)

	// Events returns up to limit events of a room after a sequence number, in the
	// order of the moves, and within a move in the order in which it does things. They
	// are kept if Terms.Events was not 0. ErrStale if the room has another revision, so
	// that they are not those of another room of that name; 0: whatever it has.
	Events(ctx context.Context, name string, revision uint64, after int64, limit int) ([]Event, error)
	// Published removes the events of a room up to and with a sequence number. ErrStale
	// as from Events.
	Published(ctx context.Context, name string, revision uint64, upTo int64) error

	// Keys returns the keys that sign tickets and passes, the oldest first.
	Keys(ctx context.Context) ([]SigningKey, error)
	// PutKeys stores them all, if the newest that is stored is the one of the ID that the
	// caller has seen, "" for none; otherwise ErrConflict. Their number says nothing: a
	// change adds a key and may drop another. None is logged.
	PutKeys(ctx context.Context, keys []SigningKey, seen string) error

	// Lease gives a name to one holder at a time: true if nobody has it or the holder
	// has it already, until ttl from now. With a ttl of 0 the holder gives it back. It
	// need not survive the store's end.
	Lease(ctx context.Context, name, holder string, ttl time.Duration) (bool, error)

	// Now is the store's time.
	Now(ctx context.Context) (time.Time, error)
	// Close ends the store after what was accepted is durable.
	Close() error
}

// Bounds of calls.
const (
	// MaxAsk is how many visitors one Ask may be about.
	MaxAsk = 1_000
	// MaxRecord is the most bytes of a room's record.
	MaxRecord = 256 << 10
)

// Record is a room as a store has it.
type Record struct {
	Name     string
	Data     []byte
	Revision uint64
}

// Key is the hash of a visitor's key; the zero Key is none.
type Key [16]byte

// Arrival is a visitor who enters.
type Arrival struct {
	Key Key
	// Draw is the visitor's place in the lottery, 0 to MaxDraw. Of two with the same,
	// the one who came first is first.
	Draw int64
}

// MaxDraw is the highest Draw: with the numbers it fits 53 bits, so that a
// sorted set of Redis holds it exactly.
const MaxDraw = 1<<52 - 1

// Terms are what a move of a room may do: the policies' answer for one revision
// of it. All times are of the store's clock, to the millisecond.
type Terms struct {
	Room     string
	Revision uint64

	// Capacity is how many may be active when one is called; 0: nobody is called.
	Capacity int64
	// Calls is how many may be called in all at this tick, if Tick is not 0.
	Calls int64
	// Tick is when the batch is due, in milliseconds since the epoch. Calling happens
	// then only in Expire, only if Tick is higher than that of the last batch and not
	// after Now, and once: what is not used lapses. A tick at which nobody may be called,
	// for Capacity is 0 or it is not between From and Until, is not used up.
	// 0: there are no ticks.
	Tick int64
	// Nobody is called before From, nor from Until on. A zero Until is never.
	From, Until time.Time

	// EnterFrom and EnterUntil bound when one may enter. A zero EnterUntil is never.
	EnterFrom, EnterUntil time.Time
	// DrawUntil is until when arrivals are ordered by their draw. Zero: there is no
	// lottery.
	DrawUntil time.Time
	// MaxWaiting is how many may wait.
	MaxWaiting int64

	// TTL is how long a pass lasts from the claim on; of who was called at a tick, from
	// that tick on.
	TTL time.Duration
	// Sliding passes last TTL from each Ask on.
	Sliding bool
	// Renewals is how often a pass may be renewed.
	Renewals int

	// Claim is how long who is called may take to claim.
	Claim time.Duration
	// Abandon is the silence after which a visitor is skipped, Grace how much longer
	// the place is kept.
	Abandon, Grace time.Duration
	// Away is the time between two calls of Expire after which the service counts as
	// having been away.
	Away time.Duration

	// Events is how many events may wait to be published. Those beyond are dropped and
	// counted, so that people are served in any case. 0: there are none, and none is
	// numbered or counted.
	Events int64
}

// Place is where a visitor is.
type Place struct {
	Number int64
	State  State
	// Ahead is how many are before a visitor who waits, those included who are skipped,
	// or called and have not come yet. It never rises from DrawUntil on. 0 for others.
	Ahead int64
	// Drawn says that the lottery decided the place of who is not gone.
	Drawn bool
	// Until is when the claim window of who is called ends, or the pass of who is
	// inside.
	Until time.Time
	// Since is when who is called or inside was called.
	Since time.Time
	// Reason is why who is gone is gone.
	Reason Reason
	// New says that this Enter made the place.
	New bool
	// Now is the store's time of the move.
	Now time.Time
}

// Due is what is left after Expire.
type Due struct {
	// Next is when the next pass, claim window or place ends; zero if none does. It may
	// be earlier than anything really ends, but is after Now unless there is More.
	Next time.Time
	// More says that more is due now.
	More bool
	Now  time.Time
}

// Status is how many visitors a room has, and had since it was made.
type Status struct {
	// Waiting are those in line who are not called, skipped ones included. Inside are
	// the active; Called those of them who have not come yet.
	Waiting, Inside, Called int64
	// Entered, Admitted (called), Missed (called, and did not come), Departed (gone while
	// waiting, for whatever reason) and Expired (passes that ended) only grow. So Waiting
	// is Entered + Missed - Admitted - Departed.
	Entered, Admitted, Missed, Departed, Expired int64
	// EventsDropped counts the events that were not kept.
	EventsDropped int64
	// Tick is the last tick at which a batch was called.
	Tick int64
	Now  time.Time
}

// SigningKey is a key of the ring.
type SigningKey struct {
	// ID is 8 hexadecimal digits.
	ID string `json:"id"`
	// Secret is 32 random bytes, from which the keys for tickets and passes are
	// derived.
	Secret    []byte    `json:"secret"`
	CreatedAt time.Time `json:"created_at"`
}

// Errors of stores and of the engine. Those of a call may be wrapped.
var (
	// ErrNoRoom: there is no room of that name.
	ErrNoRoom = errors.New("there is no such room")
	// ErrStale: the room has another revision than the terms.
	ErrStale = errors.New("the room was changed meanwhile")
	// ErrConflict: another change came first.
	ErrConflict = errors.New("changed meanwhile")
	// ErrTooManyRooms: there are MaxRooms already.
	ErrTooManyRooms = errors.New("there are 1,000 rooms already: remove one")
	// ErrNotOpen: it is before PrequeueFrom.
	ErrNotOpen = errors.New("the room is not open yet")
	// ErrEnded: EndsAt has passed.
	ErrEnded = errors.New("the room has closed")
	// ErrLineFull: MaxWaiting wait already.
	ErrLineFull = errors.New("the line is full")
	// ErrNotRenewable: the pass may not be renewed, or not once more.
	ErrNotRenewable = errors.New("the pass cannot be renewed")
	// ErrUnavailable: the store does not answer at present; try again.
	ErrUnavailable = errors.New("the store does not answer")
	// ErrFull: there is no room on the disk, or in the server's memory.
	ErrFull = errors.New("no space left")
	// ErrBroken: the store has failed, and must be opened again.
	ErrBroken = errors.New("the store has failed")
	// ErrClosed: the store or engine is closed.
	ErrClosed = errors.New("closed")
)
