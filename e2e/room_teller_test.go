//go:build redis && long

package e2e

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/redistest"
	"github.com/sluice-project/sluice/internal/testkit/until"
	"github.com/sluice-project/sluice/room"
)

// killSome kills up to a third of the servers at a random moment, and restarts them.
func killSome(fleet []*server) {
	<-time.After(rand.N(300 * time.Millisecond))
	some := slices.Clone(fleet)
	rand.Shuffle(len(some), func(i, k int) { some[i], some[k] = some[k], some[i] })
	some = some[:1+rand.N(max(1, len(some)/3))]
	for _, s := range some {
		s.kill()
	}
	<-time.After(rand.N(300 * time.Millisecond))
	for _, s := range some {
		s.launch()
	}
	for _, s := range some {
		s.awaitReady()
	}
}

// Several servers on one Redis let visitors in while servers are killed and the capacity changes.
// The history in the store shows for every moment:
//   - When a visitor is called, at most the present capacity are inside, including called visitors.
//   - A guest who kept asking (see crowd.inTime) is called before all later guests, enters in time,
//     and does not lose its place.
//   - A slot that is free while such a guest waits is filled within the slack of newLedger; the slot
//     of a no-show is free again after the claim window and the slack.
//   - Places and passes of silent guests end when they should.
func TestTellerKeepsItsPromises(t *testing.T) {
	t.Parallel()
	plan := crowdPlan{
		room: "shop", count: 1_500, together: 400,
		ttl: 1500 * time.Millisecond, claim: 2 * time.Second, abandon: 3 * time.Second, grace: 1500 * time.Millisecond,
		slides: true, stay: time.Second,
	}
	servers, levels := 5, []int64{150, 80, 200, 100}
	if long() {
		servers = 10
		plan.count, plan.together = 25_000, 2_000
		levels = []int64{900, 400, 1_200, 600}
	}
	plan.near = slices.Min(levels)
	redis := redistest.Start(t, redistest.Options{})
	store := openHistory(t, redis, plan.room)
	fleet := newFleet(t, servers, redis.URL())
	limits := setCapacity(fleet[0], &plan, nil, levels[0])
	awaitRoom(fleet, plan.room)
	c := newCrowd(t, plan, fleet...)
	kills := 0
	for {
		for c.goOn(plan.count / 40) {
			if kills++; kills%4 == 0 {
				limits = setCapacity(fleet[rand.N(len(fleet))], &plan, limits, levels[kills/4%len(levels)])
			}
			if kills == 10 {
				fleet[0].call("POST", "/v1/room-keys/rotate", "", http.StatusNoContent, nil)
			}
			killSome(fleet)
		}
		awaitEmpty(t, fleet[0], plan.room)
		events := readHistory(t, store, plan.room)
		l := newLedger(c)
		checkTeller(l, limits, events)
		t.Logf("%d events, %d rounds of kills", len(events), kills)
		kept := l.kept
		if kept >= plan.count/4 {
			break
		}
		if t.Failed() || c.crowds == mostCrowds {
			t.Fatalf("only %d of %d guests kept asking", kept, len(c.all))
		}
		c.another()
	}
	var view roomView
	fleet[0].call("GET", "/v1/rooms/"+plan.room, "", http.StatusOK, &view)
	if view.AdmittedTotal < c.admitted.Load() {
		t.Errorf("%d were let in, and %d guests were told that they are inside", view.AdmittedTotal, c.admitted.Load())
	}
}

// setCapacity creates the room of a plan, or changes its capacity.
func setCapacity(s *server, plan *crowdPlan, limits capacities, capacity int64) capacities {
	s.t.Helper()
	status := http.StatusOK
	if limits == nil {
		status = http.StatusCreated
	}
	sent := time.Now()
	s.call("PUT", "/v1/rooms/"+plan.room, plan.teller(capacity), status, nil)
	return append(limits, capacityChange{sent, time.Now(), capacity})
}

// awaitRoom waits until all servers know a room.
func awaitRoom(fleet []*server, name string) {
	for _, s := range fleet {
		until.True(s.t, "a server knows the room", func() bool {
			a, err := s.do("GET", "/v1/rooms/"+name, "", nil)
			return err == nil && a.status == http.StatusOK
		})
	}
}

// checkTeller replays the history of a room in mode teller.
func checkTeller(l *ledger, limits capacities, events []room.Event) {
	slots := &slotWatch{ledger: l, limits: limits}
	for _, change := range limits {
		slots.changes = append(slots.changes, change.sent, change.answered.Add(time.Millisecond))
	}
	l.onEvent = func(e room.Event, v *visit) {
		slots.until(e.Time)
		if _, high := limits.at(e.Time); e.Type == room.VisitorAdmitted && l.inside >= high {
			l.errorf("%d are inside, of at most %d: %+v", l.inside+1, high, e)
		}
		l.checkTurn(e, v)
		l.checkEnd(e, v)
	}
	l.replay(events)
	l.t.Logf("a slot was free while somebody waited for %v at most", slots.longest)
}

// slotWatch measures how long slots are free while guests wait who keep asking.
type slotWatch struct {
	*ledger
	limits capacities
	// changes are the times when the capacity may have changed; last is the last event's time.
	changes    []time.Time
	last, idle time.Time
	longest    time.Duration
}

// until accounts for the time between the last event and one that is yet to be applied.
func (s *slotWatch) until(now time.Time) {
	s.look(s.last)
	for len(s.changes) > 0 && s.changes[0].Before(now) {
		s.look(s.changes[0])
		s.changes = s.changes[1:]
	}
	s.last = now
}

func (s *slotWatch) look(now time.Time) {
	low, _ := s.limits.at(now)
	switch is := s.inside < low && len(s.line) > 0; {
	case is && s.idle.IsZero():
		s.idle = now
	case !is && !s.idle.IsZero():
		long := now.Sub(s.idle) - s.away(s.idle, now)
		s.longest = max(s.longest, long)
		if s.idle = (time.Time{}); long > s.slack {
			s.errorf("until %v a slot was free for %v while visitors waited who kept asking", now, long)
		}
	}
}
