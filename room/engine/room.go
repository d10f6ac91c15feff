package engine

import (
	"time"

	"github.com/sluice-project/sluice/room"
)

// Room is a room as it is stored: its settings, and what was done to it.
type Room struct {
	// Name is 1 to 64 of lower-case letters, digits and "-", beginning with a letter
	// or digit.
	Name     string        `json:"name"`
	Settings room.Settings `json:"settings"`
	// Paused rooms let nobody in; visitors may still come and wait.
	Paused bool `json:"paused,omitempty"`
	// SoldOutAt is when the room was said to be sold out; zero: it is not. It has closed then,
	// as at EndsAt.
	SoldOutAt time.Time `json:"sold_out_at,omitzero"`
	// Epoch is raised when all passes are revoked: earlier passes are void.
	Epoch int64 `json:"epoch"`
	// Generation is random, and differs from that of an earlier room of the same name:
	// tickets and passes sign it.
	Generation string `json:"generation"`
	// Seed decides the lottery: 32 random bytes, secret until the room has opened.
	Seed []byte `json:"seed"`
	// CodeKey signs codes: 32 random bytes; empty until the room has Codes.
	CodeKey   []byte    `json:"code_key,omitempty"`
	CreatedAt time.Time `json:"created_at"`
	// Owner is the account that created the room; "" if there was none, or an earlier version created it.
	Owner string `json:"owner,omitempty"`
	// Found is the capacity, or the batch, that was found last for a room whose own is Auto; 0
	// before. ReportedAt is when the upstream last reported its health; see
	// [Engine.ReportHealth].
	Found      int64     `json:"found,omitempty"`
	ReportedAt time.Time `json:"reported_at,omitzero"`

	// Revision is the store's, raised by each change of the fields above.
	Revision uint64 `json:"-"`

	// size is the bytes of the record.
	size int64
}

// Opening returns when the room opens: ticks count from here.
func (r *Room) Opening() time.Time {
	if r.Settings.OpensAt.IsZero() {
		return r.CreatedAt
	}
	return r.Settings.OpensAt
}

// Limit returns the capacity (teller) or the batch (park) that is in force.
func (r *Room) Limit() int64 {
	s := &r.Settings
	if n := s.Limit(); n != room.Auto {
		return n
	}
	return min(max(r.Found, s.AutoMin), s.AutoMax)
}

// capacity returns how many visitors may be inside; 0: any number.
func (r *Room) capacity() int64 {
	if r.Settings.Mode == room.Park {
		return 0
	}
	return r.Limit()
}

// PhaseOf returns what a room does now, from its settings, as by At, and the counts of its
// visitors.
func PhaseOf(r *Room, status *room.Status, now time.Time) room.Phase {
	s := &r.Settings
	over := whyClosed(r, now)
	switch {
	case over == room.SoldOut:
		return room.AllSold
	case now.Before(s.PrequeueFrom) || over != "":
		return room.Closed
	case r.Paused:
		return room.Paused
	case now.Before(s.OpensAt):
		return room.Queueing
	case s.Mode == room.Park && status.Waiting >= r.Limit():
		return room.Queueing
	case s.Mode == room.Teller && status.Inside >= r.Limit():
		return room.Queueing
	}
	return room.Open
}

// closing returns when the room closes, and why: at EndsAt, or when it is sold out if that is
// earlier. A zero time is never.
func (r *Room) closing() (time.Time, room.Reason) {
	ends, sold := r.Settings.EndsAt, r.SoldOutAt
	if !sold.IsZero() && (ends.IsZero() || sold.Before(ends)) {
		return sold, room.SoldOut
	}
	return ends, room.Ended
}

// whyClosed returns why the room has closed, where events repeat until the pre-queue of the next
// one; "" if it has not.
func whyClosed(r *Room, now time.Time) room.Reason {
	at, why := r.closing()
	switch {
	case !at.IsZero() && !now.Before(at):
		return why
	case r.Settings.Repeats != "" && now.Before(r.Settings.PrequeueFrom):
		return room.Ended
	}
	return ""
}

// View is a room as an operator sees it.
type View struct {
	Room   Room
	Status room.Status
	Phase  room.Phase
	// Found is the capacity or the batch in force, where the room's own is Auto; else nil.
	Found *int64
	// Event is the event that is on, or comes next, where events repeat; else nil.
	Event *room.Occurrence
	// Outflow is how many visitors are let in per second, measured over the last minute;
	// nil if nobody was let in, or the service has just started.
	Outflow *float64
	// Waits are those of the visitors called lately; nil if this instance has seen none.
	Waits *Waits
}
