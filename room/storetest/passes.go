package storetest

import (
	"time"

	"github.com/sluice-project/sluice/room"
)

var passCases = []testCase{
	{name: "a sliding pass lasts from each ask on", run: func(k *kit) {
		k.terms.Capacity = 1
		k.enter(1)
		for range 3 {
			k.pass(ttl - 5*time.Minute)
			k.isInside(k.look(1), ttl)
			k.pass(ttl - 5*time.Minute)
			k.isInside(k.claim(1), ttl)
		}
		k.pass(ttl + 5*time.Minute)
		k.isGone(k.claim(1), room.Expired)
		k.check(k.status().Expired == 1, "status is %+v, want 1 expired", k.status())
	}},
	{name: "a fixed pass lasts from the claim on", run: func(k *kit) {
		k.terms.Capacity, k.terms.Sliding = 1, false
		p := k.arrive(room.Arrival{})
		k.isInside(p, ttl)
		until := p.Until
		for range 2 {
			k.pass(10 * time.Minute)
			k.check(k.look(1).Until.Equal(until), "asking changed the end")
			k.check(k.claim(1).Until.Equal(until), "claiming again changed the end")
		}
		k.pass(10*time.Minute + 30*time.Second)
		k.isGone(k.look(1), room.Expired)
	}},
	{name: "the time to claim is none of the pass", run: func(k *kit) {
		k.terms.Sliding = false
		k.enter(1)
		k.expireAt(1)
		k.advance(claim / 2)
		p := k.claim(1)
		k.isInside(p, ttl)
		k.near(p.Since, p.Now.Add(-claim/2))
	}},
	{name: "a fixed pass may be renewed so often", run: func(k *kit) {
		k.terms.Capacity, k.terms.Sliding, k.terms.Renewals = 1, false, 2
		k.enter(2)
		for range 2 {
			k.pass(20 * time.Minute)
			p, err := k.store.Renew(ctx, k.terms, room.Bearer{Number: 1})
			k.must(err)
			k.isInside(p, ttl)
		}
		k.pass(time.Minute)
		p, err := k.store.Renew(ctx, k.terms, room.Bearer{Number: 1})
		k.is(err, room.ErrNotRenewable)
		k.check(p.State == room.Inside, "place is %+v, want inside", p)
		k.near(p.Until, p.Now.Add(ttl-time.Minute))
		k.terms.Renewals = 3
		p, err = k.store.Renew(ctx, k.terms, room.Bearer{Number: 1})
		k.must(err)
		k.isInside(p, ttl)
	}},
	{name: "a sliding pass is not renewed", run: func(k *kit) {
		k.terms.Capacity, k.terms.Renewals = 1, 5
		k.enter(1)
		k.advance(time.Minute)
		p, err := k.store.Renew(ctx, k.terms, room.Bearer{Number: 1})
		k.is(err, room.ErrNotRenewable)
		k.near(p.Until, p.Now.Add(ttl-time.Minute))
	}},
	{name: "who is not inside has nothing to renew", run: func(k *kit) {
		k.terms.Sliding, k.terms.Renewals = false, 5
		k.enter(3)
		k.leave(1, room.Left)
		k.expireAt(1)
		for number, want := range []room.State{room.Gone, room.Gone, room.Called, room.Waiting} {
			p, err := k.store.Renew(ctx, k.terms, room.Bearer{Number: int64(number)})
			k.must(err)
			k.check(p.State == want && p.Number == int64(number), "place of %d is %+v, want state %d", number, p, want)
		}
		k.counts(1, 1, 1)
		p := k.claim(2)
		k.isInside(p, ttl)
	}},
	{name: "renewing is not asking", run: func(k *kit) {
		k.enter(1)
		k.pass(abandon - time.Minute)
		_, err := k.store.Renew(ctx, k.terms, room.Bearer{Number: 1})
		k.must(err)
		k.pass(2 * time.Minute)
		k.expireAt(1)
		k.counts(1, 0, 0)
	}},
	{name: "each visitor has renewals of its own", run: func(k *kit) {
		k.terms.Capacity, k.terms.Sliding, k.terms.Renewals = 2, false, 1
		k.enter(2)
		for number := range int64(2) {
			_, err := k.store.Renew(ctx, k.terms, room.Bearer{Number: number + 1})
			k.must(err)
			_, err = k.store.Renew(ctx, k.terms, room.Bearer{Number: number + 1})
			k.is(err, room.ErrNotRenewable)
		}
	}},
}

var expireCases = []testCase{
	{name: "what has ended goes, what has not stays", run: func(k *kit) {
		k.terms.Capacity, k.terms.Sliding = 2, false
		k.enter(1)
		k.pass(5 * time.Minute)
		k.enter(3)
		k.pass(ttl - 3*time.Minute) // the pass of 1 is over, that of 2 is not
		k.isGone(k.look(1), room.Expired)
		k.check(k.look(2).State == room.Inside, "the pass of 2 has ended too early")
		k.isGone(k.look(3), room.Abandoned)
		s := k.status()
		k.check(s.Expired == 1 && s.Departed == 2 && s.Inside == 1, "status is %+v", s)
	}},
	{name: "the slot of a pass that ended is the next one's, in the same move", run: func(k *kit) {
		k.terms.Capacity, k.terms.Sliding = 1, false
		k.enter(1)
		k.pass(ttl - time.Minute)
		k.enter(2)
		k.advance(90 * time.Second)
		k.expire()
		k.isCalled(k.look(2))
		k.isGone(k.look(1), room.Expired)
		k.counts(1, 1, 1)
	}},
	{name: "a deadline that has passed does nothing before Expire", run: func(k *kit) {
		k.terms.Capacity, k.terms.Sliding = 2, false
		k.enter(3)
		k.leave(2, room.Left)
		k.advance(ttl + time.Minute)
		p := k.look(1)
		k.check(p.State == room.Inside && p.Until.Before(p.Now), "place is %+v, want inside with a pass that has ended", p)
		k.counts(0, 2, 1)
		k.check(k.look(3).State == room.Called, "place is %+v, want called", k.look(3))
	}},
	{name: "silence loses the place, after the grace only", run: func(k *kit) {
		k.arrive(room.Arrival{Key: keyOf(1)})
		k.enter(1)
		k.pass(abandon + grace - time.Minute)
		k.waits(k.look(2), 1)
		k.pass(2 * time.Minute)
		k.isGone(k.look(1), room.Abandoned)
		k.findIs(keyOf(1), 0)
		k.waits(k.look(2), 0)
		k.check(k.status().Departed == 1, "status is %+v, want 1 departed", k.status())
	}},
	{name: "without grace the place is lost at once", run: func(k *kit) {
		k.enter(1)
		k.pass(abandon - time.Minute)
		k.terms.Grace = 0
		k.expire()
		k.waits(k.look(1), 0)
		k.pass(abandon + time.Minute)
		k.isGone(k.look(1), room.Abandoned)
	}},
	{name: "who misses after such a silence is gone in the same move", run: func(k *kit) {
		k.terms.Claim = abandon + grace + 5*time.Minute
		k.enter(1)
		k.expireAt(1)
		k.pass(k.terms.Claim + time.Minute)
		k.isGone(k.look(1), room.Abandoned)
		s := k.status()
		k.check(s.NoShows == 1 && s.Departed == 1 && s.Expired == 0, "status is %+v", s)
	}},
	{name: "next is when something ends", run: func(k *kit) {
		due := k.expire()
		k.check(due.Next.IsZero() || due.Next.After(due.Now), "due is %+v", due)
		k.near(due.Now, k.now())
		k.terms.Capacity, k.terms.Sliding = 1, false
		k.enter(1)
		k.notLater(k.expire(), ttl)
		k.enter(1)
		k.notLater(k.expire(), abandon+grace)
		k.leave(1, room.Left) // calls the other
		k.notLater(k.expire(), claim)
	}},
	{name: "in the end everybody is gone, by going where next says", run: func(k *kit) {
		k.terms.Capacity = 2
		k.enter(6)
		for range 100 {
			due := k.expire()
			if due.Next.IsZero() {
				break
			}
			k.advance(min(due.Next.Sub(due.Now)+time.Second, away-30*time.Second))
		}
		k.counts(0, 0, 0)
		s := k.status()
		k.check(s.Expired == 2 && s.Departed == 4, "status is %+v, want 2 expired and 4 departed", s)
	}},
	{name: "thousands end at once, and thousands are called", run: func(k *kit) {
		const many = 2_500
		k.terms.Capacity, k.terms.Sliding = many, false
		k.enter(2 * many)
		k.pass(abandon - 2*time.Minute)
		k.askAll(many+1, 2*many)
		k.pass(abandon)
		k.askAll(many+1, 2*many)
		k.terms.TTL = time.Minute
		k.terms.Capacity = many + 3
		k.expire()
		k.counts(many-3, many+3, 3)
		k.terms.Capacity = many
		k.must(k.store.Clear(ctx, k.terms))
		k.expire()
		k.counts(0, many-3, many-3)
		k.advance(claim + 20*time.Second)
		k.expire() // all are no-shows, and are skipped
		k.counts(many-3, 0, 0)
		k.check(k.status().NoShows == many, "status is %+v", k.status())
		k.pass(abandon + grace)
		k.counts(0, 0, 0)
		s := k.status()
		k.check(s.Departed == many && s.Admitted == 2*many, "status is %+v", s)
	}},
	{name: "thousands of passes end at once", run: func(k *kit) {
		const many = 2_500
		k.terms.Capacity, k.terms.Sliding = many, false
		k.enter(many)
		k.pass(ttl - 5*time.Minute)
		k.counts(0, many, 0)
		k.pass(10 * time.Minute)
		k.counts(0, 0, 0)
		k.check(k.status().Expired == many, "status is %+v", k.status())
	}},
}

// notLater checks that the next time is no later than d from now.
func (k *kit) notLater(due room.Due, d time.Duration) {
	k.t.Helper()
	k.check(!due.Next.IsZero() && !due.Next.After(due.Now.Add(d)), "next is %v after now, want at most %v", due.Next.Sub(due.Now), d)
}

// askAll lets the visitors first to last ask.
func (k *kit) askAll(first, last int64) {
	k.t.Helper()
	for first <= last {
		var numbers []int64
		for ; first <= last && len(numbers) < room.MaxAsk; first++ {
			numbers = append(numbers, first)
		}
		k.claim(numbers...)
	}
}
