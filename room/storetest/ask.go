package storetest

import (
	"slices"
	"time"

	"github.com/sluice-project/sluice/room"
)

var askCases = []testCase{
	{name: "places come in the order of the numbers", run: func(k *kit) {
		k.enter(4)
		k.leave(2, room.Left)
		k.expireAt(1)
		numbers := []int64{4, 1, 2, 99, 3, 4, -1, 0}
		places, err := k.store.Ask(ctx, k.terms, Bearers(numbers...), false)
		k.must(err)
		var states []room.State
		for i, p := range places {
			k.check(p.Number == numbers[i] && p.Now.Equal(places[0].Now) && !p.New, "place %d of %d is %+v", i, numbers[i], p)
			states = append(states, p.State)
		}
		k.check(slices.Equal(states, []room.State{
			room.Waiting, room.Called, room.Gone, room.Gone, room.Waiting, room.Waiting, room.Gone, room.Gone,
		}), "states are %v", states)
		k.waits(places[0], 2)
		k.isCalled(places[1])
		k.isGone(places[2], room.Left)
		k.isGone(places[3], room.Forgotten)
		k.isGone(places[6], room.Forgotten)
		k.isGone(places[7], room.Forgotten)
		k.near(places[0].Now, k.now())
	}},
	{name: "as many can be asked for as the bound says, and none", run: func(k *kit) {
		k.enter(room.MaxAsk)
		numbers := make([]int64, room.MaxAsk)
		for i := range numbers {
			numbers[i] = int64(room.MaxAsk - i)
		}
		places, err := k.store.Ask(ctx, k.terms, Bearers(numbers...), true)
		k.must(err)
		for i, p := range places {
			k.check(p.Number == numbers[i], "place %d is %+v", i, p)
			k.waits(p, numbers[i]-1)
		}
		places, err = k.store.Ask(ctx, k.terms, nil, true)
		k.must(err)
		k.check(len(places) == 0, "places are %+v, want none", places)
	}},
	{name: "only with claim who is called is inside", run: func(k *kit) {
		k.enter(2)
		k.expireAt(1)
		first := k.look(1)
		k.isCalled(first)
		k.near(first.Since, first.Now)
		k.advance(20 * time.Second)
		again := k.look(1)
		k.check(again.Since.Equal(first.Since) && again.Until.Equal(first.Until), "looking changed %+v to %+v", first, again)
		k.counts(1, 1, 1)
		p := k.claim(1)
		k.isInside(p, ttl)
		k.check(p.Since.Equal(first.Since), "since %v, want since it was called, %v", p.Since, first.Since)
		k.counts(1, 1, 0)
		k.waits(k.look(2), 0)
	}},
	{name: "each sees what those before it did", run: func(k *kit) {
		k.enter(3)
		k.expireAt(2)
		places, err := k.store.Ask(ctx, k.terms, Bearers(3, 1, 3, 2, 3), true)
		k.must(err)
		for i, ahead := range []int64{2, -1, 1, -1, 0} {
			if ahead < 0 {
				k.isInside(places[i], ttl)
			} else {
				k.waits(places[i], ahead)
			}
		}
	}},
	{name: "a bearer is the visitor who entered with the fingerprint", run: func(k *kit) {
		k.arrive(room.Arrival{Fingerprint: 7})
		k.arrive(room.Arrival{}) // as with an earlier release
		k.arrive(room.Arrival{Fingerprint: 7, Key: keyOf(1)})
		for range 3 { // waiting, called and inside
			before := k.look(1).State
			places, err := k.store.Ask(ctx, k.terms, []room.Bearer{{Number: 1, Fingerprint: 8}, {Number: 3, Fingerprint: 8}}, true)
			k.must(err)
			k.isGone(places[0], room.Forgotten)
			k.isGone(places[1], room.Forgotten)
			p, err := k.store.Renew(ctx, k.terms, room.Bearer{Number: 1, Fingerprint: 8})
			k.must(err)
			k.isGone(p, room.Forgotten)
			k.check(p.Number == 1, "place is %+v, want of 1", p)
			p, err = k.store.Leave(ctx, k.terms, room.Bearer{Number: 1, Fingerprint: 8}, room.Left)
			k.must(err)
			k.isGone(p, room.Forgotten)
			k.check(k.look(1).State == before, "another bearer changed the state from %v", before)
			places, err = k.store.Ask(ctx, k.terms, []room.Bearer{{Number: 1, Fingerprint: 7}, {Number: 2, Fingerprint: 8}, {Number: 2}}, false)
			k.must(err)
			for _, p := range places {
				k.check(p.State == before, "place is %+v, want state %v", p, before)
			}
			if before == room.Called {
				k.claim(1, 2)
			}
			k.expireAt(2)
		}
		p, err := k.store.Leave(ctx, k.terms, room.Bearer{Number: 1, Fingerprint: 7}, room.Left)
		k.must(err)
		k.check(p.State == room.Inside, "place is %+v, want inside", p)
		places, err := k.store.Ask(ctx, k.terms, []room.Bearer{{Number: 1, Fingerprint: 8}}, true)
		k.must(err)
		k.isGone(places[0], room.Left)
	}},
	{name: "who claims late has the slot, until Expire has been there", run: func(k *kit) {
		k.enter(2)
		k.expireAt(1)
		k.advance(claim + 30*time.Second)
		k.isCalled(k.look(1))
		k.isInside(k.claim(1), ttl)
		k.expire()
		k.isInside(k.look(1), ttl)
		k.counts(1, 1, 0)
	}},
	{name: "those before are counted, called ones too, until they are inside or gone", run: func(k *kit) {
		k.enter(5)
		k.expireAt(2)
		k.waits(k.look(5), 4)
		k.claim(2)
		k.waits(k.look(5), 3)
		k.leave(3, room.Left)
		k.waits(k.look(5), 2)
		k.pass(claim + time.Minute) // the first is a no-show, and is skipped
		k.waits(k.look(5), 2)
		k.waits(k.look(1), 0)
	}},
	{name: "an ask gives no slot away", run: func(k *kit) {
		k.enter(2)
		k.terms.Capacity = 2
		k.waits(k.claim(1), 0)
		k.waits(k.arrive(room.Arrival{Key: keyOf(1)}), 2) // the arrival calls it
		k.counts(1, 2, 2)
		k.leave(3, room.Left)
		k.terms.Capacity = 3
		k.claim(1, 2)
		k.counts(0, 2, 0)
	}},
}
