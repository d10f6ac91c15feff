package storetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/sluice-project/sluice/room"
)

var eventCases = []testCase{
	{name: "each thing that happens is one event, in order", run: func(k *kit) {
		k.terms.Capacity, k.terms.Sliding = 1, false
		k.enter(5)                          // 1 is admitted
		k.leave(1, room.Left)               // 2 is admitted
		k.leave(5, room.Left)               // waiting
		k.pass(claim + time.Minute)         // 2 is a no-show
		k.expireAt(1)                       // 3 is admitted
		k.claim(3)                          //
		k.leave(2, room.Revoked)            // waiting
		k.pass(abandon + grace)             // 4 abandons
		k.pass(ttl)                         // the pass of 3 ends
		k.enter(1)                          // 6 is admitted
		k.must(k.store.Clear(ctx, k.terms)) // 6 is revoked
		k.enter(1)                          // 7 is admitted
		k.leave(7, room.Ended)
		k.tells("entered 1", "admitted 1", "entered 2", "entered 3", "entered 4", "entered 5", "left 1 inside", "admitted 2",
			"left 5", "missed 2 inside", "admitted 3", "revoked 2", "abandoned 4", "expired 3 inside", "entered 6", "admitted 6",
			"revoked 6 inside", "entered 7", "admitted 7", "abandoned 7 inside")
	}},
	{name: "asking and renewing are none", run: func(k *kit) {
		k.terms.Capacity, k.terms.Sliding, k.terms.Renewals = 1, false, 2
		k.arrive(room.Arrival{Key: keyOf(1)})
		k.arrive(room.Arrival{Key: keyOf(2)})
		k.claim(1, 2, 99)
		k.look(2)
		_, err := k.store.Renew(ctx, k.terms, room.Bearer{Number: 1})
		k.must(err)
		k.arrive(room.Arrival{Key: keyOf(1)})
		k.arrive(room.Arrival{Key: keyOf(2)})
		k.terms.MaxWaiting = 1
		k.refused(room.ErrLineFull)
		k.leave(99, room.Left)
		k.expire()
		k.tells("entered 1", "admitted 1", "entered 2")
	}},
	{name: "one operation tells first who goes, then who is called", run: func(k *kit) {
		k.terms.DrawUntil = k.now().Add(time.Minute)
		for _, draw := range []int64{50, 40, 30, 20, 10} {
			k.arrive(room.Arrival{Draw: draw})
			k.advance(time.Second)
		}
		k.terms.Sliding, k.terms.TTL = false, time.Hour
		k.expireAt(2)
		k.claim(4)
		k.terms.TTL = time.Minute
		k.claim(5) // its pass ends first
		k.advance(5 * time.Second)
		k.terms.Claim, k.terms.TTL, k.terms.Away = time.Minute, time.Hour, time.Hour
		k.expireAt(3) // calls 3
		before := len(k.events())
		k.advance(claim + 10*time.Second)
		k.claim(2)
		k.terms.Grace, k.terms.Abandon = 0, claim
		k.advance(2 * time.Second)
		k.arrive(room.Arrival{Key: keyOf(1)})
		k.expireAt(3)
		k.tellsFrom(before, "entered 6", "expired 5 inside", "missed 3 inside", "abandoned 1", "abandoned 3", "admitted 2", "admitted 6")
		for _, e := range k.events()[before+1:] {
			k.check(e.Time.Equal(k.events()[before+1].Time), "the events of one operation are of different times: %+v", k.events())
		}
	}},
	{name: "those who go are told by when they were due, then by number", run: func(k *kit) {
		k.terms.Sliding, k.terms.Capacity, k.terms.Away = false, 12, time.Hour
		k.enter(12)
		// All deadlines are the same, but that of 11 is later and that of 10 earlier.
		k.tick(0, 12)
		k.must(k.store.Clear(ctx, k.terms))
		k.enter(12)
		k.terms.TTL = 20 * time.Minute
		k.tick(time.Second, 12)
		k.expire()
		for number := int64(24); number > 12; number-- {
			switch number {
			case 23:
				k.terms.TTL = 21 * time.Minute
			case 22:
				k.terms.TTL = 19 * time.Minute
			default:
				k.terms.TTL = 20 * time.Minute
			}
			k.claim(number)
		}
		before := len(k.events())
		k.advance(22 * time.Minute)
		k.expire()
		var want []string
		for _, number := range []int{22, 13, 14, 15, 16, 17, 18, 19, 20, 21, 24, 23} {
			want = append(want, fmt.Sprintf("expired %d inside", number))
		}
		k.tellsFrom(before, want...)
	}},
	{name: "their time is that of the move", run: func(k *kit) {
		var times []time.Time
		k.terms.Capacity = 1
		for range 3 {
			p := k.arrive(room.Arrival{})
			times = append(times, p.Now)
			k.advance(10 * time.Second)
		}
		p := k.leave(1, room.Left)
		times = append(times, p.Now, p.Now)
		events := append(k.events()[:1], k.events()[2:]...) // without the admission of 1
		for i, e := range events {
			k.check(e.Time.Equal(times[i]), "event %+v, want the time %v", e, times[i])
		}
	}},
	{name: "they are read in parts", run: func(k *kit) {
		k.enter(25)
		var after int64
		for _, part := range []int{10, 10, 5, 0} {
			events, err := k.store.Events(ctx, "shop", 0, after, 10)
			k.must(err)
			k.check(len(events) == part, "%d events after %d, want %d", len(events), after, part)
			for _, e := range events {
				after++
				k.check(e.Sequence == after && e.Number == after, "event %+v, want sequence %d", e, after)
			}
		}
		events, err := k.store.Events(ctx, "shop", 0, 7, 1)
		k.must(err)
		k.check(len(events) == 1 && events[0].Sequence == 8, "events are %+v, want 8", events)
	}},
	{name: "those that were published are gone", run: func(k *kit) {
		k.enter(5)
		for _, upTo := range []int64{0, 3, 2, 3} {
			k.must(k.store.Published(ctx, "shop", 0, upTo))
		}
		k.tells("entered 4", "entered 5")
		k.must(k.store.Published(ctx, "shop", 0, 5))
		k.tells()
		k.enter(1)
		k.tells("entered 6")
		k.check(k.events()[0].Sequence == 6, "events are %+v, want sequence 6", k.events())
	}},
	{name: "beyond the bound they are dropped and counted, and leave a gap", run: func(k *kit) {
		k.terms.Events = 3
		k.enter(5)
		k.tells("entered 1", "entered 2", "entered 3")
		k.check(k.status().EventsDropped == 2, "status is %+v, want 2 events dropped", k.status())
		k.must(k.store.Published(ctx, "shop", 0, 2))
		k.terms.Capacity = 1
		k.expire()
		k.enter(2)
		k.tells("entered 3", "admitted 1", "entered 6")
		k.check(k.status().EventsDropped == 3, "status is %+v, want 3 events dropped", k.status())
		k.terms.Events = 4
		k.leave(1, room.Left)
		k.tells("entered 3", "admitted 1", "entered 6", "left 1 inside")
		var sequences []int64
		for _, e := range k.events() {
			sequences = append(sequences, e.Sequence)
		}
		k.check(fmt.Sprint(sequences) == "[3 6 7 9]", "sequences are %d, want 3, 6, 7 and 9", sequences)
		k.counts(5, 1, 1)
	}},
	{name: "without any, none is numbered", run: func(k *kit) {
		k.terms.Events = 0
		k.enter(3)
		k.tells()
		k.terms.Events = 10
		k.enter(1)
		k.tells("entered 4")
		k.check(k.events()[0].Sequence == 1 && k.status().EventsDropped == 0, "events are %+v, status is %+v", k.events(), k.status())
		k.terms.Events = 0
		k.enter(1)
		k.tells("entered 4") // kept events stay
	}},
}

// tells checks the events.
func (k *kit) tells(want ...string) {
	k.t.Helper()
	k.tellsFrom(0, want...)
}

// tellsFrom checks the events without the first ones.
func (k *kit) tellsFrom(first int, want ...string) {
	k.t.Helper()
	var got []string
	for _, e := range k.events()[first:] {
		words := fmt.Sprintf("%s %d", e.Type, e.Number)
		if e.Inside {
			words += " inside"
		}
		got = append(got, words)
	}
	k.check(strings.Join(got, ", ") == strings.Join(want, ", "), "events are %q\nwant       %q", got, want)
}

var statusCases = []testCase{
	{name: "an empty room has none", run: func(k *kit) {
		s := k.status()
		k.near(s.Now, k.now())
		s.Now = time.Time{}
		k.check(s == (room.Status{}), "status is %+v, want zeros", s)
	}},
	{name: "everybody is counted once", run: func(k *kit) {
		k.terms.Capacity = 2
		k.enter(7)
		k.leave(1, room.Left)
		k.leave(7, room.Left)
		k.pass(claim + time.Minute)
		k.expire()
		s := k.status()
		s.Now = time.Time{}
		want := room.Status{Waiting: 3, Inside: 2, Called: 1, Entered: 7, Admitted: 4, NoShows: 1, Departed: 1, EventsWaiting: 14}
		k.check(s == want, "status is %+v, want %+v", s, want)
	}},
	{name: "who has claimed came in, and a called visitor who is gone is a no-show", run: func(k *kit) {
		k.terms.Capacity = 3
		for range 3 {
			k.arrive(room.Arrival{Provisional: true})
		}
		k.claim(1)
		k.leave(2, room.Left)
		s := k.status()
		k.check(s.CameIn() == 1 && s.NoShows == 1 && s.Departed == 1 && s.Called == 1, "status is %+v, want 1 who came in and 1 missed", s)
		k.must(k.store.Clear(ctx, k.terms))
		s = k.status()
		k.check(s.CameIn() == 1 && s.NoShows == 2 && s.Departed == 2, "status is %+v, want 1 who came in and 2 missed", s)
	}},
	{name: "time goes on", run: func(k *kit) {
		for range 3 {
			before := k.now()
			k.advance(time.Minute)
			k.near(k.status().Now, before.Add(time.Minute))
			k.near(k.now(), before.Add(time.Minute))
			k.near(k.expire().Now, before.Add(time.Minute))
			now := k.now()
			k.check(now.Equal(now.Truncate(time.Millisecond)), "time is %v, want whole milliseconds", now)
		}
	}},
}
