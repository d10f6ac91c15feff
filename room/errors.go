package room

import (
	"errors"
	"fmt"
	"time"
)

// ErrNoVisitor: nobody of that key or ticket waits or is inside.
var ErrNoVisitor = errors.New("no such visitor waits or is inside")

// GoneError says that a place does not exist any more.
type GoneError struct {
	Reason Reason
	// ID is the visitor's number.
	ID int64
}

// goneWhy tells people what became of a place.
var goneWhy = map[Reason]string{
	Left:      "it was given up",
	Expired:   "the visit has ended",
	Abandoned: "nobody asked for it for too long",
	Revoked:   "it was revoked",
	Ended:     "the room has closed",
	Forgotten: "it is unknown, or was gone long ago",
}

func (e *GoneError) Error() string {
	return fmt.Sprintf("place %d is gone: %s", e.ID, goneWhy[e.Reason])
}

// LimitError says that too many visitors came from one client address.
type LimitError struct {
	// RetryAfter is when the next may come.
	RetryAfter time.Duration
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("too many visitors from this address: the next may come in %v", e.RetryAfter)
}

// MaxVisitorKey is the most bytes of a visitor's key.
const MaxVisitorKey = 256

// KeyError says what is wrong with a visitor's key.
type KeyError struct{ Why string }

func (e *KeyError) Error() string { return "visitor: " + e.Why }

// retriable tells whether a loop should go on after an error of the store.
func retriable(err error) bool {
	return err != nil && !errors.Is(err, ErrBroken) && !errors.Is(err, ErrClosed)
}
