package pebblestore

import (
	"bytes"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/room"
)

// Records are read back as written.
func TestRecordsAreReadBack(t *testing.T) {
	count := rapid.Int64Range(0, math.MaxInt64)
	rapid.Check(t, func(t *rapid.T) {
		v := visitor{slot: slot(rapid.IntRange(1, int(slotLast)).Draw(t, "slot")), draw: noDraw}
		if v.slot.live() {
			v.draw = rapid.Int64Range(-1, room.MaxDraw).Draw(t, "draw")
			v.print = room.Fingerprint(rapid.Uint16().Draw(t, "fingerprint"))
			if v.draw < 0 {
				v.lane = rapid.Uint8Range(0, room.MaxLanes-1).Draw(t, "lane")
			}
			copy(v.key[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "key"))
		}
		if v.slot.active() {
			v.since, v.until, v.tick = count.Draw(t, "since"), count.Draw(t, "until"), count.Draw(t, "tick")
		}
		if v.slot == slotInside {
			v.renewals = count.Draw(t, "renewals")
		}
		if got, err := decodeVisitor(v.append(nil)); err != nil || got != v {
			t.Fatalf("visitor is %+v, %v; want %+v", got, err, v)
		}
		c := counts{count.Draw(t, "number"), count.Draw(t, "sequence"), 1, 2, 3, 4, 5, room.Batch{Tick: count.Draw(t, "tick"), Left: 7}, count.Draw(t, "clock")}
		if got, err := decodeCounts(c.append(nil)); err != nil || got != c {
			t.Fatalf("counts are %+v, %v; want %+v", got, err, c)
		}
		var slots, got [pageSize]slot
		for i := 0; i < pageSize; {
			s := rapid.SampledFrom([]slot{slotNone, slotLeft, slotExpired, slotAbandoned, slotRevoked, slotEnded}).Draw(t, "slot")
			end := min(pageSize, i+rapid.IntRange(1, pageSize).Draw(t, "run"))
			for ; i < end; i++ {
				slots[i] = s
			}
		}
		if emptied, err := decodeGone(encodeGone(c.number, &slots), &got); err != nil || emptied != c.number || got != slots {
			t.Fatalf("the page is not read back: %v", err)
		}
		r := roomRecord{id: 1 + uint64(c.sequence/2), data: []byte("data")}
		r.revision = r.id + 1
		if got, err := decodeRoom(r.encode()); err != nil || !reflect.DeepEqual(got, r) {
			t.Fatalf("room is %+v, %v; want %+v", got, err, r)
		}
	})
}

func TestEventsAreReadBack(t *testing.T) {
	at := time.UnixMilli(1_700_000_000_123)
	var want []room.Event
	value := appendCounts(nil, at.UnixMilli())
	for i, kind := range eventTypes[1:] {
		for _, inside := range []bool{false, true} {
			e := room.Event{Sequence: 40 + int64(len(want)), Type: kind, Number: int64(i) << 40, Inside: inside, Time: at}
			want = append(want, e)
			value = appendEvent(value, &e)
		}
	}
	if got, err := decodeEvents(40, value); err != nil || !slices.Equal(got, want) {
		t.Errorf("events are %+v, %v\nwant %+v", got, err, want)
	}
}

// Decoding any value does not panic, and an accepted value is one that the store would write.
func FuzzDecode(f *testing.F) {
	v := visitor{slot: slotInside, key: room.Key{1}, draw: 5, print: 6, since: 1, until: 2, tick: 3, renewals: 4}
	f.Add(v.append(nil))
	f.Add((&counts{number: 1 << 40, batch: room.Batch{Tick: 9}}).append(nil))
	f.Add([]byte("000000000")) // counts of an earlier release
	f.Add(encodeGone(7, &[pageSize]slot{slotNone, slotLeft, slotLeft}))
	f.Add((&roomRecord{id: 3, revision: 300, data: []byte("{}")}).encode())
	f.Add(appendEvent(appendCounts(nil, 99), &room.Event{Type: room.VisitorNoShow, Number: 300, Inside: true}))
	f.Fuzz(func(t *testing.T, value []byte) {
		again := func(kind string, written []byte, err error) {
			t.Helper()
			// A varint may be longer than it needs to be.
			if err == nil && len(written) > len(value) {
				t.Errorf("%x is a %s, which is written as %x", value, kind, written)
			}
		}
		v, err := decodeVisitor(value)
		again("visitor", v.append(nil), err)
		if err == nil && v.slot == slotNone {
			t.Errorf("%x is a visitor who was never there", value)
		}
		c, err := decodeCounts(value)
		again("count", bytes.TrimSuffix(c.append(nil), []byte{0}), err) // earlier releases wrote no clock
		r, err := decodeRoom(value)
		again("room", r.encode(), err)
		var slots [pageSize]slot
		emptied, err := decodeGone(value, &slots)
		if err == nil {
			again("page", encodeGone(emptied, &slots), nil)
		}
		events, err := decodeEvents(1, value)
		if err != nil {
			return
		}
		written := appendCounts(nil, events[0].Time.UnixMilli())
		for i := range events {
			written = appendEvent(written, &events[i])
		}
		again("list of events", written, nil)
	})
}

// Keys sort as the numbers in them, and stay in the range of their room and kind.
func TestKeysSort(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.Uint64Range(1, math.MaxInt64-1).Draw(t, "id")
		number := rapid.Int64Range(0, math.MaxInt64-1).Draw(t, "number")
		kind := rapid.SampledFrom([]byte{kindEvents, kindGone, kindVisitor}).Draw(t, "kind")
		key, next := keyFor(id, kind, number), keyFor(id, kind, number+1)
		if bytes.Compare(key, next) >= 0 {
			t.Fatalf("%x is not before %x", key, next)
		}
		for _, ends := range [][2][]byte{first(kindRange(id, kind)), first(roomRange(id))} {
			if bytes.Compare(key, ends[0]) < 0 || bytes.Compare(key, ends[1]) >= 0 {
				t.Fatalf("%x is not in its range %x", key, ends)
			}
		}
		if from, to := roomRange(id + 1); bytes.Compare(key, from) >= 0 || bytes.Compare(key, to) >= 0 {
			t.Fatalf("%x is in another room", key)
		}
		if got, err := numberOf(key); err != nil || got != number {
			t.Fatalf("number is %d, %v; want %d", got, err, number)
		}
	})
}

func first(from, to []byte) [2][]byte { return [2][]byte{from, to} }
