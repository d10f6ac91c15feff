package storetest

import (
	"bytes"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/room"
)

// operations returns the machine's operations, by name. Frequent ones have several names.
func (m *machine) operations() map[string]func(*rapid.T) {
	operations := map[string]func(*rapid.T){"": m.compare}
	for name, f := range map[string]func(*rapid.T){
		"enter 1": m.enterOne, "enter 2": m.enterOne, "enter 3": m.enterOne, "enter with a key": m.enterKey,
		"ask 1": m.askSome, "ask 2": m.askSome, "ask everybody": m.askEverybody, "renew": m.renew,
		"leave 1": m.leaveOne, "leave 2": m.leaveOne, "find": m.find, "clear": m.clear,
		"expire 1": m.expireOnce, "expire 2": m.expireOnce, "expire 3": m.expireOnce, "expire 4": m.expireOnce,
		"advance": m.advanceSome, "publish": m.publish, "change": m.changeSometimes, "capacity": m.changeCapacity,
		"remove": m.remove, "reopen": m.reopenSometimes, "stale": m.stale,
	} {
		operations[name] = func(rt *rapid.T) {
			m.room = rapid.SampledFrom(m.rooms).Draw(rt, "room")
			m.termsNow(rt)
			f(rt)
			m.steps++
		}
	}
	return operations
}

func (m *machine) enterOne(rt *rapid.T) { m.enterAs(rt, room.Key{}) }

func (m *machine) enterKey(rt *rapid.T) {
	m.enterAs(rt, keyOf(rapid.IntRange(0, 5).Draw(rt, "key")))
}

func (m *machine) enterAs(rt *rapid.T, key room.Key) {
	arrival := room.Arrival{Key: key, Draw: rapid.SampledFrom([]int64{0, 1, 2, 1 << 40, room.MaxDraw - 1, room.MaxDraw}).Draw(rt, "draw")}
	arrival.Provisional = rapid.Bool().Draw(rt, "provisional")
	arrival.Fingerprint = fingerprint(rt)
	arrival.Lane = rapid.SampledFrom([]int{0, 0, 0, 1, 2, room.MaxLanes - 1}).Draw(rt, "lane")
	var got room.Place
	err := m.timed(func() (at time.Time, err error) {
		got, err = m.store.Enter(ctx, m.terms, arrival)
		return got.Now, err
	})
	want, wantErr := m.memory.Enter(ctx, m.inModel(), arrival)
	if m.sameError(err, wantErr) {
		return
	}
	m.same(got, want)
	if want.New {
		m.room.last = want.Number
	}
	if want.New && want.Drawn {
		clear(m.room.ahead) // others may be in front now
	}
	m.neverRises(got)
}

// number draws a visitor's number, or one that no visitor has.
func (m *machine) number(rt *rapid.T) int64 {
	return rapid.Int64Range(max(0, m.room.last-15), m.room.last+1).Draw(rt, "number")
}

func fingerprint(rt *rapid.T) room.Fingerprint {
	return rapid.SampledFrom([]room.Fingerprint{0, 1, 0xffff}).Draw(rt, "fingerprint")
}

// bearer draws a bearer, who may have the fingerprint of another visitor.
func (m *machine) bearer(rt *rapid.T) room.Bearer {
	return room.Bearer{Number: m.number(rt), Fingerprint: fingerprint(rt)}
}

func (m *machine) askSome(rt *rapid.T) {
	bearers := make([]room.Bearer, rapid.IntRange(0, 5).Draw(rt, "how many"))
	for i := range bearers {
		bearers[i] = m.bearer(rt)
	}
	m.askFor(bearers, rapid.Bool().Draw(rt, "claim"))
}

func (m *machine) askEverybody(rt *rapid.T) {
	var numbers []int64
	for number := range min(m.room.last, room.MaxAsk) {
		numbers = append(numbers, m.room.last-number)
	}
	m.askFor(Bearers(numbers...), rapid.IntRange(0, 3).Draw(rt, "no claim") > 0)
}

func (m *machine) askFor(bearers []room.Bearer, claim bool) {
	m.t.Helper()
	var got []room.Place
	err := m.timed(func() (at time.Time, err error) {
		if got, err = m.store.Ask(ctx, m.terms, bearers, claim); len(got) > 0 {
			at = got[0].Now
		}
		return at, err
	})
	m.must(err)
	want, err := m.memory.Ask(ctx, m.inModel(), bearers, claim)
	m.must(err)
	m.check(len(got) == len(want), "%d places, want %d", len(got), len(want))
	for i := range got {
		m.same(got[i], want[i])
		m.neverRises(got[i])
	}
}

func (m *machine) renew(rt *rapid.T) {
	bearer := m.bearer(rt)
	var got room.Place
	err := m.timed(func() (at time.Time, err error) {
		got, err = m.store.Renew(ctx, m.terms, bearer)
		return got.Now, err
	})
	want, wantErr := m.memory.Renew(ctx, m.inModel(), bearer)
	m.sameError(err, wantErr)
	m.same(got, want)
}

func (m *machine) leaveOne(rt *rapid.T) {
	bearer := m.bearer(rt)
	reason := rapid.SampledFrom([]room.Reason{
		room.Left, room.Left, room.Left, room.Revoked, room.Abandoned, room.Ended, room.Expired,
	}).Draw(rt, "reason")
	var got room.Place
	err := m.timed(func() (at time.Time, err error) {
		got, err = m.store.Leave(ctx, m.terms, bearer, reason)
		return got.Now, err
	})
	m.must(err)
	want, err := m.memory.Leave(ctx, m.inModel(), bearer, reason)
	m.must(err)
	m.same(got, want)
	m.neverRises(got)
}

func (m *machine) find(rt *rapid.T) {
	key := keyOf(rapid.IntRange(0, 5).Draw(rt, "key"))
	got, err := m.store.Find(ctx, m.terms, key)
	m.must(err)
	want, err := m.memory.Find(ctx, m.inModel(), key)
	m.must(err)
	m.check(got == want, "found %d, want %d", got, want)
}

// clear clears a room. If time cannot be stopped, its time is known only from the event of a
// visitor that it removes.
func (m *machine) clear(rt *rapid.T) {
	if rapid.IntRange(0, 2).Draw(rt, "clear") > 0 || !m.bubble && (m.room.before.Inside == 0 || m.terms.Events < 1<<40) {
		return
	}
	err := m.timed(func() (at time.Time, err error) {
		err = m.store.Clear(ctx, m.terms)
		if events := m.eventsOf(m.store); !m.bubble && len(events) > 0 {
			at = events[len(events)-1].Time
		}
		return at, err
	})
	m.must(err)
	m.must(m.memory.Clear(ctx, m.inModel()))
}

func (m *machine) expireOnce(rt *rapid.T) {
	m.terms.Tender = rapid.SampledFrom([]string{"", "", "a", "b"}).Draw(rt, "tender")
	var got room.Due
	err := m.timed(func() (at time.Time, err error) {
		got, err = m.store.Expire(ctx, m.terms)
		return got.Now, err
	})
	m.must(err)
	want, err := m.memory.Expire(ctx, m.inModel())
	m.must(err)
	m.check(got.Tended == want.Tended && got.Status == want.Status, "Expire answers %+v, want %+v", got, want)
	if !got.Tended {
		m.check(got.Next.Equal(want.Next), "another may act at %v, want %v", got.Next, want.Next)
		return
	}
	m.check(!got.More, "Expire says that there is more, after so few")
	m.check(got.Next.IsZero() || got.Next.After(got.Now), "next is %v, and now %v", got.Next, got.Now)
	if !want.Next.IsZero() {
		m.check(!got.Next.IsZero() && !got.Next.After(want.Next), "next is %v, want at the latest %v", got.Next, want.Next)
	}
}

func (m *machine) advanceSome(rt *rapid.T) {
	m.advance(seconds(rt, "seconds", 0.001, 0.1, 0.5, 1, 1, 1, 2, 2, 5, 10, 10, 15))
	if rapid.IntRange(0, 30).Draw(rt, "an hour") == 30 {
		m.advance(time.Hour)
	}
}

// publish compares the events, and marks some as published.
func (m *machine) publish(rt *rapid.T) {
	events := m.eventsOf(m.store)
	if len(events) == 0 {
		return
	}
	n := rapid.IntRange(1, len(events)).Draw(rt, "published")
	upTo := events[n-1].Sequence
	m.must(m.store.Published(ctx, m.room.name, 0, upTo))
	m.must(m.memory.Published(ctx, m.room.name, 0, upTo))
	m.room.history = append(m.room.history, events[:n]...)
}

func (m *machine) changeSometimes(rt *rapid.T) {
	if rapid.IntRange(0, 2).Draw(rt, "change") == 0 {
		m.changeRoom(rt)
	}
}

// changeRoom puts the room, with other terms.
func (m *machine) changeRoom(rt *rapid.T) {
	r := m.room
	record := rapid.SliceOfN(rapid.Byte(), 1, 40).Draw(rt, "record")
	revision, err := m.store.PutRoom(ctx, r.name, record, r.terms.Revision)
	m.must(err)
	m.check(revision > r.given, "revision %d comes after %d", revision, r.given)
	r.given = revision
	r.model, err = m.memory.PutRoom(ctx, r.name, record, r.model)
	m.must(err)
	r.terms.Revision = revision
	m.drawTerms(rt)
}

func (m *machine) changeCapacity(rt *rapid.T) {
	m.room.terms.Capacity = rapid.Int64Range(0, 9).Draw(rt, "capacity")
}

func (m *machine) remove(rt *rapid.T) {
	if rapid.IntRange(0, 5).Draw(rt, "remove") < 5 {
		return
	}
	r := m.room
	m.checkHistory(r)
	m.must(m.store.RemoveRoom(ctx, r.name))
	m.must(m.memory.RemoveRoom(ctx, r.name))
	_, err := m.store.Status(ctx, r.name)
	m.is(err, room.ErrNoRoom)
	*r = machineRoom{name: r.name, given: r.given, ahead: map[int64]int64{}}
	m.changeRoom(rt)
}

func (m *machine) reopenSometimes(rt *rapid.T) {
	if m.opened.Reopen == nil || rapid.IntRange(0, 3).Draw(rt, "reopen") < 3 {
		return
	}
	m.reopen()
	m.memory = m.memory.Reopen()
}

// stale runs operations that must have no effect.
func (m *machine) stale(rt *rapid.T) {
	m.terms.Revision = rapid.SampledFrom([]uint64{m.terms.Revision - 1, m.terms.Revision + 1}).Draw(rt, "revision")
	for _, move := range m.moves() {
		m.is(move(), room.ErrStale)
	}
	_, err := m.store.PutRoom(ctx, m.room.name, []byte("x"), m.terms.Revision)
	m.is(err, room.ErrConflict)
}

// compare compares the rooms after each step.
func (m *machine) compare(*rapid.T) {
	for _, r := range m.rooms {
		got, err := m.store.Status(ctx, r.name)
		m.must(err)
		want, err := m.memory.Status(ctx, r.name)
		m.must(err)
		want.Now = got.Now
		m.check(got == want, "status of %s is %+v\nwant          %+v", r.name, got, want)
		m.checkCalls(r, got)
		r.before = got
	}
	m.sameEvents(m.eventsOf(m.store), m.eventsOf(m.memory))
}

func (m *machine) finish() {
	for _, r := range m.rooms {
		m.room = r
		m.terms = r.terms
		var numbers []int64
		for number := range min(r.last, room.MaxAsk) {
			numbers = append(numbers, number+1)
		}
		m.askFor(Bearers(numbers...), true)
		m.checkHistory(r)
	}
	got, err := m.store.Rooms(ctx)
	m.must(err)
	want, err := m.memory.Rooms(ctx)
	m.must(err)
	m.check(len(got) == len(want), "%d rooms, want %d", len(got), len(want))
	for i, r := range m.rooms {
		m.check(got[i].Name == want[i].Name && bytes.Equal(got[i].Data, want[i].Data) && got[i].Revision == r.terms.Revision,
			"room is %+v, want %+v with revision %d", got[i], want[i], r.terms.Revision)
	}
}
