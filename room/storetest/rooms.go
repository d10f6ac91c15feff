package storetest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-project/sluice/room"
)

var roomCases = []testCase{
	{name: "records are kept byte by byte, by name", run: func(k *kit) {
		large := bytes.Repeat([]byte{0, 1, 255, '"'}, room.MaxRecord/4)
		data := bytes.Clone(large)
		revision, err := k.store.PutRoom(ctx, "a-large", data, 0)
		k.must(err)
		data[0] = 'x'
		k.put("z", 0)
		k.put("a", 0)
		for range 2 {
			records, err := k.store.Rooms(ctx)
			k.must(err)
			var names []string
			for _, r := range records {
				names = append(names, r.Name)
			}
			k.check(strings.Join(names, " ") == "a a-large shop z", "rooms are %q", names)
			k.check(bytes.Equal(records[1].Data, large), "the record was changed")
			k.check(records[1].Revision == revision, "revision is %d, want %d", records[1].Revision, revision)
			records[1].Data[1] = 'x'
		}
	}},
	{name: "each change has a higher revision, and needs the one before", run: func(k *kit) {
		first := k.terms.Revision
		k.check(first > 0, "the first revision is 0")
		second := k.put("shop", first)
		k.check(second > first, "revision %d comes after %d", second, first)
		for _, revision := range []uint64{0, first, second + 1} {
			_, err := k.store.PutRoom(ctx, "shop", []byte("x"), revision)
			k.is(err, room.ErrConflict)
		}
		_, err := k.store.PutRoom(ctx, "other", []byte("x"), 1)
		k.is(err, room.ErrConflict)
		records, err := k.store.Rooms(ctx)
		k.must(err)
		k.check(len(records) == 1 && records[0].Revision == second && string(records[0].Data) == `{"of":"shop"}`,
			"rooms are %+v", records)
	}},
	{name: "a revision is not used again after the room was removed", run: func(k *kit) {
		last := k.terms.Revision
		for range 4 {
			k.must(k.store.RemoveRoom(ctx, "shop"))
			_, err := k.store.PutRoom(ctx, "shop", []byte("x"), last)
			k.is(err, room.ErrConflict)
			revision := k.put("shop", 0)
			k.check(revision > last, "revision %d comes after %d", revision, last)
			last = k.put("shop", revision)
		}
	}},
	{name: "a change of the room leaves the visitors", run: func(k *kit) {
		k.enter(2)
		k.terms.Revision = k.put("shop", k.terms.Revision)
		k.waits(k.look(2), 1)
		k.check(k.enter(1) == 3, "numbers began again")
	}},
	{name: "the rooms' version changes with each record", run: func(k *kit) {
		seen := map[uint64]bool{}
		version := func() uint64 {
			version, err := k.store.RoomsVersion(ctx)
			k.must(err)
			return version
		}
		for range 2 {
			for _, change := range []func(){
				func() { k.terms.Revision = k.put("shop", k.terms.Revision) }, func() { k.put("other", 0) },
				func() { k.must(k.store.RemoveRoom(ctx, "other")) },
			} {
				before := version()
				k.check(before == version(), "the version changes by itself")
				seen[before] = true
				change()
				k.check(!seen[version()], "version %d comes again", version())
			}
		}
	}},
	{name: "a record is put on the condition that no other has changed", run: func(k *kit) {
		version := func() uint64 {
			version, err := k.store.RoomsVersion(ctx)
			k.must(err)
			return version
		}
		seen := version()
		for _, change := range []func(){
			func() { k.terms.Revision = k.put("shop", k.terms.Revision) }, func() { k.put("other", 0) },
			func() { k.must(k.store.RemoveRoom(ctx, "other")) },
		} {
			change()
			_, err := k.store.PutRoom(ctx, "new", []byte("x"), 0, seen)
			k.is(err, room.ErrConflict)
			seen = version()
		}
		_, err := k.store.PutRoom(ctx, "new", []byte("x"), 0, seen)
		k.must(err)
		revision, err := k.store.PutRoom(ctx, "shop", []byte("x"), k.terms.Revision, version())
		k.must(err)
		_, err = k.store.PutRoom(ctx, "shop", []byte("x"), revision, seen)
		k.is(err, room.ErrConflict)
		k.must(k.store.RemoveRoom(ctx, "new"))
		k.must(k.store.RemoveRoom(ctx, "shop"))
		_, err = k.store.PutRoom(ctx, "new", []byte("x"), 0, version())
		k.must(err)
	}},
	{name: "there are at most 10,000 rooms", run: func(k *kit) {
		const workers = 50
		k.work(workers, func(worker int) error {
			for i := worker; i < room.MaxRooms-1; i += workers {
				if _, err := k.store.PutRoom(ctx, fmt.Sprint("room", i), []byte("x"), 0); err != nil {
					return err
				}
			}
			return nil
		})
		_, err := k.store.PutRoom(ctx, "more", []byte("x"), 0)
		k.is(err, room.ErrTooManyRooms)
		k.put("shop", k.terms.Revision)
		k.must(k.store.RemoveRoom(ctx, "room7"))
		k.put("more", 0)
		_, err = k.store.PutRoom(ctx, "room7", []byte("x"), 0)
		k.is(err, room.ErrTooManyRooms)
		records, err := k.store.Rooms(ctx)
		k.must(err)
		k.check(len(records) == room.MaxRooms, "%d rooms, want %d", len(records), room.MaxRooms)
	}},
	{name: "a room that was removed begins from nothing", run: func(k *kit) {
		k.terms.Capacity = 1
		for i := range 3 {
			k.arrive(room.Arrival{Key: keyOf(i)})
		}
		k.leave(1, room.Left)
		k.must(k.store.RemoveRoom(ctx, "shop"))
		k.must(k.store.RemoveRoom(ctx, "shop"))
		k.terms.Revision = k.put("shop", 0)
		for number := range int64(5) {
			k.isGone(k.look(number), room.Forgotten)
		}
		s := k.status()
		s.Now = time.Time{}
		k.check(s == (room.Status{}), "status is %+v, want zeros", s)
		k.check(len(k.events()) == 0, "there are events of before")
		number, err := k.store.Find(ctx, k.terms, keyOf(1))
		k.must(err)
		k.check(number == 0, "visitor %d of before is found", number)
		p := k.arrive(room.Arrival{Key: keyOf(1)})
		k.check(p.New && p.Number == 1, "place is %+v, want a new one with number 1", p)
		k.check(k.events()[0].Sequence == 1, "events are %+v, want the first to be 1", k.events())
	}},
	{name: "rooms know nothing of each other", run: func(k *kit) {
		shop := k.terms
		k.terms.Room, k.terms.Revision = "shop2", k.put("shop2", 0)
		k.terms.Capacity = 1
		for i := range 3 {
			p := k.arrive(room.Arrival{Key: keyOf(i)})
			k.check(p.New && p.Number == int64(i)+1, "place is %+v", p)
		}
		k.terms = shop
		p := k.arrive(room.Arrival{Key: keyOf(1)})
		k.check(p.New && p.Number == 1, "place is %+v", p)
		k.waits(p, 0)
		k.must(k.store.Clear(ctx, k.terms))
		k.must(k.store.RemoveRoom(ctx, "shop"))
		s, err := k.store.Status(ctx, "shop2")
		k.must(err)
		k.check(s.Waiting == 2 && s.Inside == 1 && s.Entered == 3, "status is %+v", s)
	}},
	{name: "where there is no room, nothing moves", run: func(k *kit) {
		k.terms.Room = "none"
		for name, move := range k.moves() {
			err := move()
			k.check(err != nil, "%s succeeds", name)
			k.is(err, room.ErrNoRoom)
		}
		_, err := k.store.Status(ctx, "none")
		k.is(err, room.ErrNoRoom)
		_, err = k.store.Events(ctx, "none", 0, 0, 10)
		k.is(err, room.ErrNoRoom)
		k.is(k.store.Published(ctx, "none", 0, 1), room.ErrNoRoom)
	}},
	{name: "with a stale revision, nothing moves", run: func(k *kit) {
		other := k.terms.Revision + 1
		_, err := k.store.Events(ctx, "shop", other, 0, 10)
		k.is(err, room.ErrStale)
		k.is(k.store.Published(ctx, "shop", other, 1), room.ErrStale)
		_, err = k.store.Events(ctx, "shop", k.terms.Revision, 0, 10)
		k.must(err)
		k.must(k.store.Published(ctx, "shop", k.terms.Revision, 1))
		k.terms.Capacity, k.terms.Sliding, k.terms.Renewals = 1, false, 1
		k.enter(2)
		before, events := k.status(), len(k.events())
		good := k.terms
		k.put("shop", k.terms.Revision)
		k.terms.Capacity = 2
		for _, revision := range []uint64{good.Revision, good.Revision + 100, 0} {
			k.terms.Revision = revision
			for name, move := range k.moves() {
				err := move()
				k.check(err != nil, "%s succeeds", name)
				k.is(err, room.ErrStale)
			}
		}
		after := k.status()
		before.Now = after.Now
		k.check(after == before && len(k.events()) == events, "status is %+v, want %+v", after, before)
	}},
	{name: "a closed store says so", run: func(k *kit) {
		k.must(k.store.Close())
		for name, move := range k.moves() {
			err := move()
			k.check(err != nil, "%s succeeds", name)
			k.is(err, room.ErrClosed)
		}
		_, err := k.store.Rooms(ctx)
		k.is(err, room.ErrClosed)
		_, err = k.store.PutRoom(ctx, "x", []byte("x"), 0)
		k.is(err, room.ErrClosed)
		_, err = k.store.Now(ctx)
		k.is(err, room.ErrClosed)
	}},
}

// moves returns all operations with terms, each of which would have an effect.
func (k *kit) moves() map[string]func() error {
	return map[string]func() error{
		"Enter": func() error { _, err := k.store.Enter(ctx, k.terms, room.Arrival{}); return err },
		"Ask":   func() error { _, err := k.store.Ask(ctx, k.terms, Bearers(1), true); return err },
		"Renew": func() error { _, err := k.store.Renew(ctx, k.terms, room.Bearer{Number: 1}); return err },
		"Leave": func() error { _, err := k.store.Leave(ctx, k.terms, room.Bearer{Number: 1}, room.Left); return err },
		"Find":  func() error { _, err := k.store.Find(ctx, k.terms, keyOf(1)); return err },
		"Clear": func() error { return k.store.Clear(ctx, k.terms) },
		"Expire": func() error {
			_, err := k.store.Expire(ctx, k.terms)
			return err
		},
	}
}

var keyCases = []testCase{
	{name: "keys are stored all at once, if nobody was first", run: func(k *kit) {
		keys, err := k.store.Keys(ctx)
		k.must(err)
		k.check(len(keys) == 0, "an empty store has keys: %+v", keys)
		var want []room.SigningKey
		for i := range 3 {
			want = append(want, room.SigningKey{
				ID: fmt.Sprintf("%08x", 7-i), Secret: bytes.Repeat([]byte{byte(250 + i)}, 32),
				CreatedAt: time.Date(2026, 2, 3, 4, 5, 6+i, 789e6, time.UTC),
			})
			seen := newestKey(want[:i])
			k.is(k.store.PutKeys(ctx, want, want[i].ID), room.ErrConflict)
			k.must(k.store.PutKeys(ctx, want, seen))
			k.is(k.store.PutKeys(ctx, want[:1], seen), room.ErrConflict)
		}
		k.keysAre(want)
		// Two callers who have read the same keys each drop the oldest and add one: the number
		// stays the same.
		with := func(id string) []room.SigningKey {
			added := want[0]
			added.ID = id
			return append(slices.Clone(want[1:]), added)
		}
		k.must(k.store.PutKeys(ctx, with("0000000a"), want[2].ID))
		k.is(k.store.PutKeys(ctx, with("0000000b"), want[2].ID), room.ErrConflict)
		k.keysAre(with("0000000a"))
	}},
	{name: "keys are copied", run: func(k *kit) {
		want := room.SigningKey{ID: "00000001", Secret: bytes.Repeat([]byte{7}, 32), CreatedAt: time.Unix(1e9, 0)}
		given := want
		given.Secret = bytes.Clone(want.Secret)
		k.must(k.store.PutKeys(ctx, []room.SigningKey{given}, ""))
		given.Secret[0]++
		k.keysAre([]room.SigningKey{want})
		got, err := k.store.Keys(ctx)
		k.must(err)
		got[0].Secret[0]++
		k.keysAre([]room.SigningKey{want})
	}},
}

func (k *kit) keysAre(want []room.SigningKey) {
	k.t.Helper()
	got, err := k.store.Keys(ctx)
	k.must(err)
	k.check(len(got) == len(want), "%d keys, want %d", len(got), len(want))
	for i := range want {
		k.check(got[i].ID == want[i].ID && bytes.Equal(got[i].Secret, want[i].Secret) && got[i].CreatedAt.Equal(want[i].CreatedAt),
			"key %d is %+v, want %+v", i, got[i], want[i])
	}
}
