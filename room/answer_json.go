package room

import (
	"strconv"
)

// statusNames are the states as visitors are told of them.
var statusNames = [...]string{Waiting: "waiting", Called: "called", Inside: "inside", Gone: "gone"}

// String returns the state as visitors are told of it.
func (s State) String() string {
	if int(s) >= len(statusNames) || s == 0 {
		return "State(" + strconv.Itoa(int(s)) + ")"
	}
	return statusNames[s]
}

// AppendJSON appends the answer as JSON, in the one shape that visitors are told of
// their place in. All its fields are there, null if there is nothing to tell, but
// "draw", which only lotteries have. None of its strings needs to be escaped.
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
