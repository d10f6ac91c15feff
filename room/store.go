package room

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Store holds rooms and their visitors. Each method is one atomic operation, durable
// as far as the store is when it returns. Many goroutines may call it, and many
// processes a store on a server. The store's clock decides.
//
// [Terms] bound what an operation may do; a store makes no decision of its own, and
// applies the rules of calling.go. An operation with terms returns ErrStale, having done
// nothing, if the room has another revision. Operations on a room, except PutRoom and
// RemoveRoom, return ErrNoRoom if there is none of that name; all return ErrClosed after
// Close.
//
// A store keeps for each room a line of the visitors who wait or are called, ordered by
// number, or for visitors who came before Terms.DrawUntil by Draw, which comes before all
// numbers. It keeps the active visitors, called or inside, by when that ends. Calling
// takes the first visitors of the line that wait and are not skipped; a visitor that has
// not asked for Terms.Abandon is skipped instead, until it asks. Operations that call do
// so last. Visitors of an [Arrival.Lane] have a line of their own, ordered by number: the store
// keeps Turns for each room, and takes the first visitor of the lane that is next. Turns need not
// survive the store's end. An operation that ends, calls or skips more than some thousand visitors may
// leave the rest to the next Expire.
//
// Deadlines are whole milliseconds, due from that millisecond on, and only Expire acts
// on them: until then a visitor stays where it was, also after Place.Until. So a called
// visitor may still claim, and a sliding pass still slides. To learn whether a pass has
// ended, compare Until with Now.
//
// The service counts as away in a room for which Expire was never called, or last
// longer than Terms.Away ago. While it is away nobody is skipped for being silent,
// because nobody could ask.
type Store interface {
	// Rooms returns the records of all rooms, by name.
	Rooms(ctx context.Context) ([]Record, error)
	// RoomsVersion returns a number that is another one after each PutRoom and RemoveRoom
	// that changed something, so that the records need not be read again while it is the same.
	RoomsVersion(ctx context.Context) (uint64, error)
	// PutRoom stores a room's record if the room has that revision, 0 for a room that
	// must not exist, and returns the new revision; otherwise it returns ErrConflict. A
	// revision is never reused for a name, even after the room was removed. It returns
	// ErrTooManyRooms beyond MaxRooms. It calls nobody. With a version, at most one, it also returns
	// ErrConflict if RoomsVersion is not that any more: what the caller knew of the rooms still holds then.
	PutRoom(ctx context.Context, name string, record []byte, revision uint64, version ...uint64) (uint64, error)
	// RemoveRoom removes a room with all its visitors and events: a later room of that
	// name starts empty. It is idempotent.
	RemoveRoom(ctx context.Context, name string) error

	// Enter puts a visitor at the end of the line, and calls. If the arrival has a
	// key that waits or is active, Enter returns that visitor's place, as an Ask with
	// claim would, and calls or refuses nobody. The new visitor's place is returned as
	// after an Ask with claim: a visitor who was called is inside. Both ask without claim
	// if the arrival is Provisional. Numbers are 1, 2, 3 and so on, in the order of the
	// operations. If nobody waited, the ticks until now have lapsed. ErrNotOpen before
	// EnterFrom, ErrEnded from EnterUntil on, ErrLineFull if Status.Waiting is MaxWaiting
	// or more; then nothing happens.
	Enter(ctx context.Context, terms Terms, arrival Arrival) (Place, error)
	// Ask returns where visitors are, one after the other in their order, and records
	// that they asked: skipped visitors are skipped no longer. With claim, called
	// visitors are inside from now on. Sliding passes of visitors inside last TTL from
	// now, claim or not. An unknown visitor, and a bearer whose number another visitor has,
	// is Gone and Forgotten, here and in Renew and Leave. Ask calls nobody. It takes at
	// most MaxAsk visitors.
	Ask(ctx context.Context, terms Terms, bearers []Bearer, claim bool) ([]Place, error)
	// Renew makes a fixed pass last TTL from now, if it was renewed fewer than
	// terms.Renewals times; otherwise, and for sliding passes, it returns ErrNotRenewable
	// with the place as it is. For a visitor who is not inside it returns the place, and
	// no error; the visitor has neither asked nor claimed.
	Renew(ctx context.Context, terms Terms, bearer Bearer) (Place, error)
	// Leave makes a visitor gone for a reason, and calls. It returns the earlier place;
	// if the visitor was gone already, that is Gone with the first reason, and nothing
	// happens.
	Leave(ctx context.Context, terms Terms, bearer Bearer, reason Reason) (Place, error)
	// Find returns the number of the visitor with a key who waits or is active; 0 if
	// there is none.
	Find(ctx context.Context, terms Terms, key Key) (int64, error)
	// Clear makes all active visitors gone, as Revoked, in the order of Expire, and then
	// calls. Their slots are free when it returns. It may take more than one step;
	// nobody is called in between.
	Clear(ctx context.Context, terms Terms) error
	// Expire ends what is due. It ends passes, and takes the slots of no-shows, who wait
	// at their old places and are skipped until they ask: both in one order, by deadline
	// and then by number. Then, in the same order, it makes visitors gone who wait,
	// no-shows included, and have not asked for Abandon and Grace. Then it calls. It does
	// some thousand at a time.
	//
	// It is called for each room with anybody in it at least every second while the service
	// lives, and acts for one tender at a time; see [Terms.Tends]. Otherwise it does nothing,
	// and Due.Next is when another may tend the room. A room that is left empty has no
	// tender. If the service was away until this call, visitors who wait or are called count as having
	// asked now (but skipped visitors stay skipped until they really ask), and called
	// visitors have at least the claim window from now on. An embedded store that was
	// opened has been away.
	Expire(ctx context.Context, terms Terms) (Due, error)
	// Status returns the counts of a room.
	Status(ctx context.Context, name string) (Status, error)

	// Events returns up to limit events of a room after a sequence number, in the
	// order of the operations, and within one in the order in which it acts. They are
	// kept if Terms.Events was not 0. ErrStale if the room has another revision, so that
	// the events are not those of another room of that name; revision 0 matches any.
	Events(ctx context.Context, name string, revision uint64, after int64, limit int) ([]Event, error)
	// Published removes the events of a room up to and including a sequence number.
	// ErrStale as from Events.
	Published(ctx context.Context, name string, revision uint64, upTo int64) error

	// Keys returns the keys that sign tickets and passes, the oldest first.
	Keys(ctx context.Context) ([]SigningKey, error)
	// PutKeys replaces the keys, if the newest stored key has the ID that the caller has
	// seen, "" for none; otherwise it returns ErrConflict. Their number may not change: a
	// change adds a key and may drop another. No key is logged.
	PutKeys(ctx context.Context, keys []SigningKey, seen string) error

	// Own gives the ownership of a name to one holder at a time: it returns true if
	// nobody has it or the holder has it already, until ttl from now. A ttl of 0 gives it
	// back. Ownership need not survive the store's end.
	Own(ctx context.Context, name, holder string, ttl time.Duration) (bool, error)

	// Now returns the store's time.
	Now(ctx context.Context) (time.Time, error)
	// Close closes the store after accepted operations are durable.
	Close() error
}

// Bounds of calls.
const (
	// MaxAsk is how many visitors one Ask may be about.
	MaxAsk = 1_000
	// MaxRecord is the most bytes of a room's record.
	MaxRecord = 256 << 10
)

// Owner is who creates a room.
type Owner struct {
	// Name is that of an account; "" for nobody.
	Name string
	// Most is how many rooms the owner may have made that still exist; 0 means any number.
	Most int
}

// Record is a room as a store has it.
type Record struct {
	Name     string
	Data     []byte
	Revision uint64
}

// Due is the result of Expire.
type Due struct {
	// Next is when the next pass, claim window or place may end, at the latest; zero if
	// none does. It is after Now unless More is set.
	Next time.Time
	// More reports whether more is due now.
	More bool
	Now  time.Time
	// Tended reports whether the call acted.
	Tended bool
	// Status is the room's status after it.
	Status Status
}

// Status counts the visitors of a room, now and since it was made.
type Status struct {
	// Waiting counts visitors in line who are not called, skipped ones included; Inside
	// the active ones; Called those of the active who have not claimed yet.
	Waiting, Inside, Called int64
	// Entered, Admitted (called), NoShows (called, and did not claim), Departed (gone
	// before they claimed, for any reason) and Expired (passes that ended) only grow.
	// Waiting is Entered + NoShows - Admitted - Departed. A called visitor who is gone is a
	// no-show too.
	Entered, Admitted, NoShows, Departed, Expired int64
	// EventsWaiting counts the events that were not removed by Published yet, and
	// EventsDropped those that were not kept.
	EventsWaiting, EventsDropped int64
	// Tick is the last tick at which a batch was called.
	Tick int64
	Now  time.Time
}

// CameIn returns how many visitors have claimed a slot.
func (s *Status) CameIn() int64 { return s.Admitted - s.NoShows - s.Called }

// SigningKey is a key of the ring.
type SigningKey struct {
	// ID is 8 hexadecimal digits.
	ID string `json:"id"`
	// Secret is 32 random bytes, from which the keys for tickets and passes are
	// derived.
	Secret    []byte    `json:"secret"`
	CreatedAt time.Time `json:"created_at"`
}

// Errors of stores and of the engine. Calls may wrap them.
var (
	// ErrNoRoom: no room has that name.
	ErrNoRoom = errors.New("there is no such room")
	// ErrStale: the room has another revision than the terms.
	ErrStale = errors.New("the room was changed in the meantime")
	// ErrConflict: another change came first.
	ErrConflict = errors.New("changed in the meantime")
	// ErrTooManyRooms: there are MaxRooms already, or their records take MaxRoomBytes.
	ErrTooManyRooms = errors.New("there are 10,000 rooms already, or the settings of all take 64 MiB: remove a room, or rules")
	// ErrNotOpen: it is before PrequeueFrom.
	ErrNotOpen = errors.New("the room is not open yet")
	// ErrEnded: EndsAt has passed.
	ErrEnded = errors.New("the room has closed")
	// ErrSoldOut: the room has closed because there is nothing left. It is an ErrEnded.
	ErrSoldOut = fmt.Errorf("%w: it is sold out", ErrEnded)
	// ErrLineFull: MaxWaiting wait already.
	ErrLineFull = errors.New("the line is full")
	// ErrNotRenewable: the pass may not be renewed, or not again.
	ErrNotRenewable = errors.New("the pass cannot be renewed")
	// ErrUnavailable: the store does not answer now; try again.
	ErrUnavailable = errors.New("the store does not answer")
	// ErrFull: the disk, or the server's memory, is full.
	ErrFull = errors.New("no space left")
	// ErrBroken: the store has failed, and must be opened again.
	ErrBroken = errors.New("the store has failed")
	// ErrClosed: the store or engine is closed.
	ErrClosed = errors.New("closed")
)

// QuotaError means that an owner may make no more rooms.
type QuotaError struct {
	Owner string
	// Has is how many rooms the owner has made that still exist, and Most how many that may be.
	Has, Most int
}

func (e *QuotaError) Error() string {
	return fmt.Sprintf("%s has %d rooms, and one more would exceed max_rooms, %d: remove one, or have an admin raise it", e.Owner, e.Has, e.Most)
}

// String returns the ID: the secret is not for logs.
func (k SigningKey) String() string { return "key " + k.ID }

// LogValue is the ID: the secret is not for logs.
func (k SigningKey) LogValue() slog.Value { return slog.StringValue(k.String()) }
