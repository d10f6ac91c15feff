package gate

import (
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/sluice-project/sluice/room/engine"
)

const (
	// DefaultRecheck is the default of [Options].Recheck.
	DefaultRecheck = 2 * time.Second
	// maxBelieved is how many passes are believed at most, some 1 KiB each and never more
	// than 3. With more visitors, some are asked about sooner.
	maxBelieved = 32_768
	// slideParts: a pass is asked about again after an eighth of what is left of its visit at
	// the latest. So the store learns in time that it is used, and prolongs it.
	slideParts = 8
)

// believed are answers about passes that the engine gave lately. Those of a time are
// forgotten together: a generation lasts for the length, and the one before it is kept.
type believed struct {
	length time.Duration // negative: nothing is believed

	mu          sync.Mutex
	young, old  map[claim]*belief
	generations time.Time // when the young one began
}

// claim is a pass that a client has shown for a room: rooms may bind passes to clients.
type claim struct {
	room, pass string
	client     netip.Addr
}

type belief struct {
	answer engine.Answer
	until  time.Time
}

// get returns the answer that is still believed, or nil.
func (b *believed) get(shown claim, now time.Time) *engine.Answer {
	b.mu.Lock()
	found := b.young[shown]
	if found == nil {
		found = b.old[shown]
	}
	b.mu.Unlock()
	if found == nil || !now.Before(found.until) {
		return nil
	}
	return &found.answer
}

// put believes an answer to a question that was asked at a time.
func (b *believed) put(shown claim, answer *engine.Answer, asked time.Time) {
	length := min(b.length, answer.PassExpiresAt.Sub(asked)/slideParts)
	if length <= 0 {
		return
	}
	until := asked.Add(length)
	if ends := passEnds(shown.pass); !ends.IsZero() && ends.Before(until) {
		until = ends
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if asked.Sub(b.generations) >= b.length || len(b.young) >= maxBelieved/2 {
		b.old, b.young, b.generations = b.young, map[claim]*belief{}, asked
	}
	// A copy: the text is part of the request's header.
	shown.pass = strings.Clone(shown.pass)
	b.young[shown] = &belief{*answer, until}
}

// forget stops believing a pass.
func (b *believed) forget(shown claim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.young, shown)
	delete(b.old, shown)
}
