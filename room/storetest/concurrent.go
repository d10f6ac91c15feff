package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-project/sluice/room"
)

var concurrentCases = []testCase{
	{name: "nobody who keeps asking is overtaken, and never are too many inside", run: crowdCase},
	{name: "a tick calls its batch once, whoever calls Expire", run: tickCrowd},
	{name: "of many who change a room or the keys, one wins each time", run: changeCrowd},
	{name: "of many who want a name, one has it", run: ownershipCrowd},
}

// RunConcurrent runs operations from many goroutines at once, and checks the promises against the
// history of the events.
func RunConcurrent(t *testing.T, harness Harness) {
	for _, c := range concurrentCases {
		t.Run(c.name, func(t *testing.T) {
			harness.within(t, func(t *testing.T) { c.run(newKit(t, harness)) })
		})
	}
}

// work runs a function in several goroutines concurrently.
func (k *kit) work(workers int, do func(worker int) error) {
	k.t.Helper()
	errs := make([]error, workers)
	var group sync.WaitGroup
	for worker := range workers {
		group.Go(func() { errs[worker] = do(worker) })
	}
	group.Wait()
	k.must(errors.Join(errs...))
}

// guest is a visitor of a crowd.
type guest struct {
	number   int64
	faithful bool // asks in each round, and claims
	inside   int  // rounds
}

// crowd is a set of visitors who act in rounds: in each, all workers let visitors enter, ask and
// leave concurrently; between rounds time passes.
type crowd struct {
	*kit
	guests [][]*guest // by worker
	random []*rand.Rand

	mu       sync.Mutex
	faithful map[int64]bool
	history  *history
}

const (
	crowdWorkers  = 6
	crowdCapacity = 7
)

func crowdCase(k *kit) {
	c := &crowd{
		kit: k, guests: make([][]*guest, crowdWorkers), history: newHistory(), faithful: map[int64]bool{},
	}
	seed := rand.Uint64()
	k.t.Logf("the seed is %d", seed)
	for worker := range crowdWorkers {
		c.random = append(c.random, rand.New(rand.NewPCG(seed, uint64(worker))))
	}
	k.terms.Capacity, k.terms.TTL, k.terms.Away = crowdCapacity, 5*time.Minute, time.Hour
	rounds := times(25, 80)
	for round := range rounds {
		k.work(crowdWorkers+2, func(worker int) error {
			switch worker {
			case crowdWorkers:
				return c.expireAgain()
			case crowdWorkers + 1:
				return c.publish()
			}
			return c.round(worker, round)
		})
		s := k.status()
		k.check(s.Inside <= crowdCapacity, "%d are inside, the capacity is %d", s.Inside, crowdCapacity)
		k.advance(20 * time.Second)
		if k.opened.Reopen != nil && round%8 == 7 {
			k.reopen()
		}
	}
	for round := 0; k.status().Waiting+k.status().Inside > 0; round++ {
		k.check(round < 20*rounds, "the line does not end: %+v", k.status())
		k.work(crowdWorkers, func(worker int) error { return errors.Join(c.askMine(worker, true), c.expireAgain()) })
		k.must(c.publish())
		k.advance(20 * time.Second)
	}
	c.check()
}

// round runs a worker's part of a round.
func (c *crowd) round(worker, round int) error {
	random := c.random[worker]
	for range random.IntN(4) {
		p, err := c.store.Enter(ctx, c.terms, room.Arrival{})
		if err != nil {
			return err
		}
		c.met(worker, p, random.IntN(2) == 0)
	}
	// The same key comes from all workers at once, and has one place.
	p, err := c.store.Enter(ctx, c.terms, room.Arrival{Key: keyOf(round)})
	if err != nil {
		return err
	}
	if p.Number <= 0 {
		return fmt.Errorf("place is %+v", p)
	}
	if p.New {
		c.met(worker, p, true)
	}
	return c.askMine(worker, false)
}

// met records a visitor who entered.
func (c *crowd) met(worker int, p room.Place, faithful bool) {
	c.guests[worker] = append(c.guests[worker], &guest{number: p.Number, faithful: faithful})
	if faithful {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.faithful[p.Number] = true
	}
}

// askMine lets a worker's visitors ask: the faithful always, others sometimes, and at the end
// never. Visitors who were inside for some rounds leave, or let the pass end.
func (c *crowd) askMine(worker int, ending bool) error {
	random := c.random[worker]
	var stay []*guest
	for _, i := range random.Perm(len(c.guests[worker])) {
		g := c.guests[worker][i]
		if !g.faithful && (ending || random.IntN(3) > 0) {
			stay = append(stay, g)
			continue
		}
		places, err := c.store.Ask(ctx, c.terms, Bearers(g.number), g.faithful || random.IntN(2) == 0)
		if err != nil {
			return err
		}
		switch p := places[0]; {
		case p.State == room.Gone && g.faithful:
			return fmt.Errorf("%d kept asking, and is gone: %+v", g.number, p)
		case p.State == room.Gone:
			continue
		case p.State == room.Inside:
			g.inside++
		}
		if g.inside > random.IntN(3) {
			if _, err := c.store.Leave(ctx, c.terms, room.Bearer{Number: g.number}, room.Left); err != nil {
				return err
			}
			continue
		}
		stay = append(stay, g)
	}
	c.guests[worker] = stay
	return nil
}

func (c *crowd) expireAgain() error {
	for range 3 {
		if _, err := c.store.Expire(ctx, c.terms); err != nil {
			return err
		}
	}
	return nil
}

// publish takes events while others create more.
func (c *crowd) publish() error {
	for {
		events, err := c.store.Events(ctx, c.terms.Room, 0, c.history.last, 50)
		if err != nil || len(events) == 0 {
			return err
		}
		for _, e := range events {
			if err := c.history.add(e); err != nil {
				return err
			}
		}
		if err := c.store.Published(ctx, c.terms.Room, 0, c.history.last); err != nil {
			return err
		}
	}
}

// check looks for broken promises in the history.
func (c *crowd) check() {
	c.t.Helper()
	h := c.history
	c.must(h.same(c.status()))
	c.kit.check(h.most <= crowdCapacity, "%d were inside at once, the capacity is %d", h.most, crowdCapacity)
	c.kit.check(h.most == crowdCapacity && h.counts.NoShows > 0, "nothing was tried: at most %d inside, %+v", h.most, h.counts)
	var before int64
	served := 0
	for _, number := range h.admitted {
		if !c.faithful[number] {
			continue
		}
		served++
		c.kit.check(number > before, "%d was let in after %d, who came later", number, before)
		c.kit.check(!h.missed[number], "%d claimed in time, and missed", number)
		before = number
	}
	c.kit.check(served == len(c.faithful), "%d of %d who kept asking were let in", served, len(c.faithful))
}

// tickCrowd lets instances with different clocks call Expire concurrently.
func tickCrowd(k *kit) {
	const workers, batch = 8, 5
	ticks := times(20, 100)
	k.terms.Abandon, k.terms.Away = 1_000*time.Hour, 1_000*time.Hour
	k.enter(batch * ticks)
	k.tick(0, 0)
	k.expire()
	for i := range int64(ticks) {
		before := k.terms.Tick
		k.tick(10*time.Second, batch)
		now := k.terms
		k.work(workers, func(worker int) error {
			terms := now
			terms.Tick = []int64{now.Tick, before, now.Tick, now.Tick + 60_000}[worker%4]
			_, err := k.store.Expire(ctx, terms)
			return err
		})
		s := k.status()
		k.check(s.Tick == now.Tick, "tick is %d, want %d", s.Tick, now.Tick)
		// A visitor who was called at an earlier tick may be a no-show, and is skipped.
		k.check(s.Admitted == batch*(i+1), "%d were called at %d ticks, want %d at each", s.Admitted, i+1, batch)
	}
}

// changeCrowd lets many change a room and the keys concurrently, all from the same revision.
func changeCrowd(k *kit) {
	const workers, rounds = 6, 10
	for round := range rounds {
		k.oneWins(workers, func(worker int) error {
			_, err := k.store.PutRoom(ctx, "shop", fmt.Appendf(nil, "%d by %d", round, worker), k.terms.Revision)
			return err
		})
		k.terms.Revision = k.revision("shop")
		seen, err := k.store.Keys(ctx)
		k.must(err)
		k.oneWins(workers, func(worker int) error {
			key := func(i int) room.SigningKey {
				return room.SigningKey{ID: fmt.Sprintf("%08x", 100*round+worker+i), Secret: []byte{byte(worker)}, CreatedAt: time.Unix(1, 0)}
			}
			return k.store.PutKeys(ctx, []room.SigningKey{key(50), key(0)}, newestKey(seen))
		})
		keys, err := k.store.Keys(ctx)
		k.must(err)
		k.check(len(keys) == 2 && keys[0].Secret[0] == keys[1].Secret[0], "keys are not of one: %+v", keys)
		k.oneWins(workers, func(worker int) error {
			_, err := k.store.PutRoom(ctx, fmt.Sprint("new", round), fmt.Appendf(nil, "by %d", worker), 0)
			return err
		})
	}
}

// oneWins checks that of several concurrent changes one succeeds, and the others fail because they
// were too late.
func (k *kit) oneWins(workers int, change func(worker int) error) {
	k.t.Helper()
	var won atomic.Int64
	k.work(workers, func(worker int) error {
		err := change(worker)
		if err == nil {
			won.Add(1)
		}
		if errors.Is(err, room.ErrConflict) {
			return nil
		}
		return err
	})
	k.check(won.Load() == 1, "%d of %d changes were made, want 1", won.Load(), workers)
}
