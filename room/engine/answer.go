package engine

import (
	"strconv"
	"time"

	"github.com/sluice-project/sluice/room"
)

// Answer is the answer to a visitor.
type Answer struct {
	// Ticket is the one to use from now on: signed with the newest key.
	Ticket string
	// ID is the visitor's number in the room.
	ID    int64
	State room.State
	// Position counts from 1; 0 if there is none: inside, gone, or before the lottery
	// is drawn. Ahead is Position-1.
	Position int64
	// Wait is the estimated wait; nil if it is not known.
	Wait *Wait
	// NextPoll is when to ask again.
	NextPoll time.Duration
	// Pass is set if the visitor is inside. It is renewed with each answer, and ends at
	// most MaxPassLife from now; PassExpiresAt is when the visit ends.
	Pass          string
	PassExpiresAt time.Time
	// Draw is the visitor's number in the lottery, shown once it is drawn; nil if the
	// place is not of a lottery.
	Draw *int64
	// Lane is the lane in which the visitor waits; "" if it does not, or the room has no lanes.
	Lane string
	// New reports whether this answer made the place, and Proven whether the visitor has
	// passed a challenge.
	New, Proven bool
}

// MaxPassLife is how long at most a pass is valid for services that do not ask Sluice.
const MaxPassLife = time.Minute

// AppendJSON appends the answer as JSON, in the one form that all edges use. All fields
// are there, null if empty, except "draw", which only lotteries have, and "lane". None of its strings
// needs escaping.
func (a *Answer) AppendJSON(b []byte) []byte {
	b = appendText(append(b, `{"ticket":`...), a.Ticket)
	b = strconv.AppendInt(append(b, `,"id":`...), a.ID, 10)
	b = appendText(append(b, `,"status":`...), a.State.String())
	if a.Position > 0 {
		b = strconv.AppendInt(append(b, `,"position":`...), a.Position, 10)
		b = strconv.AppendInt(append(b, `,"ahead":`...), a.Position-1, 10)
	} else {
		b = append(b, `,"position":null,"ahead":null`...)
	}
	if a.Wait != nil {
		b = strconv.AppendInt(append(b, `,"estimated_wait_ms":{"low":`...), a.Wait.Low.Milliseconds(), 10)
		b = strconv.AppendInt(append(b, `,"high":`...), a.Wait.High.Milliseconds(), 10)
		b = append(b, '}')
	} else {
		b = append(b, `,"estimated_wait_ms":null`...)
	}
	b = strconv.AppendInt(append(b, `,"next_poll_ms":`...), a.NextPoll.Milliseconds(), 10)
	b = appendText(append(b, `,"pass":`...), a.Pass)
	if a.PassExpiresAt.IsZero() {
		b = append(b, `,"pass_expires_at":null`...)
	} else {
		b = append(b, `,"pass_expires_at":"`...)
		b = a.PassExpiresAt.UTC().AppendFormat(b, answerTime)
		b = append(b, '"')
	}
	if a.Draw != nil {
		b = strconv.AppendInt(append(b, `,"draw":`...), *a.Draw, 10)
	}
	if a.Lane != "" {
		b = appendText(append(b, `,"lane":`...), a.Lane)
	}
	return append(b, '}')
}

// answerTime is RFC 3339, to the millisecond that stores keep.
const answerTime = "2006-01-02T15:04:05.000Z07:00"

// MarshalJSON returns what AppendJSON appends.
func (a Answer) MarshalJSON() ([]byte, error) { return a.AppendJSON(make([]byte, 0, answerBytes)), nil }

// answerBytes is about what an answer with a pass takes.
const answerBytes = 768

// appendText appends a string that needs no escapes; null if it is empty.
func appendText(b []byte, text string) []byte {
	if text == "" {
		return append(b, "null"...)
	}
	b = append(b, '"')
	b = append(b, text...)
	return append(b, '"')
}
