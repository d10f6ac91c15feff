package e2e

import (
	"testing"
	"time"

	"github.com/sluice-project/sluice/redistest"
)

// Redis is killed and started again, twice, and then hangs for longer than places are
// kept, with a crowd in front of three servers. Meanwhile people are told to try again;
// after it everything goes on. The history says what it says of TestTellerKeepsItsPromises:
// nobody who kept asking whenever that was possible is overtaken or loses the place, for
// Redis has each move on its disk before it answers, and no time runs while it hangs.
func TestVisitorsWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	const hangs = 10 * time.Second
	plan := crowdPlan{
		room: "shop", count: 1_000, together: 400, near: 100,
		// A restart may take as long as half a claim window.
		ttl: 2 * time.Second, claim: 4 * time.Second, abandon: 5 * time.Second, grace: 2 * time.Second,
		slides: true, stay: time.Second,
	}
	if long() {
		plan.count, plan.together, plan.near = 15_000, 1_500, 400
	}
	redis := redistest.Start(t, redistest.Options{Persist: redistest.Always})
	store := openHistory(t, redis)
	fleet := newFleet(t, 3, redis.URL())
	limits := setCapacity(fleet[0], &plan, nil, plan.near)
	awaitRoom(fleet, plan.room)
	c := newCrowd(t, plan, fleet...)
	for range 2 {
		c.goOn(plan.count / 4)
		c.outageOf(redis.Restart, false)
	}
	c.goOn(plan.count / 4)
	before := c.unavailable.Load()
	c.outageOf(func() {
		redis.Pause()
		<-time.After(hangs)
		redis.Continue()
	}, true)
	if c.unavailable.Load() == before {
		t.Error("nobody was told that the store is away while it was")
	}
	c.goOn(plan.count)
	awaitEmpty(t, fleet[0], plan.room)
	events := readHistory(t, store, plan.room)
	l := newLedger(c)
	l.slack += 3 * time.Second // until all servers have found out that Redis is back
	checkTeller(l, limits, events)
	hang, through := c.outages[len(c.outages)-1], 0
	for _, v := range l.visits {
		if v.keeps() && v.entered.Before(hang.from) && v.admitted.After(hang.to) {
			through++
		}
	}
	t.Logf("%d guests kept asking and waited while Redis hung", through)
	if through < 20 {
		t.Error("too few to say anything")
	}
}
