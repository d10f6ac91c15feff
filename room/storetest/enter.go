package storetest

import (
	"time"

	"github.com/sluice-project/sluice/room"
)

var enterCases = []testCase{
	{name: "numbers and places are in the order of arrival", run: func(k *kit) {
		for i := range int64(12) {
			p := k.arrive(room.Arrival{})
			k.check(p.New && p.Number == i+1 && !p.Drawn, "place is %+v, want a new one with number %d", p, i+1)
			k.waits(p, i)
			k.near(p.Now, k.now())
		}
		k.counts(12, 0, 0)
	}},
	{name: "who finds a free slot is inside at once, and claims no more than it", run: func(k *kit) {
		k.terms.Capacity = 2
		for range 2 {
			p := k.arrive(room.Arrival{})
			k.isInside(p, ttl)
			k.check(p.New && p.Since.Equal(p.Now), "place is %+v, want a new one since now", p)
		}
		k.waits(k.arrive(room.Arrival{}), 0)
		k.counts(1, 2, 0)
	}},
	{name: "a newcomer takes no slot that another waits for", run: func(k *kit) {
		k.enter(2)
		k.terms.Capacity = 1
		k.waits(k.arrive(room.Arrival{}), 2)
		k.isCalled(k.look(1))
		k.terms.Capacity = 3
		k.waits(k.arrive(room.Arrival{}), 3)
		k.counts(1, 3, 3)
		k.terms.Capacity = 5
		k.isInside(k.arrive(room.Arrival{}), ttl)
		k.isCalled(k.look(4))
		k.counts(0, 5, 4)
	}},
	{name: "a provisional visitor has a slot for the claim window", run: func(k *kit) {
		k.terms.Capacity = 2
		for range 2 {
			p := k.arrive(room.Arrival{Provisional: true})
			k.isCalled(p)
			k.check(p.New, "place is %+v, want a new one", p)
		}
		k.isInside(k.claim(1), ttl)
		k.waits(k.arrive(room.Arrival{Provisional: true}), 1)
		k.pass(claim + time.Minute)
		k.expire()
		k.isCalled(k.look(3))
		k.waits(k.look(2), 0)
		k.check(k.status().NoShows == 1, "status is %+v, want 1 missed", k.status())
	}},
	{name: "entering again provisionally claims nothing", run: func(k *kit) {
		k.terms.Capacity = 1
		for i := range 2 {
			p := k.arrive(room.Arrival{Key: keyOf(1), Provisional: true})
			k.isCalled(p)
			k.check(p.New == (i == 0), "place is %+v", p)
		}
		k.isInside(k.arrive(room.Arrival{Key: keyOf(1)}), ttl)
		k.isInside(k.arrive(room.Arrival{Key: keyOf(1), Provisional: true}), ttl)
	}},
	{name: "a key has one place", run: func(k *kit) {
		for i := range 3 {
			k.arrive(room.Arrival{Key: keyOf(i)})
		}
		k.arrive(room.Arrival{})
		k.arrive(room.Arrival{})
		for i := range 3 {
			p := k.arrive(room.Arrival{Key: keyOf(i)})
			k.check(!p.New && p.Number == int64(i)+1, "place is %+v, want that of before", p)
			k.waits(p, int64(i))
		}
		k.counts(5, 0, 0)
		k.expireAt(1)
		k.advance(10 * time.Second)
		p := k.arrive(room.Arrival{Key: keyOf(0)})
		k.isInside(p, ttl)
		k.near(p.Since, p.Now.Add(-10*time.Second))
		k.advance(time.Minute)
		k.isInside(k.arrive(room.Arrival{Key: keyOf(0)}), ttl)
		k.terms.Sliding = false
		k.advance(time.Minute)
		p = k.arrive(room.Arrival{Key: keyOf(0)})
		k.near(p.Until, p.Now.Add(ttl-time.Minute))
		k.check(k.status().Entered == 5, "status is %+v, want 5 entered", k.status())
	}},
	{name: "entering again counts as asking, and calls nobody", run: func(k *kit) {
		k.arrive(room.Arrival{Key: keyOf(1)})
		k.arrive(room.Arrival{Key: keyOf(2)})
		k.pass(abandon + time.Minute)
		k.expireAt(1)
		k.counts(2, 0, 0)
		k.waits(k.arrive(room.Arrival{Key: keyOf(1)}), 0)
		k.counts(2, 0, 0)
		k.expire()
		k.isCalled(k.look(1))
	}},
	{name: "a key that is gone enters again, at the end", run: func(k *kit) {
		k.arrive(room.Arrival{Key: keyOf(1)})
		k.enter(1)
		for i := range int64(3) {
			k.leave([]int64{1, 3, 4}[i], []room.Reason{room.Left, room.Revoked, room.Abandoned}[i])
			p := k.arrive(room.Arrival{Key: keyOf(1)})
			k.check(p.New && p.Number == 3+i, "place is %+v, want a new one", p)
			k.waits(p, 1)
		}
	}},
	{name: "so does one whose pass has ended", run: func(k *kit) {
		k.terms.Capacity = 1
		k.arrive(room.Arrival{Key: keyOf(1)})
		k.pass(ttl + time.Minute)
		p := k.arrive(room.Arrival{Key: keyOf(1)})
		k.check(p.New && p.Number == 2, "place is %+v, want a new one", p)
		k.isGone(k.look(1), room.Expired)
	}},
	{name: "no key is nobody's", run: func(k *kit) {
		k.enter(1)
		p := k.arrive(room.Arrival{})
		k.check(p.New && p.Number == 2, "place is %+v, want a new one", p)
		k.findIs(room.Key{}, 0)
	}},
	{name: "keys differ in every byte", run: func(k *kit) {
		for i := range len(room.Key{}) {
			var key room.Key
			for j := range key {
				key[j] = byte(j)
			}
			for j, value := range []byte{200, '\n', 255} {
				key[i] = value
				p := k.arrive(room.Arrival{Key: key})
				k.check(p.New && p.Number == int64(3*i+j+1), "place is %+v, want a new one", p)
				k.findIs(key, p.Number)
			}
		}
	}},
	{name: "one may enter between two times", run: func(k *kit) {
		k.terms.EnterFrom = k.now().Add(time.Minute)
		k.terms.EnterUntil = k.now().Add(3 * time.Minute)
		k.refused(room.ErrNotOpen)
		k.advance(2 * time.Minute)
		k.arrive(room.Arrival{Key: keyOf(1)})
		k.advance(2 * time.Minute)
		k.refused(room.ErrEnded)
		k.terms.EnterUntil = time.Time{}
		k.check(k.enter(1) == 2, "who was refused has a number")
		k.terms.EnterFrom = time.Time{}
		k.check(k.enter(1) == 3, "who was refused has a number")
	}},
	{name: "the line has an end, but slots beside it", run: func(k *kit) {
		k.terms.MaxWaiting = 2
		k.enter(2)
		k.refused(room.ErrLineFull)
		k.expireAt(1)
		k.enter(1) // a called visitor does not wait
		k.refused(room.ErrLineFull)
		k.claim(1)
		k.refused(room.ErrLineFull)
		k.terms.MaxWaiting = 1
		k.leave(2, room.Left)
		k.refused(room.ErrLineFull)
		k.leave(1, room.Left)
		k.enter(1)
		k.check(k.status().Entered == 4, "status is %+v, want 4 entered", k.status())
		k.findIs(keyOf(999), 0)
	}},
	{name: "who has a place is never refused", run: func(k *kit) {
		k.arrive(room.Arrival{Key: keyOf(1)})
		k.arrive(room.Arrival{Key: keyOf(2)})
		k.terms.MaxWaiting = 1
		k.waits(k.arrive(room.Arrival{Key: keyOf(2)}), 1)
		k.terms.EnterUntil = k.now().Add(-time.Minute)
		k.waits(k.arrive(room.Arrival{Key: keyOf(2)}), 1)
		k.terms.EnterUntil = time.Time{}
		k.terms.EnterFrom = k.now().Add(time.Minute)
		k.waits(k.arrive(room.Arrival{Key: keyOf(2)}), 1)
	}},
	{name: "a key is found while it has a place", run: func(k *kit) {
		k.terms.Capacity = 1
		k.arrive(room.Arrival{Key: keyOf(1)})
		k.arrive(room.Arrival{Key: keyOf(2)})
		k.findIs(keyOf(1), 1)
		k.findIs(keyOf(2), 2)
		k.findIs(keyOf(3), 0)
		k.leave(1, room.Left)
		k.findIs(keyOf(1), 0)
		k.isCalled(k.look(2))
		k.findIs(keyOf(2), 2)
		k.leave(2, room.Revoked)
		k.findIs(keyOf(2), 0)
	}},
}

func (k *kit) findIs(key room.Key, want int64) {
	k.t.Helper()
	number, err := k.store.Find(ctx, k.terms, key)
	k.must(err)
	k.check(number == want, "found %d, want %d", number, want)
}

var lotteryCases = []testCase{
	{name: "draws are the order of those who came in time", run: func(k *kit) {
		k.terms.DrawUntil = k.now().Add(time.Minute)
		for _, draw := range []int64{700, 3, room.MaxDraw, 0, 700, 1 << 51, 3} {
			p := k.arrive(room.Arrival{Draw: draw})
			k.check(p.Drawn && p.State == room.Waiting, "place is %+v, want one of the lottery", p)
		}
		k.advance(2 * time.Minute)
		for range 2 {
			p := k.arrive(room.Arrival{Draw: 1})
			k.check(!p.Drawn, "place is %+v, want none of the lottery", p)
		}
		for i, number := range []int64{4, 2, 7, 1, 5, 6, 3, 8, 9} {
			p := k.look(number)
			k.waits(p, int64(i))
			k.check(p.Drawn == (number < 8), "place is %+v", p)
		}
		for i, number := range []int64{4, 2, 7, 1, 5, 6, 3, 8, 9} {
			k.expireAt(int64(i) + 1)
			p := k.look(number)
			k.isCalled(p)
			k.check(p.Drawn == (number < 8), "place is %+v", p)
			p = k.claim(number)
			k.isInside(p, ttl)
			k.check(p.Drawn == (number < 8), "place is %+v", p)
		}
	}},
	{name: "draws that differ by one are told apart", run: func(k *kit) {
		k.terms.DrawUntil = k.now().Add(time.Minute)
		for i := range int64(4) {
			k.arrive(room.Arrival{Draw: room.MaxDraw - i})
		}
		k.terms.DrawUntil = time.Time{}
		k.enter(1)
		for i := range int64(5) {
			k.waits(k.look([]int64{4, 3, 2, 1, 5}[i]), i)
		}
	}},
	{name: "who was drawn keeps the place when there is no lottery any more", run: func(k *kit) {
		k.terms.DrawUntil = k.now().Add(time.Minute)
		k.arrive(room.Arrival{Draw: 9, Key: keyOf(1)})
		k.arrive(room.Arrival{Draw: 5, Key: keyOf(2)})
		k.terms.DrawUntil = time.Time{}
		k.waits(k.arrive(room.Arrival{Draw: 1, Key: keyOf(1)}), 1)
		k.waits(k.arrive(room.Arrival{Draw: 1, Key: keyOf(3)}), 2)
	}},
	{name: "who missed stands at the place that was drawn", run: func(k *kit) {
		k.terms.DrawUntil = k.now().Add(time.Minute)
		for _, draw := range []int64{9, 5, 7} {
			k.arrive(room.Arrival{Draw: draw})
		}
		k.expireAt(2)
		k.isCalled(k.look(2))
		k.isCalled(k.look(3))
		k.pass(2 * time.Minute)
		k.waits(k.look(1), 2)
		k.waits(k.look(3), 1)
		k.waits(k.look(2), 0)
	}},
}
