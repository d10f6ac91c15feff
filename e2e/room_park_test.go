//go:build redis && long

package e2e

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/redistest"
	"github.com/sluice-project/sluice/room"
)

// Three servers let in a batch at each tick while servers are killed one at a time, so at least one
// handles each tick. The history in the store shows:
//   - A tick at which at least a batch of guests who kept asking waited lets in exactly one batch;
//     other ticks let in at least all of those, and no tick more than a batch.
//   - Batches come at their ticks, and no guest who kept asking is overtaken, is a no-show or loses
//     its place.
//   - Nobody is inside once the stay is over, counted from the tick, and nobody leaves before.
func TestParkKeepsItsPromises(t *testing.T) {
	t.Parallel()
	const interval = time.Second
	plan := crowdPlan{
		room: "fair", count: 700, together: 250, near: 60,
		ttl: 1500 * time.Millisecond, claim: 1200 * time.Millisecond, abandon: 3 * time.Second, grace: time.Second,
		stay: 2 * time.Second,
	}
	if long() {
		plan.count, plan.together, plan.near = 12_000, 1_500, 300
	}
	batch := plan.near
	redis := redistest.Start(t, redistest.Options{})
	store := openHistory(t, redis, plan.room)
	fleet := newFleet(t, 3, redis.URL())
	fleet[0].call("PUT", "/v1/rooms/"+plan.room, fmt.Sprintf(
		`{"mode":"park","batch":%d,"interval_ms":%d,"stay_ms":%d,"claim_window_ms":%d,"abandon_after_ms":%d,"grace_ms":%d}`, batch,
		interval.Milliseconds(), plan.ttl.Milliseconds(), plan.claim.Milliseconds(), plan.abandon.Milliseconds(), plan.grace.Milliseconds()), http.StatusCreated, nil)
	awaitRoom(fleet, plan.room)
	c := newCrowd(t, plan, fleet...)
	for ; ; c.another() {
		for c.goOn(plan.count / 20) {
			killSome(fleet)
		}
		awaitEmpty(t, fleet[0], plan.room)
		l := newLedger(c)
		w := &tickWatch{ledger: l, opening: readOpening(t, store, plan.room), interval: interval, batch: batch, admitted: map[int]int64{}}
		l.onEvent = w.event
		l.replay(readHistory(t, store, plan.room))
		whole := w.check()
		if whole >= 5 {
			return
		}
		if t.Failed() || c.crowds == mostCrowds {
			t.Fatalf("only %d ticks let in a whole batch", whole)
		}
	}
}

// tickWatch checks how many each tick let in.
type tickWatch struct {
	*ledger
	opening  time.Time
	interval time.Duration
	batch    int64
	// waited is how many guests who kept asking waited at each tick, by its index; admitted is how
	// many were let in then.
	waited   []int64
	admitted map[int]int64
}

func (w *tickWatch) tick(index int) time.Time {
	return w.opening.Add(time.Duration(index) * w.interval)
}

// at returns the index of the last tick at a time.
func (w *tickWatch) at(t time.Time) int { return int(t.Sub(w.opening) / w.interval) }

func (w *tickWatch) event(e room.Event, v *visit) {
	for len(w.waited) <= w.at(e.Time) {
		w.waited = append(w.waited, int64(len(w.line)))
	}
	w.checkTurn(e, v)
	w.checkEnd(e, v)
	switch {
	case e.Type == room.VisitorAdmitted:
		index := w.at(e.Time)
		w.admitted[index]++
		if late := e.Time.Sub(w.tick(index)); late > w.slack {
			w.errorf("visitor %d was let in %v after the tick", e.Number, late)
		}
	case e.Inside && e.Type != room.VisitorNoShow:
		ends := w.tick(w.at(v.admitted)).Add(w.plan.ttl)
		late := e.Time.Sub(ends)
		if late > w.slack || e.Type == room.VisitorExpired && late < 0 {
			w.errorf("visitor %d is out %v after its stay: %+v", e.Number, late, e)
		}
	}
}

// check returns how many ticks let in a full batch.
func (w *tickWatch) check() (whole int) {
	for index, waited := range w.waited {
		n := w.admitted[index]
		if n > w.batch || n < min(waited, w.batch) {
			w.errorf("tick %d let in %d, with a batch of %d and %d waiting", index, n, w.batch, waited)
		}
		if n == w.batch {
			whole++
		}
	}
	w.t.Logf("%d ticks, of which %d let in a whole batch of %d", len(w.waited), whole, w.batch)
	return whole
}
