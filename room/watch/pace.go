package watch

import (
	"time"

	"github.com/sluice-project/sluice/room"
)

// How often one is asked about.
const (
	// nearPace is that of visitors near the front: a slot is then taken about so
	// soon after it is free.
	nearPace = 500 * time.Millisecond
	// nearPosition and nearWait say who is near.
	nearPosition = 100
	nearWait     = 3 * time.Second
	// minPace and maxPace bound all others.
	minPace = turnTime
	maxPace = heartbeat
)

// Pace is how long after an answer to ask again on a visitor's behalf: as its
// NextPoll says, near the front at least every 500 ms, and no less often than every
// 15 s.
func Pace(answer *room.Answer) time.Duration {
	pace := min(max(answer.NextPoll, minPace), maxPace)
	if near(answer) {
		pace = min(pace, nearPace)
	}
	return pace
}

func near(a *room.Answer) bool {
	switch {
	case a.State == room.Called:
		return true
	case a.State != room.Waiting:
		return false
	case a.Position > 0 && a.Position <= nearPosition:
		return true
	}
	return a.Wait != nil && a.Wait.Low <= nearWait
}
