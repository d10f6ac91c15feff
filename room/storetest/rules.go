package storetest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sluice-project/sluice/room"
)

// The tables below state the rules of room/calling.go. CheckRules tests the functions
// there; the cases of ruleCases test that each store follows them, those of Redis in
// the scripts of room/redisstore/lua. Times are relative to the operation.

// callRule is the number of visitors that an operation calls.
type callRule struct {
	name                    string
	capacity, calls, active int64
	from, until, tick, last time.Duration // 0: none
	expiring                bool
	waiting, want           int64
	used                    bool // whether the tick is used
}

const (
	soon  = 10 * time.Minute
	since = -10 * time.Minute
)

var callRules = []callRule{
	{name: "free slots are filled", capacity: 3, active: 1, waiting: 5, want: 2},
	{name: "only visitors who wait are called", capacity: 9, waiting: 2, expiring: true, want: 2},
	{name: "no slot is free", capacity: 2, active: 2, waiting: 2, want: 0},
	{name: "a lowered capacity", capacity: 1, active: 3, waiting: 2, expiring: true, want: 0},
	{name: "no capacity", active: 1, waiting: 2, expiring: true, want: 0},
	{name: "before From", capacity: 3, from: soon, waiting: 2, want: 0},
	{name: "after From", capacity: 3, from: since, waiting: 2, want: 2},
	{name: "before Until", capacity: 3, until: soon, waiting: 2, want: 2},
	{name: "after Until", capacity: 3, until: since, waiting: 2, want: 0},
	{name: "a tick is due", capacity: 9, calls: 2, tick: since, waiting: 5, expiring: true, want: 2, used: true},
	{name: "a tick is not due", capacity: 9, calls: 2, tick: soon, waiting: 5, expiring: true, want: 0},
	{name: "only Expire calls at a tick", capacity: 9, calls: 2, tick: since, waiting: 5, want: 0},
	{name: "a tick calls once", capacity: 9, calls: 2, tick: since, last: since, waiting: 5, expiring: true, want: 0},
	{name: "a tick follows another", capacity: 9, calls: 2, tick: since, last: 2 * since, waiting: 5, expiring: true, want: 2, used: true},
	{name: "an earlier tick", capacity: 9, calls: 2, tick: 2 * since, last: since, waiting: 5, expiring: true, want: 0},
	{name: "a tick with few free slots", capacity: 2, calls: 3, active: 1, tick: since, waiting: 5, expiring: true, want: 1, used: true},
	{name: "a tick with no free slot lapses", capacity: 1, calls: 3, active: 1, tick: since, waiting: 5, expiring: true, want: 0, used: true},
	{name: "a tick without capacity is kept", calls: 3, tick: since, waiting: 5, expiring: true, want: 0},
	{name: "a tick before From is kept", capacity: 9, calls: 3, from: soon, tick: since, waiting: 5, expiring: true, want: 0},
}

// enterRule is whether a visitor may enter.
type enterRule struct {
	name         string
	from, until  time.Duration // 0: none
	waiting, max int64
	want         error
}

var enterRules = []enterRule{
	{name: "no bounds", max: 1},
	{name: "before EnterFrom", from: soon, max: 1, want: room.ErrNotOpen},
	{name: "after EnterFrom", from: since, max: 1},
	{name: "before EnterUntil", until: soon, max: 1},
	{name: "after EnterUntil", until: since, max: 1, want: room.ErrEnded},
	{name: "after EnterUntil, and full", until: since, waiting: 1, max: 1, want: room.ErrEnded},
	{name: "one more may wait", waiting: 1, max: 2},
	{name: "full", waiting: 2, max: 2, want: room.ErrLineFull},
	{name: "more than full", waiting: 3, max: 2, want: room.ErrLineFull},
}

// passRule is when a claimed pass ends after a number of renewals.
type passRule struct {
	name             string
	sliding, tick    bool
	renewals, before int
	fromTick, renew  bool // the pass lasts TTL from the tick; it may be renewed
}

var passRules = []passRule{
	{name: "fixed"},
	{name: "fixed, called at a tick", tick: true, fromTick: true},
	{name: "sliding", sliding: true, renewals: 1},
	{name: "sliding, called at a tick", sliding: true, tick: true},
	{name: "renewable", renewals: 1, renew: true},
	{name: "renewable once more", renewals: 2, before: 1, renew: true},
	{name: "renewed often enough", renewals: 2, before: 2},
}

// silenceRule is the effect on a silent visitor when a slot is free.
type silenceRule struct {
	silent        time.Duration
	away          bool
	skipped, gone bool
}

var silenceRules = []silenceRule{
	{silent: 0},
	{silent: abandon - time.Minute},
	{silent: abandon + time.Minute, skipped: true},
	{silent: abandon + grace - time.Minute, skipped: true},
	{silent: abandon + grace + time.Minute, skipped: true, gone: true},
	{silent: away + time.Minute, away: true},
	{silent: abandon + grace + time.Hour, away: true},
}

// tendRule is whether an Expire acts some time after that of a tender.
type tendRule struct {
	name           string
	tender, caller string
	after          time.Duration
	ends, tick     time.Duration // of a claim window, and a tick, after the tender's Expire; 0: none
	empty, acts    bool
}

const tend, late = 10 * time.Minute, 3 * time.Minute

var tendRules = []tendRule{
	{name: "the tender", tender: "a", caller: "a", acts: true},
	{name: "another", tender: "a", caller: "b"},
	{name: "another, soon", tender: "a", caller: "b", after: tend / 2},
	{name: "another, after the tender's time", tender: "a", caller: "b", after: tend + time.Minute, acts: true},
	{name: "none has called", caller: "b", acts: true},
	{name: "whoever it is", tender: "a", acts: true},
	{name: "another, in an empty room", tender: "a", caller: "b", empty: true, acts: true},
	{name: "another, when something is due", tender: "a", caller: "b", ends: time.Minute, after: 2 * time.Minute},
	{name: "another, when something is overdue", tender: "a", caller: "b", ends: time.Minute, after: 5 * time.Minute, acts: true},
	{name: "another, at a tick", tender: "a", caller: "b", tick: time.Minute, after: 2 * time.Minute},
	{name: "another, when a tick is overdue", tender: "a", caller: "b", tick: time.Minute, after: 5 * time.Minute, acts: true},
}

// lapseRule is whether the tick is used up by a visitor who enters while so many wait.
type lapseRule struct {
	name                    string
	capacity                int64
	from, until, tick, last time.Duration // 0: none
	waiting                 int
	used                    bool
}

var lapseRules = []lapseRule{
	{name: "nobody waits", capacity: 9, tick: since, used: true},
	{name: "nobody waits, after an earlier tick", capacity: 9, tick: since, last: 2 * since, used: true},
	{name: "somebody waits", capacity: 9, tick: since, waiting: 1},
	{name: "the tick is not due", capacity: 9, tick: soon},
	{name: "the tick is used up", capacity: 9, tick: since, last: since},
	{name: "there are no ticks", capacity: 9},
	{name: "no capacity", tick: since},
	{name: "before From", capacity: 9, from: soon, tick: since},
	{name: "after Until", capacity: 9, until: since, tick: since},
}

// reasonRules are the events for the reasons why a visitor is gone.
var reasonRules = map[room.Reason]room.EventType{
	room.Left: room.VisitorLeft, room.Expired: room.VisitorExpired, room.Abandoned: room.VisitorAbandoned,
	room.Revoked: room.VisitorRevoked, room.Ended: room.VisitorAbandoned,
}

// at returns the time after d from now; the zero time for 0.
func (k *kit) at(d time.Duration) time.Time { return from(k.now(), d) }

func from(now time.Time, d time.Duration) time.Time {
	if d == 0 {
		return time.Time{}
	}
	return now.Add(d)
}

// millisFrom is from in milliseconds, 0 for none.
func millisFrom(now time.Time, d time.Duration) int64 {
	if d == 0 {
		return 0
	}
	return now.Add(d).UnixMilli()
}

// CheckRules checks that the functions of room/calling.go follow the tables.
func CheckRules(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	for _, r := range callRules {
		terms := room.Terms{Capacity: r.capacity, Calls: r.calls, From: from(now, r.from), Until: from(now, r.until), Tick: millisFrom(now, r.tick)}
		last := room.Batch{Tick: millisFrom(now, r.last)}
		calls, next := terms.Callable(now.UnixMilli(), r.active, last, r.expiring)
		if got := max(0, min(calls, r.waiting)); got != r.want || r.used != (next.Tick != last.Tick) || next.Left < got && r.tick != 0 {
			t.Errorf("%s: %d may be called, after %+v comes %+v; want %d", r.name, calls, last, next, r.want)
		}
	}
	for _, r := range enterRules {
		terms := room.Terms{EnterFrom: from(now, r.from), EnterUntil: from(now, r.until), MaxWaiting: r.max}
		if err := terms.MayEnter(now.UnixMilli(), r.waiting); !errors.Is(err, r.want) {
			t.Errorf("%s: error is %v, want %v", r.name, err, r.want)
		}
	}
	for _, r := range passRules {
		terms := room.Terms{Sliding: r.sliding, Renewals: r.renewals, TTL: ttl}
		tick, want := int64(0), now
		if r.tick {
			tick = now.Add(since).UnixMilli()
		}
		if r.fromTick {
			want = now.Add(since)
		}
		if end := terms.PassEnd(now.UnixMilli(), tick); end != want.Add(ttl).UnixMilli() {
			t.Errorf("%s: the pass ends at %d, want %d", r.name, end, want.Add(ttl).UnixMilli())
		}
		if terms.Renewable(int64(r.before)) != r.renew {
			t.Errorf("%s: renewable is %v, want %v", r.name, !r.renew, r.renew)
		}
	}
	for _, r := range silenceRules {
		terms := room.Terms{Abandon: abandon, Grace: grace, Away: away}
		asked, expired := now.Add(-r.silent).UnixMilli(), now.UnixMilli()
		if r.away {
			expired = asked
		}
		isAway := terms.ServiceAway(now.UnixMilli(), expired)
		skipped := !isAway && terms.Silent(now.UnixMilli(), asked)
		gone := !isAway && terms.PlaceEnd(asked) <= now.UnixMilli()
		if isAway != r.away || skipped != r.skipped || gone != r.gone {
			t.Errorf("silent for %v: away %v, skipped %v, gone %v; want %+v", r.silent, isAway, skipped, gone, r)
		}
	}
	checkTendingAndLapsing(t, now)
	for reason, want := range reasonRules {
		if got := reason.Event(); got != want {
			t.Errorf("%s: event is %s, want %s", reason, got, want)
		}
	}
}

func checkTendingAndLapsing(t *testing.T, now time.Time) {
	for _, r := range tendRules {
		began := now.Add(-r.after)
		terms := room.Terms{Capacity: 1, Calls: 1, Tender: r.caller, Tend: tend, Late: late, Tick: millisFrom(began, r.tick)}
		last := room.Tending{Tender: r.tender, Expired: began.UnixMilli(), Ends: millisFrom(began, r.ends)}
		if r.empty {
			last.Tender = ""
		}
		if acts, _ := terms.Tends(now.UnixMilli(), last); acts != r.acts {
			t.Errorf("tending: %s: acts %v, want %v", r.name, acts, r.acts)
		}
	}
	for _, r := range lapseRules {
		terms := room.Terms{Capacity: r.capacity, Calls: 2, From: from(now, r.from), Until: from(now, r.until), Tick: millisFrom(now, r.tick)}
		last := room.Batch{Tick: millisFrom(now, r.last)}
		if next := terms.Lapsed(now.UnixMilli(), int64(r.waiting), last); (next != last) != r.used || next.Left != 0 {
			t.Errorf("lapsing: %s: after %+v comes %+v", r.name, last, next)
		}
	}
}

// ruleCases test a store with the tables.
var ruleCases = func() (cases []testCase) {
	for _, r := range callRules {
		cases = append(cases, testCase{name: "call: " + r.name, run: r.run})
	}
	for _, r := range enterRules {
		cases = append(cases, testCase{name: "enter: " + r.name, run: r.run})
	}
	for _, r := range passRules {
		cases = append(cases, testCase{name: "pass: " + r.name, run: r.run})
	}
	for _, r := range silenceRules {
		cases = append(cases, testCase{name: fmt.Sprintf("silent for %v, away %v", r.silent, r.away), run: r.run})
	}
	for _, r := range tendRules {
		cases = append(cases, testCase{name: "tending: " + r.name, run: r.run})
	}
	for _, r := range lapseRules {
		cases = append(cases, testCase{name: "lapsing: " + r.name, run: r.run})
	}
	for reason, want := range reasonRules {
		cases = append(cases, testCase{name: "event: " + string(reason), run: func(k *kit) {
			k.leave(k.enter(1), reason)
			events := k.events()
			last := events[len(events)-1]
			k.check(last.Type == want, "the event is %+v, want %s", last, want)
		}})
	}
	return cases
}()

func (r callRule) run(k *kit) {
	k.enter(int(r.active))
	if r.active > 0 {
		k.expireAt(r.active)
		for number := range r.active {
			k.claim(number + 1)
		}
	}
	now := k.now()
	if r.last != 0 {
		k.terms.Capacity, k.terms.Tick = r.active+1, millisFrom(now, r.last)
		k.expire()
	}
	k.terms.Capacity, k.terms.Tick = 0, 0
	leaver := k.enter(int(r.waiting) + 1)
	if r.expiring {
		k.leave(leaver, room.Left)
	}
	before := k.status()
	k.terms.Capacity, k.terms.Calls = r.capacity, r.calls
	k.terms.From, k.terms.Until, k.terms.Tick = from(now, r.from), from(now, r.until), millisFrom(now, r.tick)
	if r.expiring {
		k.expire()
	} else {
		k.leave(leaver, room.Left)
	}
	after := k.status()
	k.check(after.Admitted-before.Admitted == r.want, "%d were called, want %d", after.Admitted-before.Admitted, r.want)
	k.check((after.Tick != before.Tick) == r.used, "the tick was %d, and is %d", before.Tick, after.Tick)
}

func (r enterRule) run(k *kit) {
	k.enter(int(r.waiting))
	k.terms.EnterFrom, k.terms.EnterUntil, k.terms.MaxWaiting = k.at(r.from), k.at(r.until), r.max
	_, err := k.store.Enter(ctx, k.terms, room.Arrival{})
	k.is(err, r.want)
}

func (r passRule) run(k *kit) {
	k.enter(1)
	k.terms.Capacity, k.terms.Sliding, k.terms.Renewals = 1, r.sliding, r.renewals
	if r.tick {
		k.tick(time.Second, 1)
	}
	k.expire()
	k.advance(30 * time.Second)
	place := k.claim(1)
	if r.fromTick {
		k.lastsFrom(place, k.terms.Tick)
	} else {
		k.isInside(place, ttl)
	}
	for range r.before {
		_, err := k.store.Renew(ctx, k.terms, room.Bearer{Number: 1})
		k.must(err)
	}
	if _, err := k.store.Renew(ctx, k.terms, room.Bearer{Number: 1}); r.renew {
		k.must(err)
	} else {
		k.is(err, room.ErrNotRenewable)
	}
}

func (r silenceRule) run(k *kit) {
	number := k.enter(1)
	if r.away {
		k.advance(r.silent)
	} else {
		k.pass(r.silent)
	}
	k.expireAt(1)
	s := k.status()
	k.check(s.Waiting == 0 == (r.gone || !r.skipped) && s.Called == 1 != r.skipped && (s.Departed == 1) == r.gone,
		"status of %d is %+v, want %+v", number, s, r)
}

func (r tendRule) run(k *kit) {
	k.terms.Tend, k.terms.Late, k.terms.Abandon = tend, late, time.Hour
	if r.ends != 0 {
		k.terms.Capacity, k.terms.Claim = 1, r.ends
		k.arrive(room.Arrival{Provisional: true})
	}
	k.terms.Capacity = 0
	if !r.empty {
		k.enter(1)
	}
	k.terms.Tender = r.tender
	k.expire()
	k.terms.Tick = k.at(r.tick).UnixMilli()
	if r.tick == 0 {
		k.terms.Tick = 0
	}
	k.advance(r.after)
	if r.empty {
		k.enter(1)
	}
	k.terms.Capacity, k.terms.Calls, k.terms.Tender = 2, 1, r.caller
	due, err := k.store.Expire(ctx, k.terms)
	k.must(err)
	s := k.status()
	k.check(due.Tended == r.acts && due.Status.Called == s.Called && (due.Status.Admitted > 0 && s.Waiting == 0 || s.NoShows == 1) == r.acts,
		"Expire answers %+v, and the status is %+v", due, s)
	k.check(r.acts || due.Next.After(due.Now) && !due.Next.After(due.Now.Add(tend)), "Expire answers %+v", due)
}

func (r lapseRule) run(k *kit) {
	now := k.now()
	if r.last != 0 {
		k.terms.Capacity, k.terms.Calls, k.terms.Tick = 1, 1, millisFrom(now, r.last)
		k.expire()
	}
	k.terms.Tick = 0
	k.enter(r.waiting)
	before := k.status().Tick
	k.terms.Capacity, k.terms.Calls = r.capacity, 2
	k.terms.From, k.terms.Until, k.terms.Tick = from(now, r.from), from(now, r.until), millisFrom(now, r.tick)
	k.enter(1)
	k.check((k.status().Tick != before) == r.used, "the tick was %d, and is %d", before, k.status().Tick)
}
