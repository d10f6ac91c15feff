package storetest

import (
	"time"

	"github.com/sluice-project/sluice/room"
)

var tickCases = []testCase{
	{name: "a batch is called once, by Expire", run: func(k *kit) {
		k.enter(10)
		k.tick(0, 3)
		k.leave(10, room.Left)
		k.must(k.store.Clear(ctx, k.terms))
		k.counts(9, 0, 0)
		for range 3 {
			k.expire()
			k.counts(6, 3, 3)
		}
		k.claim(1, 2, 3)
		k.leave(1, room.Left)
		k.enter(1)
		k.expire()
		k.counts(7, 2, 0)
		k.check(k.status().Tick == k.terms.Tick, "tick is %d, want %d", k.status().Tick, k.terms.Tick)
		k.tick(time.Minute, 2)
		k.expire()
		k.counts(5, 4, 2)
		k.check(k.status().Tick == k.terms.Tick, "tick is %d, want %d", k.status().Tick, k.terms.Tick)
	}},
	{name: "what is not used lapses", run: func(k *kit) {
		k.enter(2)
		k.tick(0, 3)
		k.expire()
		k.counts(0, 2, 2)
		k.enter(5)
		k.expire()
		k.counts(5, 2, 2)
		k.claim(1, 2)
		k.tick(time.Minute, 3)
		k.expire()
		k.counts(2, 5, 3)
	}},
	{name: "a tick at which nobody waits has lapsed too", run: func(k *kit) {
		k.tick(0, 3)
		k.expire()
		k.enter(2)
		k.expire()
		k.counts(2, 0, 0)
		k.check(k.status().Tick == k.terms.Tick, "tick is %d, want %d", k.status().Tick, k.terms.Tick)
	}},
	{name: "a tick of before calls nobody", run: func(k *kit) {
		k.enter(5)
		k.tick(0, 1)
		k.expire()
		last := k.terms.Tick
		k.terms.Tick--
		k.terms.Calls = 2
		k.expire()
		k.counts(4, 1, 1)
		k.check(k.status().Tick == last, "tick is %d, want %d", k.status().Tick, last)
	}},
	{name: "a tick that is not due yet is not used", run: func(k *kit) {
		k.enter(5)
		k.tick(0, 2)
		k.terms.Tick += time.Minute.Milliseconds()
		k.expire()
		k.counts(5, 0, 0)
		k.check(k.status().Tick == 0, "tick is %d, want 0", k.status().Tick)
		k.advance(70 * time.Second)
		k.expire()
		k.counts(3, 2, 2)
	}},
	{name: "a tick at which nobody may be called is not used", run: func(k *kit) {
		k.enter(5)
		k.tick(0, 2)
		capacity := k.terms.Capacity
		k.expireAt(0)
		k.terms.Capacity = capacity
		k.terms.From = k.now().Add(time.Hour)
		k.expire()
		k.terms.From = time.Time{}
		k.terms.Until = k.now().Add(-time.Minute)
		k.expire()
		k.counts(5, 0, 0)
		k.check(k.status().Tick == 0, "tick is %d, want 0", k.status().Tick)
		k.terms.Until = time.Time{}
		k.expire()
		k.counts(3, 2, 2)
	}},
	{name: "the capacity holds beside the batch", run: func(k *kit) {
		k.enter(9)
		k.tick(0, 4)
		k.expireAt(3)
		k.counts(6, 3, 3)
		k.expireAt(9)
		k.counts(6, 3, 3)
		k.tick(time.Minute, 4)
		k.claim(1, 2, 3)
		k.expireAt(3)
		k.counts(6, 3, 0)
		k.expireAt(9) // the tick has lapsed
		k.counts(6, 3, 0)
	}},
	{name: "the silent and those who came too late are no part of a batch", run: func(k *kit) {
		k.enter(3)
		k.pass(abandon + time.Minute)
		k.claim(2)
		k.enter(2)
		k.tick(0, 2)
		k.expire()
		k.isCalled(k.look(2))
		k.isCalled(k.look(4))
		k.waits(k.look(1), 0)
		k.waits(k.look(5), 4)
	}},
	{name: "a pass lasts from the tick on, whenever it is claimed", run: func(k *kit) {
		k.terms.Sliding = false
		k.enter(3)
		k.tick(0, 1)
		first := k.terms.Tick
		k.advance(20 * time.Second)
		k.expire()
		called := k.look(1)
		k.isCalled(called)
		k.near(called.Since, called.Now)
		k.tick(10*time.Second, 1)
		k.expire()
		k.lastsFrom(k.claim(1), first)
		k.lastsFrom(k.claim(2), k.terms.Tick)
		k.terms.TTL = time.Minute
		k.advance(50 * time.Second)
		k.expire()
		k.check(k.look(1).State == room.Inside, "a pass was made shorter")
	}},
	{name: "who missed lasts from the tick of the second call", run: func(k *kit) {
		k.terms.Sliding = false
		k.enter(1)
		k.tick(0, 1)
		k.expire()
		k.tick(claim+10*time.Second, 1)
		k.expire()
		k.waits(k.look(1), 0)
		k.tick(time.Minute, 1)
		k.expire()
		k.lastsFrom(k.claim(1), k.terms.Tick)
	}},
	{name: "who was called without ticks lasts from the claim on", run: func(k *kit) {
		k.enter(2)
		k.terms.Sliding = false
		k.expireAt(1)
		k.tick(20*time.Second, 1)
		k.isInside(k.claim(1), ttl)
		k.expire()
		tick := k.terms.Tick
		k.terms.Tick, k.terms.Calls = 0, 0
		k.lastsFrom(k.claim(2), tick)
	}},
	{name: "a batch of thousands is called exactly", run: func(k *kit) {
		const batch = 3_500
		k.enter(2*batch + 10)
		for i := range int64(3) {
			k.tick(10*time.Second, batch)
			k.expire()
			k.expire()
			s := k.status()
			k.check(s.Admitted == min(batch*(i+1), 2*batch+10), "status is %+v after %d batches of %d", s, i+1, batch)
			k.check(s.Tick == k.terms.Tick, "tick is %d, want %d", s.Tick, k.terms.Tick)
		}
	}},
}

// tick lets time pass, and makes the present a tick at which the given number may be called.
func (k *kit) tick(after time.Duration, calls int64) {
	k.t.Helper()
	k.advance(after)
	k.terms.Tick, k.terms.Calls, k.terms.Capacity = k.now().UnixMilli(), calls, 1_000_000
}

// lastsFrom checks that a pass ends TTL after a tick.
func (k *kit) lastsFrom(p room.Place, tick int64) {
	k.t.Helper()
	k.check(p.State == room.Inside && p.Until.Equal(time.UnixMilli(tick).Add(k.terms.TTL)),
		"place is %+v, want inside until %v", p, time.UnixMilli(tick).Add(k.terms.TTL))
}
