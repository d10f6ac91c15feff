package storetest

import (
	"time"

	"github.com/sluice-project/sluice/room"
)

// enterLane lets visitors enter a lane, and returns the number of the last.
func (k *kit) enterLane(lane, visitors int) (last int64) {
	k.t.Helper()
	for range visitors {
		last = k.arrive(room.Arrival{Lane: lane}).Number
	}
	return last
}

// waitsIn checks that a visitor waits in a lane behind the given number.
func (k *kit) waitsIn(p room.Place, lane int, ahead int64) {
	k.t.Helper()
	k.waits(p, ahead)
	k.check(p.Lane == lane, "place is %+v, want in lane %d", p, lane)
}

// calledOf returns how many of the visitors with numbers from first to last are called.
func (k *kit) calledOf(first, last int64) (called int) {
	k.t.Helper()
	for number := first; number <= last; number++ {
		if k.look(number).State == room.Called {
			called++
		}
	}
	return called
}

var laneCases = []testCase{
	{name: "a place is that in the lane", run: func(k *kit) {
		k.enterLane(0, 2) // 1 and 2
		k.enterLane(7, 2) // 3 and 4
		k.enterLane(1, 2) // 5 and 6
		for number, want := range map[int64]struct {
			lane  int
			ahead int64
		}{1: {0, 0}, 2: {0, 1}, 3: {7, 0}, 4: {7, 1}, 5: {1, 0}, 6: {1, 1}} {
			k.waitsIn(k.look(number), want.lane, want.ahead)
		}
		k.waitsIn(k.arrive(room.Arrival{Lane: 1}), 1, 2)
		k.leave(3, room.Left)
		k.waitsIn(k.look(4), 7, 0)
		k.waitsIn(k.look(2), 0, 1)
	}},
	{name: "calls have the proportion of the shares", run: func(k *kit) {
		k.terms.Shares = [room.MaxLanes]int64{5, 3, 2}
		k.enterLane(0, 30)
		k.enterLane(1, 30)
		k.enterLane(2, 30)
		for calls := int64(1); calls <= 30; calls++ {
			k.expireAt(calls)
			if calls%10 == 0 {
				got := [3]int{k.calledOf(1, 30), k.calledOf(31, 60), k.calledOf(61, 90)}
				tens := int(calls / 10)
				k.check(got == [3]int{5 * tens, 3 * tens, 2 * tens}, "%d of each lane are called of %d, want 5, 3 and 2 of 10", got, calls)
			}
		}
		k.waitsIn(k.look(90), 2, 29) // called visitors are counted
	}},
	{name: "the calls of an empty lane are the others'", run: func(k *kit) {
		k.terms.Shares = [room.MaxLanes]int64{1, 99}
		k.enterLane(0, 20)
		k.expireAt(10)
		k.check(k.calledOf(1, 20) == 10, "%d are called, want 10: nobody waits in the other lane", k.calledOf(1, 20))
		k.enterLane(1, 5) // 21 to 25
		k.expireAt(12)    // the lane has saved nothing up: one of each is called
		k.check(k.calledOf(1, 20) == 11 && k.calledOf(21, 25) == 1, "%d and %d are called, want 11 and 1", k.calledOf(1, 20), k.calledOf(21, 25))
		k.expireAt(16)
		k.check(k.calledOf(1, 20) == 11 && k.calledOf(21, 25) == 5, "%d and %d are called, want 11 and 5", k.calledOf(1, 20), k.calledOf(21, 25))
		k.expireAt(18)
		k.counts(7, 18, 18)
	}},
	{name: "a lane without a share is served in the end", run: func(k *kit) {
		k.terms.Shares = [room.MaxLanes]int64{100}
		k.enterLane(0, 110)
		last := k.enterLane(5, 1)
		k.expireAt(102)
		k.check(k.look(last).State == room.Called, "after 102 calls the only one in its lane is %+v", k.look(last))
	}},
	{name: "who is skipped, or misses the call, keeps the place in the lane", run: func(k *kit) {
		k.enterLane(1, 3)
		k.enterLane(0, 1)
		k.expireAt(1)
		k.check(k.look(1).State == room.Called, "the first is %+v", k.look(1))
		k.pass(claim)
		k.waitsIn(k.look(2), 1, 1)
		k.terms.Capacity = 0
		k.waitsIn(k.look(1), 1, 0)
		k.pass(abandon)
		k.look(3)
		k.expireAt(1)
		k.check(k.look(3).State == room.Called, "the third is %+v, and the others are silent", k.look(3))
		k.waitsIn(k.look(2), 1, 1)
		k.expireAt(3)
		k.check(k.look(2).State == room.Called, "the second is %+v", k.look(2))
	}},
	{name: "a lane has no lottery", run: func(k *kit) {
		k.terms.DrawUntil = k.now().Add(time.Hour)
		k.arrive(room.Arrival{Draw: 9})
		k.waitsIn(k.arrive(room.Arrival{Draw: 5, Lane: 1}), 1, 0)
		p := k.arrive(room.Arrival{Draw: 3, Lane: 1})
		k.waitsIn(p, 1, 1)
		k.check(!p.Drawn, "place is %+v, want it by number", p)
		k.waitsIn(k.arrive(room.Arrival{Draw: 4}), 0, 0)
	}},
	{name: "lanes are kept", reopens: true, run: func(k *kit) {
		k.enterLane(2, 2)
		k.enterLane(0, 1)
		k.expireAt(1)
		called := k.look(1)
		k.check(called.State == room.Called, "the first is %+v", called)
		k.reopen()
		k.terms.Capacity = 0
		k.waitsIn(k.look(2), 2, 1)
		k.waitsIn(k.look(3), 0, 0)
		k.waitsIn(k.arrive(room.Arrival{Lane: 2}), 2, 2)
	}},
}
