package room

import (
	"math/rand/v2"
	"time"
)

// measured is what the last count of a room's visitors found, how many were let in
// lately, and how fast the line moves, if there is one.
type measured struct {
	status     Status
	flow, line Flow
}

const (
	// callPoll is the most time after which who is called is to come, should word of it
	// have been lost.
	callPoll = time.Second
	// insidePoll is the most time after which who is inside is to ask again: the pass
	// is half over then.
	insidePoll = MaxPassLife / 2
)

// expect tells a visitor when to ask again, and how long it will probably take.
func (e *Engine) expect(t *turn, a *Answer, place Place) {
	switch place.State {
	case Called:
		a.NextPoll = min(callPoll, t.terms.Claim/4)
		return
	case Inside:
		a.NextPoll = max(min(insidePoll, place.Until.Sub(place.Now)/2), time.Millisecond)
		return
	}
	outlook := Outlook{Room: t.room, Now: place.Now, Ahead: place.Ahead}
	if a.Position == 0 {
		outlook.Ahead = -1
	}
	if m := t.known.measured.Load(); m != nil {
		outlook.Status, outlook.Flow = m.status, m.line
		a.Wait = EstimateWait(outlook)
	}
	a.NextPoll = NextPoll(outlook, a.Wait, rand.Float64())
}
