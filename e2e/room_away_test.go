//go:build redis && long

package e2e

import (
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/redistest"
)

// Redis is killed and restarted, twice, and then hangs for longer than places are kept, with a
// crowd in front of three servers. During an outage visitors are told to retry; afterwards
// everything continues. The promises of TestTellerKeepsItsPromises hold: Redis syncs each operation
// to disk before it answers, and no deadline of a visitor runs while it hangs.
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
	store := openHistory(t, redis, plan.room)
	fleet := newFleet(t, 3, redis.URL())
	limits := setCapacity(fleet[0], &plan, nil, plan.near)
	awaitRoom(fleet, plan.room)
	c := newCrowd(t, plan, fleet...)
	for range 2 {
		c.goOn(plan.count / 4)
		c.outageOf(redis.Restart, false)
	}
	for through := 0; ; c.another() {
		c.goOn(plan.count / 4)
		before := c.unavailable.Load()
		c.outageOf(func() {
			redis.Pause()
			<-time.After(hangs)
			redis.Continue()
		}, true)
		if c.unavailable.Load() == before {
			t.Error("no visitor was told that the store is away")
		}
		c.goOn(plan.count)
		awaitEmpty(t, fleet[0], plan.room)
		events := readHistory(t, store, plan.room)
		l := newLedger(c)
		l.slack += 3 * time.Second // until all servers have noticed that Redis is back
		checkTeller(l, limits, events)
		hang := c.outages[len(c.outages)-1]
		for _, v := range l.visits {
			if v.keeps() && v.entered.Before(hang.from) && v.admitted.After(hang.to) {
				through++
			}
		}
		t.Logf("%d guests kept asking and waited while Redis hung", through)
		if through >= 20 {
			return
		}
		if t.Failed() || c.crowds == mostCrowds {
			t.Fatalf("only %d guests kept asking and waited while Redis hung", through)
		}
	}
}
