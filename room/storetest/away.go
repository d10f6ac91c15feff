package storetest

import (
	"time"

	"github.com/sluice-project/sluice/room"
)

// long is the length of an absence of the service.
const long = 3 * (abandon + grace)

var awayCases = []testCase{
	{name: "who waits loses nothing", run: func(k *kit) {
		k.enter(4)
		k.advance(long)
		k.expireAt(1)
		k.isCalled(k.look(1))
		k.waits(k.look(3), 2)
		k.pass(abandon - time.Minute)
		k.expireAt(2)
		k.isCalled(k.look(2))
		k.pass(2 * time.Minute)
		k.expireAt(3) // 4 has been silent for too long
		k.waits(k.look(4), 3)
		k.pass(grace + 3*time.Minute)
		k.waits(k.look(4), 0) // 4 has asked, none of the others
	}},
	{name: "who was skipped stays so", run: func(k *kit) {
		k.enter(2)
		k.pass(abandon + time.Minute)
		k.claim(2)
		k.expireAt(1)
		k.isCalled(k.look(2))
		k.advance(long)
		k.expireAt(3)
		k.counts(1, 1, 1)
		k.waits(k.look(1), 0)
		k.expire()
		k.isCalled(k.look(1))
	}},
	{name: "who is called has the claim window again", run: func(k *kit) {
		k.enter(3)
		k.expireAt(2)
		k.claim(2)
		since := k.look(1).Since
		k.advance(away + time.Minute)
		due := k.expire()
		k.advance(claim / 2)
		k.expire()
		p := k.look(1)
		k.check(p.State == room.Called && p.Since.Equal(since) && p.Until.Equal(due.Now.Add(claim)),
			"place is %+v, want called until %v", p, due.Now.Add(claim))
		k.advance(claim)
		k.expire()
		k.waits(k.look(1), 0)
		k.check(k.status().NoShows == 1, "status is %+v, want 1 missed", k.status())
	}},
	{name: "it makes no claim window shorter", run: func(k *kit) {
		k.terms.Claim = time.Hour
		k.enter(1)
		k.expireAt(1)
		until := k.look(1).Until
		k.advance(away + time.Minute)
		k.terms.Claim = time.Minute
		k.expire()
		k.check(k.look(1).Until.Equal(until), "until %v, want %v", k.look(1).Until, until)
	}},
	{name: "passes end as they would", run: func(k *kit) {
		k.terms.Capacity = 1
		k.enter(2)
		k.advance(ttl + time.Minute)
		k.expire()
		k.isGone(k.look(1), room.Expired)
		k.isCalled(k.look(2))
	}},
	{name: "moves that call skip nobody", run: func(k *kit) {
		k.terms.Capacity = 1
		k.enter(4)
		k.advance(long)
		k.leave(1, room.Left)
		k.isCalled(k.look(2))
		k.must(k.store.Clear(ctx, k.terms))
		k.isCalled(k.look(3))
		k.terms.Capacity = 2
		k.waits(k.arrive(room.Arrival{}), 2)
		k.isCalled(k.look(4))
	}},
	{name: "Expire was called in time, so the silent are skipped", run: func(k *kit) {
		k.terms.Capacity = 1
		k.enter(2)
		k.pass(abandon + time.Minute)
		k.advance(away - 30*time.Second)
		k.leave(1, room.Left)
		k.counts(1, 0, 0)
	}},
	{name: "a room for which Expire was never called skips nobody", run: func(k *kit) {
		k.terms.Room, k.terms.Revision = "new", k.put("new", 0)
		k.enter(2)
		k.advance(long)
		k.terms.Capacity = 1
		k.waits(k.arrive(room.Arrival{}), 2)
		k.isCalled(k.look(1))
		k.terms.Capacity = 0
		k.expire()
		k.waits(k.look(2), 1)
	}},
	{name: "time runs again for each room alone", run: func(k *kit) {
		shop := k.terms
		k.terms.Room, k.terms.Revision = "other", k.put("other", 0)
		k.expire()
		k.enter(1)
		k.terms = shop
		k.enter(1)
		k.pass(abandon + grace + time.Minute)
		k.isGone(k.look(1), room.Abandoned)
		k.terms.Room, k.terms.Revision = "other", k.revision("other")
		k.expireAt(1)
		k.isCalled(k.look(1))
	}},
}

// revision returns the revision of a room.
func (k *kit) revision(name string) uint64 {
	k.t.Helper()
	records, err := k.store.Rooms(ctx)
	k.must(err)
	for _, r := range records {
		if r.Name == name {
			return r.Revision
		}
	}
	k.t.Fatalf("there is no room %s", name)
	return 0
}

var reopenCases = []testCase{
	{name: "everybody has the place of before", reopens: true, run: func(k *kit) {
		k.terms.DrawUntil = k.now().Add(time.Minute)
		for i, draw := range []int64{5, 9, 2} {
			k.arrive(room.Arrival{Draw: draw, Key: keyOf(i)})
		}
		k.advance(2 * time.Minute)
		k.expire()
		for i := range 5 {
			k.arrive(room.Arrival{Key: keyOf(3 + i)})
		}
		k.leave(6, room.Left)
		k.terms.Sliding = false
		k.expireAt(3) // 3, 1 and 2
		k.claim(3)
		k.terms.Capacity = 0
		numbers := []int64{1, 2, 3, 4, 5, 6, 7, 8, 9}
		before, err := k.store.Ask(ctx, k.terms, Bearers(numbers...), false)
		k.must(err)
		status, events := k.status(), k.events()
		for range 3 {
			k.reopen()
			k.terms.Revision = k.revision("shop")
			after, err := k.store.Ask(ctx, k.terms, Bearers(numbers...), false)
			k.must(err)
			for i := range after {
				k.samePlace(after[i], before[i])
			}
			k.findIs(keyOf(4), 5)
			k.findIs(keyOf(5), 0)
			now := k.status()
			status.Now = now.Now
			k.check(now == status, "status is %+v, want %+v", now, status)
			k.sameEvents(k.events(), events)
		}
		p := k.arrive(room.Arrival{Key: keyOf(100)})
		k.check(p.New && p.Number == 9, "place is %+v, want number 9", p)
		k.waits(p, 6)
	}},
	{name: "records, revisions and keys are there", reopens: true, run: func(k *kit) {
		keys := []room.SigningKey{{ID: "0a0b0c0d", Secret: []byte("01234567890123456789012345678901"), CreatedAt: time.Unix(1e9, 0)}}
		k.must(k.store.PutKeys(ctx, keys, ""))
		other := k.put("other", 0)
		k.must(k.store.RemoveRoom(ctx, "other"))
		k.terms.Revision = k.put("shop", k.terms.Revision)
		k.reopen()
		k.keysAre(keys)
		records, err := k.store.Rooms(ctx)
		k.must(err)
		k.check(len(records) == 1 && records[0].Name == "shop" && records[0].Revision == k.terms.Revision &&
			string(records[0].Data) == `{"of":"shop"}`, "rooms are %+v", records)
		_, err = k.store.PutRoom(ctx, "shop", nil, k.terms.Revision-1)
		k.is(err, room.ErrConflict)
		again := k.put("other", 0)
		k.check(again > other, "revision %d comes after %d", again, other)
		k.put("shop", k.terms.Revision)
	}},
	{name: "the time until it was opened is nobody's, however short it was", reopens: true, run: func(k *kit) {
		k.enter(4)
		k.expireAt(1)
		k.advance(claim + 20*time.Second) // less than away
		k.reopen()
		due := k.expire()
		p := k.look(1)
		k.check(p.State == room.Called && p.Until.Equal(due.Now.Add(claim)), "place is %+v, want called until %v", p, due.Now.Add(claim))
		k.pass(abandon - time.Minute)
		k.reopen()
		k.terms.Capacity = 2
		k.leave(1, room.Left)
		k.isCalled(k.look(2)) // its silence is forgotten
		k.isCalled(k.look(3))
	}},
	{name: "why one is gone is remembered", reopens: true, run: func(k *kit) {
		k.terms.Capacity = 1
		k.enter(3)
		k.leave(1, room.Left)
		k.must(k.store.Clear(ctx, k.terms))
		k.pass(2 * time.Minute)
		k.reopen()
		k.isGone(k.look(1), room.Left)
		k.isGone(k.look(2), room.Revoked)
		k.advance(30 * time.Minute)
		k.reopen()
		k.isGone(k.look(1), room.Left)
	}},
	{name: "what was skipped, drawn, renewed and ticked is so still", reopens: true, run: func(k *kit) {
		k.terms.Sliding, k.terms.Renewals = false, 1
		k.enter(4)
		k.tick(0, 2)
		k.expire()
		k.claim(1)
		_, err := k.store.Renew(ctx, k.terms, room.Bearer{Number: 1})
		k.must(err)
		k.tick(claim+20*time.Second, 1)
		k.expire() // 2 is a no-show, 3 is called
		k.reopen()
		_, err = k.store.Renew(ctx, k.terms, room.Bearer{Number: 1})
		k.is(err, room.ErrNotRenewable)
		k.expire() // the tick is used up
		k.counts(2, 2, 1)
		k.lastsFrom(k.claim(3), k.terms.Tick)
		k.tick(10*time.Second, 2)
		k.expire()
		k.isCalled(k.look(4))
		k.waits(k.look(2), 0) // skipped
		k.check(k.status().Tick == k.terms.Tick, "status is %+v", k.status())
	}},
	{name: "a removed room stays removed", reopens: true, run: func(k *kit) {
		k.enter(3)
		k.must(k.store.RemoveRoom(ctx, "shop"))
		k.reopen()
		_, err := k.store.Status(ctx, "shop")
		k.is(err, room.ErrNoRoom)
		k.terms.Revision = k.put("shop", 0)
		k.reopen()
		k.isGone(k.look(1), room.Forgotten)
		k.check(k.enter(1) == 1 && len(k.events()) == 1, "the room does not begin from nothing")
	}},
	{name: "published events do not come back", reopens: true, run: func(k *kit) {
		k.enter(5)
		k.must(k.store.Published(ctx, "shop", 0, 3))
		k.reopen()
		events := k.events()
		k.check(len(events) == 2 && events[0].Sequence == 4, "events are %+v, want 4 and 5", events)
		k.must(k.store.Published(ctx, "shop", 0, 5))
		k.reopen()
		k.enter(1)
		events = k.events()
		k.check(len(events) == 1 && events[0].Sequence == 6, "events are %+v, want 6", events)
	}},
}
