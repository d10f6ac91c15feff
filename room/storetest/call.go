package storetest

import (
	"time"

	"github.com/sluice-project/sluice/room"
)

var callCases = []testCase{
	{name: "a lowered capacity lets nobody in until enough have left", run: func(k *kit) {
		k.terms.Capacity = 4
		k.enter(7)
		k.terms.Capacity = 2
		k.expire()
		k.counts(3, 4, 0)
		k.leave(1, room.Left)
		k.leave(2, room.Left)
		k.expire()
		k.counts(3, 2, 0)
		k.leave(3, room.Left)
		k.counts(2, 2, 1)
		k.isCalled(k.look(5))
	}},
	{name: "a raised capacity calls as many as have become free", run: func(k *kit) {
		k.enter(6)
		k.expireAt(2)
		k.counts(4, 2, 2)
		k.claim(1)
		k.expireAt(5)
		k.counts(1, 5, 4)
		k.waits(k.look(6), 4)
		k.expireAt(100)
		k.counts(0, 6, 5)
	}},
	{name: "nobody is called before a time, nor from another on", run: func(k *kit) {
		k.terms.From, k.terms.Until = k.now().Add(time.Minute), k.now().Add(3*time.Minute)
		k.terms.Capacity = 1
		k.enter(3)
		k.expire()
		k.counts(3, 0, 0)
		k.advance(2 * time.Minute)
		k.expire()
		k.counts(2, 1, 1)
		k.claim(1)
		k.advance(2 * time.Minute)
		k.claim(1, 2, 3)
		k.expire()
		k.leave(1, room.Left)
		k.counts(2, 0, 0)
		k.must(k.store.Clear(ctx, k.terms))
		k.waits(k.arrive(room.Arrival{}), 2)
		k.terms.Until = time.Time{}
		k.expire()
		k.isCalled(k.look(2))
	}},
	{name: "who is silent is skipped, and has its place when it asks", run: func(k *kit) {
		k.enter(3)
		k.pass(abandon - time.Minute)
		k.claim(2)
		k.pass(2 * time.Minute)
		k.expireAt(1)
		k.isCalled(k.look(2)) // the first was silent
		k.counts(2, 1, 1)
		k.waits(k.look(1), 0)
		k.expireAt(2)
		k.isCalled(k.look(1))
		k.waits(k.look(3), 2)
		k.counts(1, 2, 2)
	}},
	{name: "who asks again is not called by that, but before all behind", run: func(k *kit) {
		k.enter(2)
		k.pass(abandon + time.Minute)
		k.enter(1)
		k.expireAt(1) // skips both
		k.isCalled(k.look(3))
		k.leave(3, room.Left)
		k.counts(2, 0, 0)
		k.waits(k.claim(2), 1)
		k.counts(2, 0, 0)
		k.waits(k.claim(1), 0)
		k.counts(2, 0, 0)
		k.waits(k.arrive(room.Arrival{}), 2) // calls
		k.isCalled(k.look(1))
	}},
	{name: "who was skipped stays so, whatever the patience is later", run: func(k *kit) {
		k.enter(1)
		k.pass(abandon + time.Minute)
		k.expireAt(1)
		k.counts(1, 0, 0)
		k.terms.Abandon = time.Hour
		k.expire()
		k.counts(1, 0, 0)
		k.look(1)
		k.expire()
		k.isCalled(k.look(1))
	}},
	{name: "nobody is skipped while no slot is free", run: func(k *kit) {
		k.terms.Capacity = 1
		k.enter(2)
		k.pass(abandon - 2*time.Minute)
		k.claim(1)
		k.pass(3 * time.Minute)
		k.expire()
		k.terms.Abandon = time.Hour
		k.leave(1, room.Left)
		k.isCalled(k.look(2))
	}},
	{name: "who is called and does not come waits at its old place, skipped", run: func(k *kit) {
		k.enter(4)
		k.expireAt(1)
		k.advance(claim + 20*time.Second)
		k.claim(2, 3, 4)
		k.expire()
		k.isCalled(k.look(2))
		s := k.status()
		k.check(s.NoShows == 1 && s.Admitted == 2 && s.Waiting == 3, "status is %+v, want 1 missed", s)
		k.waits(k.look(4), 3)
		k.expireAt(2) // skips the first
		k.isCalled(k.look(3))
		k.waits(k.look(1), 0)
		k.expireAt(3)
		k.isCalled(k.look(1))
		k.isInside(k.claim(1), ttl)
		k.check(k.status().Admitted == 4, "status is %+v, want 4 admitted", k.status())
	}},
	{name: "a newcomer is let in past those who are skipped", run: func(k *kit) {
		k.enter(1)
		k.expireAt(1)
		k.advance(claim + 20*time.Second)
		k.expire()
		k.isInside(k.arrive(room.Arrival{}), ttl)
		k.waits(k.look(1), 0)
	}},
}

var leaveCases = []testCase{
	{name: "the slot of who leaves is the next one's, in the same move", run: func(k *kit) {
		k.terms.Capacity = 2
		k.enter(5)
		before := k.leave(1, room.Left)
		k.check(before.State == room.Inside && before.Number == 1 && !before.New, "place is %+v, want that of before", before)
		k.isInside(before, before.Until.Sub(before.Now))
		k.isGone(k.look(1), room.Left)
		k.counts(2, 2, 1)
		called := k.look(3)
		k.isCalled(called)
		k.check(!called.Since.Before(before.Now), "called %v, before the other left, %v", called.Since, before.Now)
		before = k.leave(3, room.Revoked)
		k.isCalled(before)
		k.isGone(k.look(3), room.Revoked)
		k.isCalled(k.look(4))
		k.counts(1, 2, 1)
	}},
	{name: "who waits may leave", run: func(k *kit) {
		k.enter(4)
		k.waits(k.leave(2, room.Left), 1)
		k.waits(k.leave(4, room.Abandoned), 2)
		k.waits(k.leave(1, room.Ended), 0)
		k.waits(k.look(3), 0)
		k.isGone(k.look(2), room.Left)
		k.isGone(k.look(4), room.Abandoned)
		k.isGone(k.look(1), room.Ended)
		s := k.status()
		k.check(s.Departed == 3 && s.Waiting == 1, "status is %+v, want 3 departed", s)
	}},
	{name: "one leaves once", run: func(k *kit) {
		k.terms.Capacity = 1
		k.enter(3)
		k.leave(1, room.Left)
		events := len(k.events())
		k.isGone(k.leave(1, room.Revoked), room.Left)
		k.isGone(k.look(1), room.Left)
		k.isGone(k.leave(99, room.Left), room.Forgotten)
		k.isGone(k.look(99), room.Forgotten)
		k.terms.Capacity = 5
		k.isGone(k.leave(1, room.Left), room.Left)
		k.counts(1, 1, 1)
		k.check(len(k.events()) == events, "events came from who was gone")
	}},
	{name: "who left counts as departed unless it had come in", run: func(k *kit) {
		k.terms.Capacity = 1
		k.enter(4)
		k.leave(1, room.Left)    // inside
		k.leave(2, room.Left)    // called
		k.leave(4, room.Revoked) // waiting
		s := k.status()
		k.check(s.Departed == 2 && s.Expired == 0 && s.Admitted == 3, "status is %+v", s)
	}},
	{name: "why one is gone is remembered for an hour", run: func(k *kit) {
		k.terms.Capacity = 1
		k.enter(3)
		k.leave(1, room.Left)
		k.leave(3, room.Revoked)
		k.leave(2, room.Revoked)
		for range 58 {
			k.pass(time.Minute)
		}
		k.isGone(k.look(1), room.Left)
		k.isGone(k.look(2), room.Revoked)
		k.isGone(k.look(3), room.Revoked)
	}},
}

var clearCases = []testCase{
	{name: "all who are active are gone, and the next are called", run: func(k *kit) {
		k.terms.Capacity = 3
		k.enter(2)
		k.terms.Capacity = 0
		k.enter(5)
		k.expireAt(3)
		k.counts(4, 3, 1)
		k.terms.Capacity = 2
		k.must(k.store.Clear(ctx, k.terms))
		for number := range int64(3) {
			k.isGone(k.look(number+1), room.Revoked)
		}
		k.isCalled(k.look(4))
		k.isCalled(k.look(5))
		k.waits(k.look(6), 2)
		s := k.status()
		k.check(s.Expired == 0 && s.Departed == 1 && s.Admitted == 5, "status is %+v", s)
	}},
	{name: "keys of those gone are free", run: func(k *kit) {
		k.terms.Capacity = 1
		k.arrive(room.Arrival{Key: keyOf(1)})
		k.must(k.store.Clear(ctx, k.terms))
		k.findIs(keyOf(1), 0)
		p := k.arrive(room.Arrival{Key: keyOf(1)})
		k.check(p.New && p.Number == 2, "place is %+v, want a new one", p)
	}},
	{name: "an empty room is cleared too", run: func(k *kit) {
		k.must(k.store.Clear(ctx, k.terms))
		k.enter(1)
		k.must(k.store.Clear(ctx, k.terms))
		k.counts(1, 0, 0)
	}},
	{name: "so are more than 10,000", run: func(k *kit) {
		const inside, waiting = 10_500, 20
		k.terms.Capacity = inside
		k.enter(inside + waiting)
		k.counts(waiting, inside, 0)
		k.terms.Capacity = 7
		k.must(k.store.Clear(ctx, k.terms))
		k.expire()
		k.counts(waiting-7, 7, 7)
		for number := range int64(7) {
			k.isCalled(k.look(inside + 1 + number))
		}
		for _, number := range []int64{1, 1_000, 1_001, 10_000, inside} {
			k.isGone(k.look(number), room.Revoked)
		}
	}},
}
